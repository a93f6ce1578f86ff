"""Checks of the fields of `Preprocessing`."""

from typing import Any

from kerasvit.arguments import ArgumentError

# Pillow's filters in the order of its numbers, which transformers' files contain.
KERNELS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


def json_object(name: str, config: Any) -> dict[str, Any]:
    """Checks that a configuration is a dict, and returns it.

    Raises:
        ArgumentError: `config` is not a dict.
    """
    if not isinstance(config, dict):
        raise ArgumentError(f"{name} must be a dict. Received: {config!r:.100}.", name)
    return config
