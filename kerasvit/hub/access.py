"""Checks the arguments that say how to access the Hub."""

import os
import re

from kerasvit.arguments import ArgumentError


def check_access(**arguments):
    """Raises for a Hub argument of a wrong type; None is always valid.

    Args:
        arguments: By the names that `from_pretrained` and `push_to_hub` give them.

    Raises:
        ArgumentError: One is wrong. A token is not shown, nor a password in an address.
    """
    for name, value in arguments.items():
        fits, meant = _KINDS[name]
        if value is not None and not fits(value):
            shown = _SHOWN.get(name, repr)(value)
            raise ArgumentError(f"`{name}` must be {meant}. Received: {shown}.", name)


def endpoint_of(endpoint=None) -> str:
    """Returns the address of the Hub, without a trailing slash.

    Args:
        endpoint: The argument, checked; None: that of the client, from HF_ENDPOINT.

    Raises:
        ValueError: HF_ENDPOINT is no address, or holds a password.
    """
    from huggingface_hub import HfApi

    address = HfApi(endpoint=endpoint).endpoint
    if not _is_address(address):
        raise ValueError(
            f"HF_ENDPOINT of the environment must be {_ADDRESS}. Received: "
            f"{_without_password(address)}."
        )
    return address.rstrip("/")


def _is_flag(value):
    return isinstance(value, bool)


def _is_text(value):
    return isinstance(value, str)


def _is_path(value):
    return isinstance(value, (str, os.PathLike)) and value != ""


def _is_revision(value):
    return _is_text(value) and re.fullmatch(r"\S+", value)


def _is_token(value):
    # The client's own error for what cannot be sent would hold it. And it takes what is
    # of another kind for none given, and the machine's own login instead.
    return _is_flag(value) or (_is_text(value) and re.fullmatch(r"[!-~]+", value))


def _is_address(value):
    # The client writes the whole address into its log.
    return _is_text(value) and re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", value)


def _without_password(address):
    if not _is_text(address):
        return repr(address)
    return repr(re.sub(r"(?s)^.*@|[?#].*$", "", address))


def _size(token):
    return f"{len(token)} characters" if _is_text(token) else type(token).__name__


_ADDRESS = (
    'an address, such as "https://huggingface.co", without a user, a password or a '
    "query: a Hub is told who asks by `token=`"
)
_SHOWN = {"token": _size, "endpoint": _without_password}
_KINDS = {
    "revision": (_is_revision, "the name of a branch, tag or commit"),
    "token": (
        _is_token,
        "a text, one word without spaces and line breaks (.strip() what a file holds), "
        "or False for none",
    ),
    "cache_dir": (_is_path, "a path"),
    "endpoint": (_is_address, _ADDRESS),
    "local_files_only": (_is_flag, "True or False"),
    "private": (_is_flag, "True or False, or None for what the user's settings say"),
    "create_pr": (_is_flag, "True or False"),
    "commit_message": (_is_text, "a text"),
}
