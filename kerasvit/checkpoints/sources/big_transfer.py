"""Google's BiT `.npz` files: google-research/big_transfer.

Tensor names as bit_pytorch/models.py reads them. The numbers of stages and units start
at 1, and those of units have two digits. Some files also number the convolutions, as
TensorFlow named them.
"""

import re
from collections.abc import Set
from typing import Any

from ..config import Config, Shapes
from ..description import Description
from ..key_map import FLAX_POINTWISE, KeyMap
from .source import Source, count, count_stages, names_of_classes

_ROOT = "resnet/root_block/standardized_conv2d/kernel"
_UNIT = "resnet/block{}/unit{:02d}/"


class BigTransferFile(Source):
    """BiTs. No tensor depends on the image size, so `kernel` is not used."""

    code_base = "big_transfer"
    builder = "BigTransfer"
    kernel = "bilinear"

    def recognises(self, names: Set[str]) -> bool:
        return _ROOT in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        depths, root = _depths(shapes), shapes.of(_ROOT, 4)[-1]
        kernel = _UNIT + "c/standardized_conv2d/kernel"
        widths = [shapes.of(kernel.format(i + 1, 1), 4)[-1] for i in range(len(depths))]
        classes = shapes.side("resnet/head/conv2d/kernel", -1, 4, default=0)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={"depths": depths, "width_factor": root / 64},
            arguments={
                "channels": shapes.of(_ROOT, 4)[2],
                "num_classes": classes,
                "stage_widths": unless_standard(widths, root),
                "conv_epsilon": 1e-10,
                "epsilon": 1e-5,
            },
            kernel=self.kernel,
            label_names=names_of_classes(None, classes),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        head, conv = "resnet/head/conv2d/", "standardized_conv2d/kernel"
        rules = [(_ROOT, "root_conv/kernel")]
        for i, depth in enumerate(kwargs["depths"]):
            for j in range(depth):
                unit, ours = _UNIT.format(i + 1, j + 1), f"stage_{i}_unit_{j}/"
                rules.append((f"{unit}a/proj/{conv}", f"{ours}projection/kernel"))
                for k, part in enumerate("abc"):
                    rules.append((f"{unit}{part}/{conv}", f"{ours}conv_{k}/kernel"))
                    rules += _norm(f"{unit}{part}/group_norm", f"{ours}norm_{k}")
        return KeyMap(
            *rules,
            *_norm("resnet/group_norm", "final_norm"),
            (head + "kernel", "head/kernel", FLAX_POINTWISE),
            (head + "bias", "head/bias"),
        )

    def short_name(self, name: str) -> str:
        # Some files number the convolutions.
        return re.sub(r"/standardized_conv2d_\d+/", "/standardized_conv2d/", name)


def unless_standard(widths: list[int], root: int) -> list[int] | None:
    """Returns the stages' output channels; None if they follow from the root's."""
    standard = [4 * root * 2**i for i in range(len(widths))]
    return None if widths == standard else widths


def _depths(shapes: Shapes) -> list[int]:
    """Returns the number of units of each stage."""
    norm = "a/group_norm/gamma"
    stages = count_stages(shapes, "resnet/block{}/unit01/" + norm, start=1)
    return [
        count(shapes, f"resnet/block{i + 1}/unit{{:02d}}/{norm}", start=1)
        for i in range(stages)
    ]


def _norm(name: str, path: str) -> list[tuple[str, str]]:
    """Returns the rules of a normalisation layer."""
    return [(f"{name}/{part}", f"{path}/{part}") for part in ("gamma", "beta")]
