"""Pre-activation ResNets of xxxnell/how-do-vits-work, models/preresnet.py.

Models with dropout or smoothing have the same tensors and cannot be distinguished.
"""

from dataclasses import replace
from typing import Any

from ..config import Config
from ..description import Description
from ..key_map import KeyMap
from ..shapes import Shapes
from .how_do_vits_work import AuthorsSource, conv_units, stem_and_head


class AuthorsPreActResNet(AuthorsSource):
    """Pre-activation ResNets."""

    builder = "PreActResNet"
    stem = "layer0.0.weight"

    def describe(self, shapes: Shapes, config: Config) -> Description:
        return replace(
            super().describe(shapes, config),
            assumptions=("no smoothing of the feature maps",),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        stages = range(len(kwargs["depths"]))
        rules = [
            rule
            for i in stages
            for rule in conv_units(f"layer{i + 1}.{{j}}.", f"stage_{i}_unit_{{j}}/")
        ]
        return KeyMap(*stem_and_head(self.stem), *rules)
