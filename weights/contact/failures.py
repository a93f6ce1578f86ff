"""Kinds of failures of `weights.first_contact`, by the classes of the errors."""

import urllib.error
from collections.abc import Iterator

import keras

from kerasvit.checkpoints import CheckpointError
from kerasvit.hub.access import endpoint_of
from kerasvit.hub.download import DownloadError
from kerasvit.hub.errors import (
    client_errors,
    explain_disk,
    explain_download,
    explain_request,
    http_error,
)
from kerasvit.hub.manifest import Entry

from ..downloads import NoRoom
from ..labelled_images import ImageError

# What to do, by kind of failure; the kinds are those of `weights.contact.results`.
ADVICE = {
    "name": "Correct the table in weights/sources.toml, run python -m weights.lock, "
    "and run the command again.",
    "server": "Run the command again later; names that passed are not repeated.",
    "licence": "Read the card. If the licence is acceptable, correct `license` in "
    "weights/sources.toml; else remove the table. Then run python -m weights.lock.",
    "format": "kerasvit does not read this file correctly: report it with the log.",
    "numbers": "Do not use these weights before the difference is explained: report "
    "it with the record.",
    "images": "Replace or remove this image, and run the command again.",
    "space": "Make room, or set HF_HOME to a larger disk or use a machine with more "
    "memory; then run the command again.",
}
# The server does not give the file to the public, or does not have it. Buckets of
# Google answer 403 for files that do not exist.
ABSENT = (401, 403, 404, 410, 451)
LONGEST = 600  # characters of a message


class ContactError(ValueError):
    """A failure of a name.

    Args:
        kind: One of `weights.contact.results.KINDS`.
        message: What was expected and what came.
        advice: What to do; None for the advice of the kind.
    """

    def __init__(self, kind: str, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.advice = advice or ADVICE[kind]


def failures() -> tuple[type[Exception], ...]:
    """Returns the exception types of which `kind_of` knows the kind, for `except`."""
    from huggingface_hub.errors import HFValidationError

    known = (ContactError, CheckpointError, HFValidationError, NoRoom, ImageError)
    return client_errors(*known, *memory_errors())


def memory_errors() -> tuple[type[Exception], ...]:
    """Returns the exception types for too little memory; JAX has none of its own."""
    if keras.backend.backend() == "torch":
        from torch import OutOfMemoryError

        return MemoryError, OutOfMemoryError
    if keras.backend.backend() == "tensorflow":
        from tensorflow.errors import ResourceExhaustedError

        return MemoryError, ResourceExhaustedError
    return (MemoryError,)


def failure_of(error: Exception, message: str | None = None) -> dict[str, str]:
    """Returns {"kind", "message"} of an error in `failures()`.

    Args:
        error: Error to classify.
        message: Explanation of the error; None for the text of the error.
    """
    kind = kind_of(error)
    text = " ".join((message or str(error) or type(error).__name__).split())
    text = text if len(text) <= LONGEST else text[:LONGEST] + " …"
    advice = getattr(error, "advice", ADVICE[kind])
    return {"kind": kind, "message": f"{text} {advice}"}


def explain(error: Exception, entry: Entry) -> str | None:
    """Returns the explanation of a failed request to the Hub; None for other errors."""
    if not entry.on_hub or isinstance(error, ValueError):  # they explain themselves
        return None
    endpoint = endpoint_of()
    if kind_of(error) == "name":
        where = (entry.source, entry.revision, endpoint)
        return explain_download(error, entry.filename, *where)
    return f"{entry.source}: {explain_request(error, endpoint)}"


def kind_of(error: Exception) -> str:
    """Returns the kind of failure, from the classes and attributes of the errors."""
    from huggingface_hub.errors import HFValidationError

    links = list(_chain(error))
    for link in links:
        if isinstance(link, ContactError):
            return link.kind
    room: tuple[type[BaseException], ...] = (NoRoom, *memory_errors())
    if any(isinstance(link, room) or explain_disk(link) for link in links):
        return "space"
    if any(isinstance(link, ImageError) for link in links):
        return "images"
    if any(isinstance(link, HFValidationError) for link in links):
        return "name"
    codes = [code for link in links if (code := status_of(link))]
    if codes:
        return "name" if codes[0] in ABSENT else "server"
    if any(isinstance(link, (DownloadError, *client_errors())) for link in links):
        return "server"
    return "format"


def status_of(error: BaseException) -> int | None:
    """Returns the HTTP status that a server answered, or None."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code
    refusal = http_error(error)
    answer = getattr(refusal, "response", None)  # absent if no server was reached
    return answer.status_code if answer is not None else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
