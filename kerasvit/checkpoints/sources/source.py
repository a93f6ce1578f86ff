"""`Source`: the interface of readers for one code base and architecture."""

from collections.abc import Set
from typing import Any, Protocol

from kerasvit.arguments import ArgumentError, Size

from ..config import Config, Shapes
from ..description import Description
from ..key_map import KeyMap
from ..reader import CheckpointError

MAX_STAGES = 32  # each halves the map: 32 stages need images of 2³² pixels


class Source(Protocol):
    """Interface of readers for files of one code base and architecture.

    Attributes:
        code_base: The code base, such as "timm"; a model's record calls it `origin`.
        builder: Name of the function that builds the architecture here; "" for any.
        kernel: How the code base resamples position tables, one of
            `kerasvit.layers.resampling.KERNELS`; any of them for models without tables.
    """

    code_base: str
    builder: str
    kernel: str

    def recognises(self, names: Set[str]) -> bool:
        """Returns whether files of this source have tensors with these short names."""
        ...

    def describe(self, shapes: Shapes, config: Config) -> Description:
        """Returns the description of the model in the files.

        Args:
            shapes: {short name: shape}, without the tensors that are dropped.
            config: Content of the config.json beside the file; empty if there is none.

        Raises:
            CheckpointError: Tensors are missing, or kerasvit cannot build the model.
        """
        ...

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        """Returns the map between short names and variable paths.

        Args:
            kwargs: Arguments of the builder.
            shapes: Shapes in the file, from which the source chooses between variants
                of the names; None if the map is used for writing.

        Raises:
            CheckpointError: The tensors do not fit a model with these arguments.
        """
        ...

    def check_size(self, kwargs: dict[str, Any], shapes: Shapes) -> None:
        """Raises for an image size at which the code base computes something else.

        Args:
            kwargs: Arguments of the builder, for the size that was asked for.
            shapes: Shapes in the file.

        Raises:
            CheckpointError: kerasvit computes other values than the code base there.
        """
        return

    def short_name(self, name: str) -> str:
        """Returns the name of a tensor without redundant prefixes."""
        return name

    def dropped(self, name: str, names: Set[str]) -> str | None:
        """Returns why a tensor is not loaded; None if it is loaded."""
        return None

    def module_map(self, record: dict[str, Any]) -> KeyMap | None:
        """Returns the map between whole names in memory and variable paths.

        Adapters are written with these names, of modules of a model with this head.

        Args:
            record: `ImageModel.record`.

        Returns:
            The map; None if the code base has no such model, or adapters are not
            written for it.
        """
        return None


def sized(sides: int | list[int]) -> Size:
    """Returns the size of images that tensors determine: of squares, or both sides.

    Raises:
        CheckpointError: A side is out of range.
    """
    try:
        return Size.of(sides)
    except ArgumentError as error:
        raise CheckpointError(
            f"it describes a model that kerasvit cannot build: {error}"
        ) from error


def names_of_classes(names: Any, count: int) -> Any:
    """Returns the stated names, or "imagenet1k" for 1000 unnamed classes."""
    return "imagenet1k" if names is None and count == 1000 else names


def count(shapes: Shapes, pattern: str, start: int = 0) -> int:
    """Returns how many consecutive numbers from `start` on occur in a name pattern."""
    numbers = range(start, len(shapes) + start + 1)
    return next(i for i in numbers if pattern.format(i) not in shapes) - start


def count_stages(shapes: Shapes, pattern: str, start: int = 0) -> int:
    """Returns the number of stages; the arguments are those of `count`.

    Raises:
        CheckpointError: There are more than `MAX_STAGES`.
    """
    stages = count(shapes, pattern, start)
    if stages > MAX_STAGES:
        raise CheckpointError(
            f"it has {stages} stages; models have at most {MAX_STAGES}. This is not "
            "a file of model weights."
        )
    return stages
