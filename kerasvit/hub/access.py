"""Checks of the arguments that configure access to the Hub."""

import os
import re
from typing import TypeGuard

from kerasvit.arguments import ArgumentError, one_of

_ADDRESS = (
    r"https?://[^\s/@?#]+(/[^\s@?#]*)?",
    'an address, such as "https://huggingface.co", without a user, a password or a '
    "query; pass credentials with `token=`",
)
# {name: (pattern of the text, its description)}. The checks keep secrets out of logs:
# the client's error for an invalid token contains the token, and its log contains the
# endpoint.
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
        arguments: Values by the argument names of `from_pretrained` and `push_to_hub`.

    Raises:
        ArgumentError: An argument is wrong. The message contains neither the token nor
            a password in an address.
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


def on_hub(weights: object) -> TypeGuard[str]:
    """Returns whether weights are those of an address "hf://…"."""
    return isinstance(weights, str) and weights.startswith("hf://")


def check_for_hub(weights: object, access: dict[str, object]) -> None:
    """Checks arguments of the Hub, which cannot be passed together with a path.

    Raises:
        ValueError: An argument is wrong, or `weights` is not an address "hf://…".
    """
    check_access(**access)
    given = [name for name, value in access.items() if value not in (None, False)]
    if given and not on_hub(weights):
        raise ValueError(
            f"{', '.join(given)} can be given for the Hugging Face Hub only, with "
            f'"hf://user/repository". Received: {str(weights)!r:.200}.'
        )


def endpoint_of(endpoint: str | None = None) -> str:
    """Returns the address of the Hub, without a trailing slash.

    Args:
        endpoint: Checked argument; None for the client's default, from HF_ENDPOINT.

    Raises:
        ValueError: HF_ENDPOINT is not an address, or contains a password.
    """
    from huggingface_hub import HfApi

    address = HfApi(endpoint=endpoint).endpoint
    if not _fits("endpoint", address):
        raise ValueError(
            f"The environment variable HF_ENDPOINT must be {_ADDRESS[1]}. Received: "
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
    """Returns the text that a message shows for a value."""
    if name == "token":
        kind = type(value).__name__
        return f"{len(value)} characters" if isinstance(value, str) else kind
    if name == "endpoint" and isinstance(value, str):
        return repr(re.sub(r"(?s)^.*@|[?#].*$", "", value))
    return repr(value)
