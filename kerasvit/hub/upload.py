"""A model folder to the Hugging Face Hub, in one commit."""

import re

from .download import DownloadError


class UploadError(DownloadError):
    """A model could not be put on the Hub; nothing of it is there."""


def prepare(repository, *, token=None, private=None, endpoint=None):
    """Makes the repository where it does not exist, before any time is spent.

    Returns:
        (client, whether the repository has a README.md).

    Raises:
        UploadError: The token may not, or the name is none.
    """
    from huggingface_hub import HfApi

    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise UploadError(
            f'`repo_id` must be "user/name" of the Hub. Received: {repository!r}.'
        )
    client = HfApi(endpoint=endpoint, token=token, library_name="kerasvit")
    try:
        client.create_repo(repository, private=private, exist_ok=True)
        files = client.list_repo_files(repository)
    except Exception as error:
        raise _explained(error, repository) from error
    return client, "README.md" in files


def upload(client, folder, repository, *, revision, create_pr, message, readme):
    """Puts the files of a folder into one commit; weights of before are deleted.

    Args:
        client: As `prepare` returned it.
        folder: With config.json, model.safetensors and README.md.
        repository: "user/name".
        revision: Branch, made where it does not exist; None: main.
        create_pr: Whether as a pull request.
        message: Of the commit, or None.
        readme: Whether the README.md goes along.

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
            allow_patterns=["config.json", "model.safetensors"]
            + (["README.md"] if readme else []),
            delete_patterns=["model*.safetensors*"],
        )
    except Exception as error:
        raise _explained(error, repository) from error


def _explained(error, repository):
    status = getattr(getattr(error, "response", None), "status_code", None)
    owner = repository.split("/")[0]
    if status == 401 or type(error).__name__ == "LocalTokenNotFoundError":
        meaning = "the Hub does not know the token: `hf auth login`, or pass `token=`"
    elif status == 403:
        meaning = (
            f"the token may not write to {owner!r}: it needs the right to write there, "
            "and fine-grained ones the repository in their list"
        )
    elif status == 404:
        meaning = "there is no such repository or branch, or the token may not see it"
    elif status is not None:
        meaning = f"the Hub answers {status}; try later"
    else:
        first = str(error).strip().split("\n")[0]
        meaning = f"{type(error).__name__}: {first}"
    return UploadError(f"{repository} was not written: {meaning}.")
