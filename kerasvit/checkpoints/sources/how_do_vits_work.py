"""Base class of the sources for files of xxxnell/how-do-vits-work.

Tensor names as models/preresnet_dnn_block.py and models/classifier_block.py write them.
The authors' `.pth.tar` files are pickles, which kerasvit does not read. It reads their
dictionary `state_dict` saved with `safetensors.torch.save_file`.
"""

import re
from collections.abc import Set
from typing import Protocol

from ..config import Config
from ..description import Description
from ..key_map import CONVOLUTION, torch_batch_norm, torch_dense
from ..reader import CheckpointError
from ..shapes import Shapes
from .source import Source, names_of_classes

_UNIT = {"layer1.0.bn.weight", "layer1.0.conv1.weight", "classifier.0.bn.weight"}
_PLACE = re.compile(r"layer([1-9][0-9]?)\.(0|[1-9][0-9]{0,3})\.")  # stage, unit


class AuthorsSource(Source, Protocol):
    """Base class for the code base of "How Do Vision Transformers Work?".

    No tensor depends on the image size, so `kernel` is not used.

    Attributes:
        stem: Tensor name of the stem's kernel.
    """

    code_base: str = "how_do_vits_work"
    kernel: str = "bicubic_antialias"
    stem: str

    def recognises(self, names: Set[str]) -> bool:
        return self.stem in names and names >= _UNIT

    def describe(self, shapes: Shapes, config: Config) -> Description:
        kernel, units = shapes.of(self.stem, 4), stages(shapes)
        classes = shapes.side("classifier.0.dense.weight", 0, 2, default=0)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "depths": [len(stage) for stage in units],
                "bottleneck": "layer1.0.conv3.2.weight" in shapes,
                "stem": "imagenet" if kernel[-1] == 7 else "cifar",
            },
            arguments={
                "num_classes": classes,
                "widths": [
                    shapes.of(f"{first}conv1.weight", 4)[0] for first, *_ in units
                ],
                "stem_width": kernel[0],
            },
            kernel=self.kernel,
            label_names=names_of_classes(None, classes),
        )

    def short_name(self, name: str) -> str:
        """Returns the name without the prefix of `DataParallel`."""
        return name.removeprefix("module.")

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.endswith(".num_batches_tracked"):
            return "number of batches seen, which a fixed momentum does not use"
        return None


def stages(shapes: Shapes) -> list[list[str]]:
    """Returns the name prefixes of each stage's units, such as "layer1.0.".

    Raises:
        CheckpointError: A stage has no tensors.
    """
    matches = (_PLACE.match(name) for name in shapes)
    units = sorted({(int(match[1]), int(match[2])) for match in matches if match})
    last = max((stage for stage, _ in units), default=1)
    stages = [
        [f"layer{i}.{j}." for stage, j in units if stage == i]
        for i in range(1, last + 1)
    ]
    if [] in stages:
        raise CheckpointError(
            "it is not a complete model: the tensors of the stage "
            f"layer{stages.index([]) + 1} are missing. Use the complete file."
        )
    return stages


def stem_and_head(stem: str) -> tuple[tuple, ...]:
    """Returns the rules of the stem, the last normalisation and the head."""
    return (
        (stem, "stem/kernel", CONVOLUTION),
        *torch_batch_norm("classifier.0.bn", "final_norm"),
        *torch_dense("classifier.0.dense", "head"),
    )


def conv_units(name: str, ours: str) -> tuple[tuple, ...]:
    """Returns the rules of a stage's convolutional units."""
    return (
        *torch_batch_norm(name + "bn", ours + "norm_0"),
        (name + "conv1.weight", ours + "conv_0/kernel", CONVOLUTION),
        *torch_batch_norm(name + "conv2.0", ours + "norm_1"),
        (name + "conv2.2.weight", ours + "conv_1/kernel", CONVOLUTION),
        *torch_batch_norm(name + "conv3.0", ours + "norm_2"),
        (name + "conv3.2.weight", ours + "conv_2/kernel", CONVOLUTION),
        (name + "shortcut.0.weight", ours + "projection/kernel", CONVOLUTION),
    )
