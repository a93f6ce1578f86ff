"""What a Hub states about the user's token and about published weights."""

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kerasvit.checkpoints import read_json
from kerasvit.hub.errors import (
    client_errors,
    explain_request,
    http_error,
    is_passing,
    retried,
)
from kerasvit.hub.hashes import file_hash
from kerasvit.hub.manifest import Entry

from .certificate import CERTIFICATE, COVERED, PASSED, read_certificate
from .publish import is_of_pin, published_entry

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import ModelInfo


def check_rights(client: "HfApi", organisation: str) -> None:
    """Checks that the user's token may write to an organisation or account.

    Raises:
        ValueError: There is no token, the Hub does not accept it, it may not write to
            the organisation, or the Hub does not answer.
    """
    from huggingface_hub.errors import LocalTokenNotFoundError

    login = (
        f"Run `hf auth login`, or set HF_TOKEN to one that may write to {organisation}."
    )
    try:
        account = retried(client.whoami, is_passing)
    except LocalTokenNotFoundError as error:
        raise ValueError(f"There is no token for {client.endpoint}. {login}") from error
    except client_errors() as error:
        refusal = http_error(error)
        if refusal and refusal.response.status_code in (401, 403):
            raise ValueError(
                f"{client.endpoint} does not accept the token. {login}"
            ) from error
        reason = explain_request(error, client.endpoint)
        raise ValueError(f"The token cannot be checked: {reason}") from error
    if refused := _refusal(account, organisation.lower()):
        raise ValueError(
            f"The token may not write to {organisation}: {refused} {login}"
        )


def _refusal(account: dict, organisation: str) -> str | None:
    """Returns why a token may not write to an organisation, or None.

    Args:
        account: Answer of the Hub's /api/whoami-v2.
        organisation: Name in lower case.
    """
    user = account["name"]
    # {organisation in lower case: the user's role in it}
    roles = {
        each["name"].lower(): each.get("roleInOrg") for each in account.get("orgs", ())
    }
    roles[user.lower()] = "admin"
    token = account.get("auth", {}).get("accessToken", {})
    if token.get("role") == "fineGrained":
        scopes = token.get("fineGrained", {}).get("scoped", ())
        names = {scope["entity"].get("name", "").lower() for scope in scopes}
        if organisation not in names:
            return "it is a fine-grained token, and its list does not name it."
    elif token.get("role") == "read":
        return "its role is read."
    elif organisation not in roles:
        return f"its user {user} is not a member."
    if roles.get(organisation) == "read":
        return f"the role of its user {user} there is read."
    return None


def find_published(client: "HfApi", repository: str, original: Entry) -> Entry | None:
    """Returns the entry of weights that the Hub already has, pinned; None if not.

    The SHA-256 of the tensors that the Hub states, and that of config.json, must be
    those of a certificate.json there, which must have passed for the pinned original.

    Args:
        client: Client of the Hub.
        repository: "user/name"; it need not exist.
        original: Entry of the original, pinned.

    Raises:
        ValueError: The Hub does not answer the request.
    """
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = retried(
            lambda: client.model_info(repository, files_metadata=True), is_passing
        )
        return _entry_there(client, repository, original, info)
    except RepositoryNotFoundError:
        return None
    except client_errors() as error:
        reason = explain_request(error, client.endpoint)
        raise ValueError(f"{repository} cannot be compared: {reason}") from error


def _entry_there(
    client: "HfApi", repository: str, original: Entry, info: "ModelInfo"
) -> Entry | None:
    files = {file.rfilename: file for file in info.siblings or ()}
    if not {CERTIFICATE, *COVERED} <= files.keys():
        return None
    with tempfile.TemporaryDirectory() as temporary:
        for name in (CERTIFICATE, "config.json"):
            client.hf_hub_download(
                repository, name, revision=info.sha, local_dir=temporary
            )
        folder = Path(temporary)
        try:
            certificate = read_certificate(folder)
        except ValueError:  # of another version, or changed by hand
            return None
        size, lfs = files["model.safetensors"].size, files["model.safetensors"].lfs
        if size is None or lfs is None:  # not a file of tensors
            return None
        found = {
            "model.safetensors": lfs.sha256,
            "config.json": file_hash(folder / "config.json"),
        }
        passed = certificate.verdict == PASSED and is_of_pin(original, certificate)
        if not passed or certificate.files != found:
            return None
        record = read_json(folder / "config.json")["kerasvit"]
    entry = published_entry(original, record, repository, size, lfs.sha256)
    return dataclasses.replace(entry, revision=info.sha)
