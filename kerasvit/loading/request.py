"""`Request`: what the caller of a variant states, and names of classes."""

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import keras
import numpy as np

from kerasvit.arguments import MAX_CHANNELS, Size, integer, patch_size
from kerasvit.layers.position_embedding import check_resampling
from kerasvit.preprocessing import Preprocessing

MAX_BYTES = 10_000_000  # size limit of a file of names in bytes


@dataclass(frozen=True)
class Request:
    """Arguments of the caller, which override those of the weights.

    Attributes:
        arguments: Arguments of the builder; `image_size` becomes a `Size`.
        preprocessing: Transform of the images, a `Preprocessing` or a dict of its
            fields. None: that of the weights.
        include_preprocessing: Whether the model normalises images itself. None: as in
            the model of the weights.
        source_grid: (height, width) in patches of the file's position table, or None.
        kernel: Kernel to resample the position table. None: as the code base of the
            weights does.
        label_names: Names of the classes. None: those of the weights.
        state: Which of several models in the file of the weights, or None.

    Raises:
        ValueError: An argument is wrong for any weights.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    preprocessing: Preprocessing | dict | None = None
    include_preprocessing: bool | None = None
    source_grid: tuple[int, int] | None = None
    kernel: str | None = None
    label_names: Any = None
    state: str | None = None

    def __post_init__(self) -> None:
        check_resampling(self.kernel, self.source_grid)
        self._check_one_normalization()
        arguments = dict(self.arguments)
        # By these, arrays are fitted.
        if "channels" in arguments:
            channels = arguments["channels"]
            arguments["channels"] = integer("channels", channels, 1, MAX_CHANNELS)
        if "patch_size" in arguments:
            patch = arguments["patch_size"]
            arguments["patch_size"] = patch_size("patch_size", patch)
        size = arguments.get("image_size")
        if size is not None:
            arguments["image_size"] = size = Size.of(size, any_size=True)
        object.__setattr__(self, "arguments", arguments)
        self.transform(size)

    def transform(
        self, image_size: Size | None, trained: Size | int = 1
    ) -> Preprocessing | None:
        """Returns the transform that the caller states, or None.

        Args:
            image_size: Image size of the model; None if it is not known yet.
            trained: Image size of the weights, for a dict without `size` if the model
                takes images of any size.

        Raises:
            ValueError: The type or a field is wrong, or the size is not the model's.
        """
        size = None if image_size is None or image_size.is_any else image_size
        stated = self.preprocessing
        if stated is None:
            return None
        if isinstance(stated, dict):
            fields = {field.name for field in dataclasses.fields(Preprocessing)}
            if not set(stated) <= fields:
                raise ValueError(
                    "`preprocessing` must be a kerasvit.Preprocessing or a dict of its "
                    f"fields, {', '.join(sorted(fields))}. Received: {stated!r:.300}."
                )
            stated_size = stated.get("size", size or trained)
            stated = Preprocessing(**{**stated, "size": stated_size})
        if not isinstance(stated, Preprocessing):
            raise ValueError(
                "`preprocessing` must be a kerasvit.Preprocessing or a dict of its "
                f"fields. Received: {stated!r:.300}."
            )
        if size and stated.size != size:
            raise ValueError(
                f"`preprocessing` makes images of {stated.size[0]} × {stated.size[1]}, "
                f"and the model takes {size[0]} × {size[1]}. Pass the same "
                "`image_size`, or a dict without `size`."
            )
        return stated

    def _check_one_normalization(self) -> None:
        """Raises a `ValueError` if arguments contradict each other."""
        include = self.include_preprocessing
        normalization = self.arguments.get("normalization")
        if include is not None and not isinstance(include, bool):
            raise ValueError(
                "`include_preprocessing` must be True, False, or None for the setting "
                f"of the weights. Received: {include!r}."
            )
        if normalization and include is False:
            raise ValueError(
                "`include_preprocessing=False` removes the normalisation from the "
                "model, and `normalization` adds one: pass only one of them."
            )
        if normalization and self.preprocessing is not None:
            raise ValueError(
                "`normalization` and `preprocessing` both state a mean and a standard "
                "deviation: pass only `preprocessing`, with include_preprocessing=True."
            )


def read_labels(label_names: Any) -> list[str] | str | None:
    """Reads class names in the order of the head.

    Args:
        label_names: List or array of str, "imagenet1k", the path of a UTF-8 text file
            with one name per line, or None.

    Raises:
        ValueError: The type is wrong, or names are empty or not unique.
    """
    if label_names is None:
        return None
    if isinstance(label_names, str) and label_names == "imagenet1k":
        return label_names
    path = isinstance(label_names, (str, os.PathLike))
    names = _lines(Path(os.path.expanduser(label_names))) if path else label_names
    if isinstance(names, np.ndarray):
        names = names.tolist()
    if (
        not isinstance(names, (list, tuple))
        or not names
        or not all(isinstance(name, str) and name.strip() for name in names)
    ):
        raise ValueError(
            "`label_names` must be a list of names, none of them empty, the path of a "
            'text file with one name a line, or "imagenet1k". Received: '
            f"{label_names!r:.200}."
        )
    broken = [name for name in names if not _is_unicode(name)]
    if broken:
        raise ValueError(
            "`label_names` must be text that UTF-8 can encode. Received: "
            f"{broken!r:.200}."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            "`label_names` must be unique, so that results of `classify` are "
            f"unambiguous. Received more than once: {twice!r:.200}."
        )
    return list(names)


def check_count(names: list[str] | str | None, classes: int) -> None:
    """Raises a `ValueError` if the number of names is not the number of classes.

    Args:
        names: Result of `read_labels`.
        classes: Number of classes of the head.
    """
    count = 1000 if names == "imagenet1k" else len(names or ())
    if names is not None and count != classes:
        raise ValueError(
            f"`label_names` must name each class of the head, {classes}. Received: "
            f"{count} names. Pass all names, or `num_classes={count}` for a fresh head "
            "of that size."
        )


def _is_unicode(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(
                f"`label_names`: {path} is too large to be a list of names."
            )
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            "`label_names` must be the path of a UTF-8 text file with one name a line, "
            f"or a list of names. {str(path)!r:.200} cannot be read: {error}."
        ) from error
    return [line.strip() for line in text.rstrip().split("\n")]


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
        size: Default of `image_size`.
        evaluation: Fields of `Preprocessing` that differ from those of timm's ViTs.
    """

    name: str | None
    builder: Builder
    arguments: dict[str, Any]
    numbers: dict[str, Any]
    defaults: dict[str, Any]
    size: Size
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
