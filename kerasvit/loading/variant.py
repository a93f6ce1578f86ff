"""Interfaces of the variants and builders in `kerasvit.models`."""

from collections.abc import Sequence
from typing import Any, Protocol

import keras


class Builder(Protocol):
    """A function with the decorator of `kerasvit.models.builder`."""

    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> keras.Model:
        """Builds an `ImageModel`."""
        ...

    def check(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Returns the checked arguments, with defaults, and builds nothing."""
        ...


class VariantLike(Protocol):
    """Interface of `kerasvit.models.Variant`, which imports this room.

    Attributes:
        name: Exported name; None for a model that is not exported.
        builder: Function of keyword arguments that returns an `ImageModel`.
        arguments: Arguments of the builder that define this variant.
        numbers: Those of `arguments` that have no default in the builder.
        defaults: Other arguments of the builder, with their default values.
        evaluation: Fields of `Preprocessing` that differ from those of timm's ViTs.
    """

    name: str | None
    builder: Builder
    arguments: dict[str, Any]
    numbers: dict[str, Any]
    defaults: dict[str, Any]
    evaluation: dict[str, Any]

    @property
    def label(self) -> str:
        """Name of the variant for messages."""
        ...

    @property
    def required(self) -> set[str]:
        """Arguments of the builder that have no default."""
        ...

    @property
    def siblings(self) -> Sequence["VariantLike"]:
        """Exported variants with the same builder."""
        ...

    def check_names(self, changes: dict[str, Any], before: str = "") -> None:
        """Raises a `ValueError` for arguments that the builder does not have."""
        ...
