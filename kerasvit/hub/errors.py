"""Explanations of errors of the Hub's client and the disk, and retries of requests."""

import errno
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kerasvit.checkpoints import ADAPTERS

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

PAUSES: tuple[float, ...] = (1, 4)  # seconds before the second and the third try
T = TypeVar("T")


def client_errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Returns the exception types of failed requests of the Hub's client.

    Use the tuple in `except`; `more` is appended to it. The client raises `ValueError`
    for invalid arguments.
    """
    import httpx2

    return OSError, httpx2.HTTPError, httpx2.InvalidURL, *more


def retried(request: Callable[[], T], passes: Callable[[Exception], bool]) -> T:
    """Returns `request()`; repeats it after a pause while `passes(error)` is true."""
    for pause in PAUSES:
        try:
            return request()
        except client_errors() as error:
            if not passes(error):
                raise
        time.sleep(pause)
    return request()


def is_passing(error: Exception) -> bool:
    """Returns whether a failed request to the Hub may succeed in a moment."""
    import httpx2
    from huggingface_hub.errors import EntryNotFoundError

    if isinstance(error, EntryNotFoundError):
        return False  # the client has already waited for the Hub
    if refusal := http_error(error):
        return is_busy(refusal.response.status_code)
    # The client raises an OSError without errno for a file of a wrong length.
    wrong_length = type(error) is OSError and error.errno is None
    return wrong_length or isinstance(error, httpx2.TransportError)


def is_busy(code: int) -> bool:
    """Returns whether a server with this HTTP status may answer later."""
    return code == 429 or code >= 500


def http_error(error: BaseException) -> "HfHubHTTPError | None":
    """Returns the `HfHubHTTPError` that is the error or its cause, or None."""
    from huggingface_hub.errors import HfHubHTTPError

    chain = (error, error.__cause__)
    return next((link for link in chain if isinstance(link, HfHubHTTPError)), None)


def explain_download(
    error: Exception, name: str, repository: str, revision: str | None, endpoint: str
) -> str:
    """Returns the reason why a file of a repository is not available.

    Args:
        error: One of `client_errors`.
        name: Name of the file.
        repository, revision, endpoint: Address of the request.
    """
    from huggingface_hub import errors

    where, cause = f"{endpoint}/{repository}", error.__cause__
    by_hand = (
        f"Download {name} and config.json of {where} elsewhere into one folder, and "
        "pass its path."
    )
    # The Hub's answer does not distinguish missing and private repositories.
    absent = (
        "does not exist, or is private and the token of this call or machine may not "
        f"read it. Check the name: {where}. For a private one log in with `hf auth "
        "login`, or pass `token=`."
    )
    silent = "was not requested from the Hub: local_files_only or HF_HUB_OFFLINE."
    if cause and not isinstance(cause, errors.OfflineModeIsEnabled):
        silent = f"cannot be downloaded: {explain_request(cause, endpoint)}"
    without = "."
    if name == "model.safetensors":
        without = (
            ", nor pytorch_model.bin. Download the file of weights that it has and its "
            "config.json, and pass the path."
        )
    if name == "config.json":
        without = (
            ", which says what model it is. Download its model.safetensors and build "
            "that variant: kerasvit.ViTB16(path)."
        )
    if name == ADAPTERS:
        without = ": it holds no adapters of LoRA. Load a model with from_pretrained."
    explanations = {  # the first that fits
        errors.GatedRepoError: _consent(repository, where),
        errors.RepositoryNotFoundError: absent,
        errors.RevisionNotFoundError: f"has no revision {revision!r}.",
        errors.LocalEntryNotFoundError: f"is not in the cache, and {silent} {by_hand}",
        errors.EntryNotFoundError: f"has no {name}{without}",
    }
    for kind, meaning in explanations.items():
        if isinstance(error, kind):
            return f"{repository} {meaning}"
    refusal = http_error(error)
    if refusal and refusal.response.status_code == 401:
        return f"{repository} {absent}"
    failed = f"cannot be downloaded: {explain_request(error, endpoint)} {by_hand}"
    return f"{repository} {explain_disk(error) or failed}"


def _consent(repository: str, where: str) -> str:
    """Returns how to get a repository whose owner asks for consent, at an address."""
    text = (
        f"asks for your consent: give it at {where}, and log in with `hf auth login`."
    )
    if repository.lower().startswith("facebook/dinov3"):
        text += (
            " timm has copies that are open, such as "
            "hf://timm/vit_base_patch16_dinov3.lvd1689m: "
            'kerasvit.list_weights("DINOv3") lists them.'
        )
    return text


def explain_request(error: BaseException, endpoint: str) -> str:
    """Returns the reason why a request to a Hub failed, in sentences."""
    from huggingface_hub.errors import FileMetadataError

    if isinstance(error, FileMetadataError):
        return not_a_hub(endpoint)
    refusal = http_error(error)
    if refusal is None:
        return f"{type(error).__name__}: {first_line(error)}".rstrip(".") + "."
    code, message = refusal.response.status_code, first_line(refusal.server_message)
    if is_busy(code):
        return f"the server answers {code}. Try later."
    legal = " (withheld for legal reasons)" if code == 451 else ""
    message = f" and says: {message.rstrip('.')}" if message else ""
    other = "" if is_of_hub(refusal) else f" {not_a_hub(endpoint)}"
    return f"the server answers {code}{legal}{message}.{other}"


def is_of_hub(refusal: "HfHubHTTPError") -> bool:
    """Returns whether the server states a reason for its refusal, as a Hub does."""
    headers = refusal.response.headers
    named = "X-Error-Code" in headers or "X-Error-Message" in headers
    return named or bool(refusal.server_message)


def not_a_hub(endpoint: str) -> str:
    """Returns the explanation of an answer that does not come from a Hub."""
    return (
        f"{endpoint} answers, but not as a Hub does: it is another server, or a proxy, "
        "a firewall or a page to log in at comes between. Check `endpoint`, "
        "HF_ENDPOINT and the settings of the proxy."
    )


def explain_disk(error: BaseException) -> str | None:
    """Returns the explanation of a disk error; None for other errors."""
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "does not fit: the disk of the cache is full. Make room, or set HF_HOME."
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        path = getattr(error, "filename", None)
        return f"cannot be kept: {path} may not be written. Set HF_HOME to your folder."
    return None


def first_line(error: object) -> str:
    """Returns the first line of an error's text, without passwords; "" for None."""
    return without_credentials(str(error or "").strip().split("\n")[0])


def without_credentials(text: str) -> str:
    """Returns a text without the users and passwords in its addresses."""
    return re.sub(r"(://|^\W?)[^\s/]*@", r"\1", text)
