"""Explains errors of the Hub's client and of the disk."""

import errno
import re


def client_errors():
    """The kinds of errors by which the Hub's client says that a file cannot be had.

    For `except`. Arguments that the client refuses are `ValueError`s besides.
    """
    import httpx2

    return OSError, httpx2.HTTPError, httpx2.InvalidURL


def is_passing(error):
    """Whether a request that ended in this error may succeed in a moment."""
    import httpx2
    from huggingface_hub.errors import EntryNotFoundError

    if isinstance(error, EntryNotFoundError):
        return False  # for a Hub that does not answer the client has waited itself
    if code := status(error):
        return is_busy(code)
    # The client raises an OSError without a number for a file of a wrong length.
    wrong_length = type(error) is OSError and error.errno is None
    return wrong_length or isinstance(error, httpx2.TransportError)


def http_error(error):
    """The `HfHubHTTPError` that an error is or was raised from, or None."""
    from huggingface_hub.errors import HfHubHTTPError

    chain = (error, getattr(error, "__cause__", None))
    return next((link for link in chain if isinstance(link, HfHubHTTPError)), None)


def status(error):
    """The HTTP status that an error or its cause tells of, or None."""
    error_found = http_error(error)
    return error_found.response.status_code if error_found else None


def meaning_of(error, name, files) -> str:
    """Why a file of a repository could not be had, in one sentence or two.

    Args:
        error: One of `client_errors`.
        name: Of the file.
        files: `HubFiles` that was asked.
    """
    from huggingface_hub import errors

    where = f"{files.endpoint}/{files.repository}"
    by_hand = (
        f"Download {name} and config.json of {where} elsewhere into one folder, and "
        "pass its path."
    )
    explanations = (
        (errors.GatedRepoError, f"asks for your consent: accept it at {where}, and "
         "log in with `hf auth login`."),
        (errors.DisabledRepoError, "has been disabled by the Hub."),
        (errors.RepositoryNotFoundError, _not_found(where)),
        (errors.RevisionNotFoundError, f"has no revision {files.revision!r}."),
        (errors.LocalEntryNotFoundError, "is not in the cache, and "
         f"{_no_answer(error.__cause__, files.endpoint)} {by_hand}"),
        (errors.EntryNotFoundError, _without(name)),
    )  # fmt: skip
    if status(error) == 401:
        meaning = _not_found(where)
    elif status(error):
        meaning = f"cannot be had: {_answered(error, files.endpoint)} {by_hand}"
    else:
        what = f"{type(error).__name__}: {first_line(error)}".rstrip(".")
        meaning = of_the_disk(error) or f"cannot be downloaded: {what}. {by_hand}"
    known = (text for kind, text in explanations if isinstance(error, kind))
    return f"{files.repository} {next(known, meaning)}"


def _not_found(where):
    # The Hub gives one answer for both, so that nobody learns what is private.
    return (
        "does not exist, or is private and cannot be read with the token of this call "
        f"or machine, if there is one. Check the name: {where}. To read a private one, "
        "log in with `hf auth login` or pass `token=`."
    )


def _no_answer(cause, endpoint):
    """Explains why the Hub did not answer a request for a file."""
    from huggingface_hub.errors import FileMetadataError, OfflineModeIsEnabled

    if cause is None or isinstance(cause, OfflineModeIsEnabled):
        return "the Hub is not to be asked: local_files_only, or HF_HUB_OFFLINE."
    if isinstance(cause, FileMetadataError):
        return not_a_hub(endpoint)
    if status(cause):
        return _answered(cause, endpoint)
    reason = f"{type(cause).__name__}: {first_line(cause)}".rstrip(".")
    return f"{endpoint} cannot be reached: {reason}."


def not_a_hub(endpoint):
    """Explains an answer that is not from a Hub."""
    return (
        f"{endpoint} answers, but not as a Hub does. It is another server, or a proxy, "
        "a firewall or a page to log in at answers in its place: check `endpoint`, "
        "HF_ENDPOINT and the proxy's settings."
    )


def of_a_hub(error):
    """Whether the server of an error with a status says why, as a Hub does."""
    found = http_error(error)
    names = {"X-Error-Code", "X-Error-Message"}
    return bool(found.server_message) or any(n in found.response.headers for n in names)


def _answered(error, endpoint):
    """Explains an HTTP error of a server."""
    code, message = status(error), first_line(http_error(error).server_message)
    if is_busy(code):
        return f"the server answers {code}. Try later."
    message = f" and says: {message.rstrip('.')}" if message else ""
    legal = " (withheld for legal reasons)" if code == 451 else ""
    other = "" if of_a_hub(error) else f" {not_a_hub(endpoint)}"
    return f"the server answers {code}{legal}{message}.{other}"


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


def is_busy(code):
    """Whether a server with this HTTP status may answer later."""
    return code == 429 or code >= 500


def of_the_disk(error):
    """Explains an error of the disk; None for other errors."""
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
    """Returns the first line of an error's text, without passwords; "" for None."""
    return without_credentials(str(error or "").strip().split("\n")[0])


def without_credentials(text):
    """Removes user and password from a text and its addresses."""
    return re.sub(r"(://|^\W?)[^\s/]*@", r"\1", text)
