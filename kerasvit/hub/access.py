"""Checks the arguments that say how to access the Hub."""

import os
import re

from kerasvit.arguments import ArgumentError, one_of

_ADDRESS = (
    r"https?://[^\s/@?#]+(/[^\s@?#]*)?",
    'an address, such as "https://huggingface.co", without a user, a password or a '
    "query: a Hub is told who asks by `token=`",
)
# Name → what the text must match, and that in words. The client's own error for a token
# that cannot be sent would hold it, and the client writes the endpoint into its log.
_TEXTS = {
    "revision": (r"\S+", "the name of a branch, tag or commit"),
    "token": (
        r"[!-~]+",
        "a text, one word without spaces and line breaks (.strip() what a file holds), "
        "or False for none",
    ),
    "cache_dir": (r"(?s).+", "a path"),
    "endpoint": _ADDRESS,
    "commit_message": (r"(?s).*", "a text"),
}


def check_access(**arguments: object) -> None:
    """Raises for a Hub argument of a wrong type; None is always valid.

    Args:
        arguments: By the names that `from_pretrained` and `push_to_hub` give them.

    Raises:
        ArgumentError: One is wrong. A token is not shown, nor a password in an address.
    """
    for name, value in arguments.items():
        if value is None:
            continue
        if name not in _TEXTS:
            one_of(name, value, (True, False))
        elif not _fits(name, value):
            meant = _TEXTS[name][1]
            shown = _shown(name, value)
            raise ArgumentError(f"`{name}` must be {meant}. Received: {shown}.", name)


def endpoint_of(endpoint: str | None = None) -> str:
    """Returns the address of the Hub, without a trailing slash.

    Args:
        endpoint: The argument, checked; None: that of the client, from HF_ENDPOINT.

    Raises:
        ValueError: HF_ENDPOINT is no address, or holds a password.
    """
    from huggingface_hub import HfApi

    address = HfApi(endpoint=endpoint).endpoint
    if not _fits("endpoint", address):
        raise ValueError(
            f"HF_ENDPOINT of the environment must be {_ADDRESS[1]}. Received: "
            f"{_shown('endpoint', address)}."
        )
    return address.rstrip("/")


def _fits(name: str, value: object) -> bool:
    if name == "token" and isinstance(value, bool):
        return True
    if name == "cache_dir" and isinstance(value, os.PathLike):
        return True
    return isinstance(value, str) and bool(re.fullmatch(_TEXTS[name][0], value))


def _shown(name: str, value: object) -> str:
    """Returns what a message may show of a value."""
    if name == "token":
        kind = type(value).__name__
        return f"{len(value)} characters" if isinstance(value, str) else kind
    if name == "endpoint" and isinstance(value, str):
        return repr(re.sub(r"(?s)^.*@|[?#].*$", "", value))
    return repr(value)
