"""kerasvit's own format with variable paths, for models that timm cannot express."""

from collections.abc import Set
from typing import Any

from ..config import Config, Shapes
from ..description import Description
from ..key_map import KeyMap
from .source import Source


class VariablePaths(Source):
    """Tensors with the variable paths of the model as names.

    The tensors do not determine the model. `SavedFolder` describes it from the
    config.json of `save_pretrained`.
    """

    code_base = "kerasvit"
    builder = ""
    kernel = "bicubic_antialias"

    def recognises(self, names: Set[str]) -> bool:
        return False

    def describe(self, shapes: Shapes, config: Config) -> Description:
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={},
            arguments={},
            kernel=self.kernel,
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return KeyMap(("{path}", "{path}"))
