"""`Variant`: what this room uses of `kerasvit.models.Variant`."""

from collections.abc import Callable
from typing import Any, Protocol


class Variant(Protocol):
    """A named model; `kerasvit.models.Variant`, which imports this room, is one.

    Attributes:
        name: As it is exported; None for a model that is not in the zoo.
        builder: Function of keyword arguments that returns an `ImageModel`.
        numbers: Arguments of the builder that make this variant.
        defaults: Other arguments of the builder, with their default values.
        evaluation: Fields of `Preprocessing` that differ from those of timm's ViTs.
    """

    name: str | None
    builder: Callable
    numbers: dict[str, Any]
    defaults: dict[str, Any]
    evaluation: dict[str, Any]

    @property
    def label(self) -> str:
        """Name for messages."""
        ...

    @property
    def required(self) -> set[str]:
        """Arguments of the builder that have no value here."""
        ...

    def check_names(self, changes: dict[str, Any], before: str = "") -> None:
        """Raises a `ValueError` for arguments that the builder does not have."""
        ...

    def mismatch(self, values: dict[str, Any], changes: dict[str, Any]) -> str | None:
        """Returns how the numbers of a file differ from this variant's, or None."""
        ...
