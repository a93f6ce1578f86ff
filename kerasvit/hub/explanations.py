"""What errors of the Hub's client and of the disk mean to the user, and what to do."""

import errno
import re


def meaning_of(error, name, files) -> str:
    """Why a file of a repository could not be had, in one sentence or two.

    Args:
        error: Of `huggingface_hub`, or of the disk.
        name: Of the file.
        files: `HubFiles` that was asked.
    """
    from huggingface_hub import constants, errors

    endpoint = (files.access.get("endpoint") or constants.ENDPOINT).rstrip("/")
    where = without_credentials(f"{endpoint}/{files.repository}")
    by_hand = (
        f"Download {name} and config.json of {where} elsewhere into one folder, and "
        "pass its path."
    )
    explanations = (
        (errors.GatedRepoError, f"asks for your consent: accept it at {where}, and "
         "log in with `hf auth login`."),
        (errors.DisabledRepoError, "has been disabled by the Hub."),
        (errors.RepositoryNotFoundError, "does not exist, or is private and your "
         "token may not read it: `hf auth login`."),
        (errors.RevisionNotFoundError, f"has no revision {files.revision!r}."),
        (errors.LocalEntryNotFoundError, "is not in the cache, and the Hub "
         f"{_not_reached(error.__cause__)} {by_hand}"),
        (errors.EntryNotFoundError, _without(name)),
    )  # fmt: skip
    code = status(error)
    if code == 401:
        meaning = "wants a token, or refuses yours. Log in: `hf auth login`."
    elif code:
        later = "Try later. " if is_busy(code) else ""
        meaning = f"cannot be had: the server answers {code}. {later}{by_hand}"
    else:
        what = f"{type(error).__name__}: {first_line(error)}".rstrip(".")
        meaning = of_the_disk(error) or f"cannot be downloaded: {what}. {by_hand}"
    known = (text for kind, text in explanations if isinstance(error, kind))
    return f"{files.repository} {next(known, meaning)}"


def _not_reached(cause):
    said = first_line(cause)
    if not said:
        return "is not to be asked: local_files_only, or HF_HUB_OFFLINE."
    return f"cannot be reached, or is not to be asked: {said.rstrip('.')}."


def _without(name):
    if name == "config.json":
        return (
            "has no config.json, which says what model it is. Download its "
            "model.safetensors and build that variant: kerasvit.ViTB16(path)."
        )
    return (
        f"has no {name}. Pickled weights, .bin and .pth, are not read: they can run "
        "any code."
    )


def status(error):
    """The HTTP status that an error tells of, or None."""
    return getattr(getattr(error, "response", None), "status_code", None)


def is_busy(code):
    """Whether a server with this HTTP status may answer in a moment."""
    return code == 429 or code >= 500


def of_the_disk(error):
    """What an error of the disk means to the user; None for other errors."""
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            "does not fit: the disk of the cache is full. Make room, or set HF_HOME to "
            "a folder on another disk."
        )
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"cannot be kept: {error.filename} of the cache may not be written. Set "
            "HF_HOME to a folder of yours."
        )
    return None


def first_line(error):
    """The first line of an error's text, without passwords; "" for None."""
    return without_credentials(str(error or "").strip().split("\n")[0])


def without_credentials(text):
    """A text, without user and password where they begin it or an address in it."""
    return re.sub(r"(://|^\W?)[^\s/]*@", r"\1", text)
