"""`Source`: the tensor names of a code base and one of its architectures."""

from collections.abc import Set
from typing import Any, Protocol

from ..config import Config
from ..description import Description
from ..key_map import KeyMap
from ..shapes import Shapes


class Source(Protocol):
    """Reads the files of a code base that are of one architecture.

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
        """Returns what the files say of the model.

        Args:
            shapes: {short name: shape}, without the tensors that are dropped.
            config: Content of the config.json beside the file; empty without one.

        Raises:
            CheckpointError: Tensors are missing, or the model cannot be built here.
        """
        ...

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        """Returns the map between short names and variable paths.

        Args:
            kwargs: Arguments of the builder.
            shapes: Those of the file, where it may be spelled in several ways; None:
                the map is for writing.

        Raises:
            CheckpointError: The tensors are not of a model with these arguments.
        """
        ...

    def short_name(self, name: str) -> str:
        """Returns the name of a tensor without prefixes that tell nothing."""
        return name

    def dropped(self, name: str, names: Set[str]) -> str | None:
        """Returns why the tensor of a short name is not loaded; None: it is."""
        return None


def names_of_classes(names: Any, count: int) -> Any:
    """Returns names that a file states; for 1000 unnamed classes ImageNet's."""
    return "imagenet1k" if names is None and count == 1000 else names
