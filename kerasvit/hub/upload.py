"""Uploads a model folder to the Hugging Face Hub in one commit."""

import json
import re
import tempfile
from pathlib import Path

from .access import check_access, endpoint_of
from .download import DownloadError
from .errors import (
    client_errors,
    first_line,
    http_error,
    is_busy,
    not_a_hub,
    of_a_hub,
    status,
)
from .front_matter import LONGEST_PAGE, read_page, too_long


class UploadError(DownloadError):
    """A model could not be uploaded; a new repository or branch may remain."""


def check_target(repository, *, create_pr=None, revision=None, **access):
    """Checks the arguments of an upload before any work.

    Args:
        repository: "user/name".
        create_pr, revision, access: As `push_to_hub` was given them.
    """
    if not isinstance(repository, str) or not re.fullmatch(
        r"[\w.-]+/[\w.-]+", repository
    ):
        raise UploadError(
            f'`repo_id` must be "user/name" of the Hub. Received: {repository!r}.'
        )
    check_access(create_pr=create_pr, revision=revision, **access)
    endpoint_of(access.get("endpoint"))
    if create_pr and revision is not None:
        raise UploadError(
            "`create_pr` opens a pull request for the branch main: leave `revision` "
            f"out, or push to the branch alone. Received: {revision!r}."
        )


def prepare(repository, *, token=None, private=None, endpoint=None, revision=None):
    """Creates the repository if it does not exist.

    Args:
        repository: "user/name".
        token: With the right to write; None: that of `hf auth login`.
        private: Whether a new repository is private; one that exists must be, if True.
        endpoint: Address of another Hub.
        revision: Branch whose README.md is read; None, or where there is none: main.

    Returns:
        (client, content of the README.md that is there, or None).

    Raises:
        UploadError: The token may not, or the name is none, or all can read what is
            to be private.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionNotFoundError

    where = {"token": token, "endpoint": endpoint}
    check_target(repository, private=private, revision=revision, **where)
    client = HfApi(**where, library_name="kerasvit")
    sizes = {"files_metadata": True}
    try:
        client.create_repo(repository, private=private, exist_ok=True)
        try:
            about = client.model_info(repository, revision=revision, **sizes)
        except RevisionNotFoundError:  # the branch will be made from main
            about = client.model_info(repository, **sizes)
        page = _page(client, about)
    except _failures() as error:
        raise _explained(error, repository, client) from error
    if private and about.private is False:
        raise UploadError(
            f"{repository} was not written: it is public, and `private` is True. Make "
            "it private in its settings on the Hub, or leave `private` out."
        )
    return client, page


def _page(client, about):
    """Returns the README.md of a repository, or None."""
    sizes = {file.rfilename: file.size for file in about.siblings or ()}
    if "README.md" not in sizes:
        return None
    if (size := sizes["README.md"] or 0) > LONGEST_PAGE:
        raise ValueError(f"Its README.md {too_long(size)}")
    with tempfile.TemporaryDirectory() as place:
        options = {"revision": about.sha, "cache_dir": place}
        path = client.hf_hub_download(about.id, "README.md", **options)
        return read_page(Path(path))


def upload(client, folder, repository, *, revision, create_pr, message):
    """Uploads the files of a folder in one commit, which deletes old weights.

    Args:
        client: As `prepare` returned it.
        folder: With config.json, model.safetensors and what else is to go along.
        repository: "user/name".
        revision: Branch, made where it does not exist; None: main.
        create_pr: Whether as a pull request.
        message: Of the commit, or None.

    Returns:
        `huggingface_hub.CommitInfo`.

    Raises:
        UploadError: It could not be done.
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
            delete_patterns=["model*.safetensors*"],
        )
    except _failures() as error:
        raise _explained(error, repository, client) from error


# The client reads an answer unchecked: one of another server than a Hub ends in these.
_UNREADABLE = (json.JSONDecodeError, LookupError, TypeError, AttributeError)


def _failures():
    return (ValueError, RuntimeError, *_UNREADABLE, *client_errors())


def _explained(error, repository, client):
    meaning = _meaning(error, repository, client.endpoint).rstrip(".")
    return UploadError(f"{repository} was not written: {meaning}.")


def _meaning(error, repository, endpoint):
    from huggingface_hub import errors

    code, cause = status(error), error.__cause__
    reply = first_line(code and http_error(error).server_message) or "nothing more"
    if isinstance(error, ValueError) and isinstance(cause, errors.BadRequestError):
        # So the client says what the Hub has against the head of the README.md.
        return (
            f"{' '.join(str(error).split())} Change `license`, `datasets`, "
            "`base_model`, `metrics` or `card`, or the README.md that is there"
        )
    if isinstance(error, _UNREADABLE):
        return not_a_hub(endpoint)
    other = code and not of_a_hub(error) and not_a_hub(endpoint)
    if other and code not in (401, 403) and not is_busy(code):
        return f"the server answers {code}. {other}"
    if code == 404 or isinstance(error, errors.RepositoryNotFoundError):
        return "there is no such repository or branch, or the token may not see it"
    if code == 401 or isinstance(error, errors.LocalTokenNotFoundError):
        return "the Hub does not know the token: `hf auth login`, or pass `token=`"
    if code == 403:
        return (
            f"the token may not write to {repository.split('/')[0]!r}: it needs the "
            "right to write there, and fine-grained ones the repository in their list. "
            f"Or the Hub has another reason; it says: {reply}"
            + (f". Or {other}" if other else "")
        )
    if code in (409, 412):
        return f"somebody else wrote to it meanwhile; push again. The Hub says: {reply}"
    if code is not None and is_busy(code):
        return f"the Hub answers {code}; try later"
    if code is not None:
        return f"the Hub answers {code}, and says: {reply}"
    if isinstance(error, ValueError):  # an argument, or the README.md that is there
        return first_line(error)
    return f"{type(error).__name__}: {first_line(error)}"
