"""Upload of a model folder to the Hugging Face Hub in one commit."""

import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasvit.checkpoints import ADAPTERS

from .access import check_access, endpoint_of
from .download import CONFIG, DownloadError
from .errors import (
    client_errors,
    explain_request,
    first_line,
    http_error,
    is_of_hub,
    not_a_hub,
)
from .front_matter import MAX_PAGE, read_page, too_long

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi
    from huggingface_hub.hf_api import ModelInfo


class UploadError(DownloadError):
    """Error of a failed upload; a new repository or branch may remain."""


def check_target(repository: str, **access: Any) -> None:
    """Checks the arguments of `push_to_hub` without a request to the Hub.

    Raises:
        ValueError: An argument is wrong.
    """
    text = repository if isinstance(repository, str) else ""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        raise UploadError(
            f'`repo_id` must be "user/name" of the Hub. Received: {repository!r}.'
        )
    check_access(**access)
    endpoint_of(access.get("endpoint"))
    revision = access.get("revision")
    if access.get("create_pr") and revision is not None:
        raise UploadError(
            "`create_pr` opens a pull request for the branch main: leave `revision` "
            f"out, or push to the branch alone. Received: {revision!r}."
        )


def prepare(
    repository: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    with_model: bool = True,
    **access: Any,
) -> tuple["HfApi", bytes | None]:
    """Creates the repository if it does not exist.

    Args:
        repository: "user/name".
        private: Whether a new repository is private. If True, an existing repository
            must be private.
        revision: Branch whose README.md is read; main if None or if the branch does
            not exist.
        with_model: Whether a model is uploaded. Otherwise the repository must not hold
            one, whose config.json would state another file of adapters.
        access: `token` and `endpoint` of `push_to_hub`.

    Returns:
        (client, content of the existing README.md or None).

    Raises:
        UploadError: The token has no permission, the name is invalid, the repository is
            public although `private` is True, or it holds a model.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionNotFoundError

    check_target(repository, private=private, revision=revision, **access)
    client = HfApi(**access, library_name="kerasvit")
    try:
        client.create_repo(repository, private=private, exist_ok=True)
        try:
            about = client.model_info(
                repository, revision=revision, files_metadata=True
            )
        except RevisionNotFoundError:  # `upload` creates the branch from main
            about = client.model_info(repository, files_metadata=True)
        page = _page(client, about)
    except client_errors(ValueError, RuntimeError, *_UNREADABLE) as error:
        raise _explained(error, repository, client) from error
    if private and about.private is False:
        raise UploadError(
            f"{repository} was not written: it is public, and `private` is True. Make "
            "it private in its settings on the Hub, or leave `private` out."
        )
    if not with_model and CONFIG in {file.rfilename for file in about.siblings or ()}:
        raise UploadError(
            f"{repository} was not written: it holds a model. Push adapters alone to a "
            "repository of their own, or both with keep_adapters=True."
        )
    return client, page


def _page(client: "HfApi", about: "ModelInfo") -> bytes | None:
    """Returns the README.md of a repository, or None."""
    sizes = {file.rfilename: file.size for file in about.siblings or ()}
    if "README.md" not in sizes:
        return None
    if (size := sizes["README.md"] or 0) > MAX_PAGE:
        raise ValueError(f"Its README.md {too_long(size)}")
    with tempfile.TemporaryDirectory() as cache:
        path = client.hf_hub_download(
            about.id, "README.md", revision=about.sha, cache_dir=cache
        )
        return read_page(Path(path))


def upload(
    client: "HfApi",
    folder: str | Path,
    repository: str,
    *,
    revision: str | None = None,
    create_pr: bool = False,
    message: str | None = None,
) -> "CommitInfo":
    """Uploads a folder in one commit that deletes old weights and certificates.

    Args:
        client: Client that `prepare` returned.
        folder: Folder with config.json, model.safetensors and other files to upload.
        repository: "user/name".
        revision, create_pr, message: Arguments of `push_to_hub`.

    Returns:
        `huggingface_hub.CommitInfo`.

    Raises:
        UploadError: The upload failed.
    """
    try:
        if revision and not create_pr:
            client.create_branch(repository, branch=revision, exist_ok=True)
        return client.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=revision,
            create_pr=create_pr,
            commit_message=message or "Model from kerasvit",
            delete_patterns=["model*.safetensors*", ADAPTERS, "certificate.json"],
        )
    except client_errors(ValueError, RuntimeError, *_UNREADABLE) as error:
        raise _explained(error, repository, client) from error


# Errors of the client for answers of servers that are not a Hub.
_UNREADABLE = (json.JSONDecodeError, LookupError, TypeError, AttributeError)
_ADVICE = {
    401: "the Hub does not know the token. Run `hf auth login`, or pass `token=`",
    403: "the token may not write to {!r}: it needs the right to write there, and a "
    "fine-grained token the repository in its list",
    404: "there is no such repository or branch, or the token may not see it",
    409: "somebody else wrote to it meanwhile: push again",
    412: "somebody else wrote to it meanwhile: push again",
}


def _explained(error: Exception, repository: str, client: "HfApi") -> UploadError:
    from huggingface_hub import errors

    refusal = http_error(error)
    code = refusal and refusal.response.status_code
    if isinstance(error, _UNREADABLE):
        reason = not_a_hub(client.endpoint)
    elif isinstance(error, ValueError) and isinstance(
        error.__cause__, errors.BadRequestError
    ):  # the Hub rejected the metadata of the README.md
        reason = (
            f"{' '.join(str(error).split())} Change `license`, `datasets`, "
            "`base_model`, `metrics` or `card`, or the existing README.md, or set "
            "`model.card` to None."
        )
    elif isinstance(error, ValueError) and not code:  # an argument or the README.md
        reason = first_line(error)
    else:
        if isinstance(error, errors.RepositoryNotFoundError):
            code = 404
        elif isinstance(error, errors.LocalTokenNotFoundError):
            code = 401
        reason = explain_request(error, client.endpoint)
        if code in (401, 403) or (code in _ADVICE and refusal and is_of_hub(refusal)):
            advice = _ADVICE[code].format(repository.split("/")[0])
            reason = f"{advice}. The reason: {reason}"
    return UploadError(f"{repository} was not written: {reason.rstrip('.')}.")
