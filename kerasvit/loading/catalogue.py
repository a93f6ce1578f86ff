"""Weights of the catalogue: their names, and what can be checked without the file."""

import logging

from kerasvit.checkpoints import CheckpointError
from kerasvit.hub.manifest import Entry, published

from .find import GivenWeights
from .labels import check_count
from .limits import check_arguments
from .request import Request
from .variant import Variant

log = logging.getLogger("kerasvit")


def catalogue_entry(weights: GivenWeights, variant: Variant) -> Entry | None:
    """Returns the catalogue entry that `weights` is or names, or None.

    Raises:
        CheckpointError: It is of another variant.
    """
    entry = weights if isinstance(weights, Entry) else None
    if isinstance(weights, str):
        entry = published(variant.name).get(weights)
    if entry and entry.model != variant.name:
        raise CheckpointError(
            f"{entry.tag!r} of {entry.model} are no weights of {variant.label}. Build "
            f"kerasvit.{entry.model} with them; kerasvit.list_weights("
            f"{variant.label!r}) shows those of {variant.label}."
        )
    return entry


def check_entry(entry: Entry, variant: Variant, request: Request) -> None:
    """Raises a `ValueError` before the download where the weights cannot fit."""
    check_arguments(variant, request.arguments)
    name, classes = f"{entry.model} {entry.tag!r}", entry.classes
    wanted = {"num_classes": classes, **variant.numbers, **request.arguments}
    check_count(request.label_names, wanted["num_classes"])
    if entry.experimental:
        log.warning("%s is experimental: %s.", name, entry.experimental)
    if entry.head == "zeroed" and wanted["num_classes"] == classes:
        raise no_classifier(name, classes)


def no_classifier(name: str, classes: int) -> CheckpointError:
    """Returns the error for weights whose head holds zeros."""
    return CheckpointError(
        f"{name} has no classifier: its head of {classes} classes holds zeros alone. "
        "Pass `num_classes`: your own number for a fresh head, or 0 for features."
    )
