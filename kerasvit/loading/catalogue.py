"""Checks of catalogue weights that do not need the file."""

import logging
from typing import Any

from kerasvit.checkpoints import CheckpointError
from kerasvit.hub.manifest import Entry, published

from .find import GivenWeights, entry_named
from .labels import check_count
from .request import Request
from .variant import VariantLike

log = logging.getLogger("kerasvit")


def catalogue_entry(weights: GivenWeights, variant: VariantLike) -> Entry | None:
    """Returns the catalogue entry for `weights`, an `Entry` or a tag; or None.

    Raises:
        CheckpointError: The entry belongs to another variant.
    """
    entry = weights if isinstance(weights, Entry) else None
    if isinstance(weights, str):
        entry = published(variant.name).get(weights) or entry_named(weights)
    if entry and entry.model != variant.name:
        raise CheckpointError(
            f"The weights {entry.tag!r} belong to {entry.model}, not to "
            f"{variant.label}. Build kerasvit.{entry.model} with them; "
            f"kerasvit.list_weights({variant.label!r}) lists those of {variant.label}."
        )
    return entry


def check_entry(entry: Entry, variant: VariantLike, request: Request) -> None:
    """Raises a `ValueError` before the download if the weights cannot fit."""
    _check_arguments(variant, request.arguments)
    name, classes = f"{entry.model} {entry.tag!r}", entry.classes
    arguments = {"num_classes": classes, **variant.numbers, **request.arguments}
    check_count(request.label_names, arguments["num_classes"])
    if entry.experimental:
        log.warning("%s is experimental: %s.", name, entry.experimental)
    if entry.head == "zeroed" and arguments["num_classes"] == classes:
        raise ZeroedHead(name, classes)


def _check_arguments(variant: VariantLike, explicit: dict[str, Any]) -> None:
    """Checks the caller's arguments, except those whose check depends on the file.

    These are the class token, and windows and the image size if only one is stated.
    """
    later, fitted = {"class_token"}, {"window_size", "image_size"}
    if "window_size" in variant.defaults and not fitted <= explicit.keys():
        later |= fitted
    checked = {key: value for key, value in explicit.items() if key not in later}
    variant.builder.check(**{**variant.defaults, **variant.numbers, **checked})


class ZeroedHead(CheckpointError):
    """Error for weights whose head contains only zeros."""

    def __init__(self, name: str, classes: int) -> None:
        super().__init__(
            f"{name} has no classifier: its head of {classes} classes holds only "
            "zeros. Pass `num_classes`: your number for a fresh head, or 0 for "
            "features."
        )
