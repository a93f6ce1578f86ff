"""AlterNets, pre-activation ResNets and ResNeXts of xxxnell/how-do-vits-work.

Tensor names as models/preresnet_dnn_block.py, models/resnet_dnn_block.py and
models/classifier_block.py write them, in the dictionary `state_dict` of the authors'
`.pth.tar` files.
"""

import re
from collections.abc import Set
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ..config import Config, Shapes
from ..description import Description
from ..key_map import (
    CONVOLUTION,
    TORCH_POINTWISE,
    KeyMap,
    Transform,
    torch_batch_norm,
    torch_dense,
)
from ..reader import CheckpointError
from .source import Source, names_of_classes

_UNIT = {"layer1.0.bn.weight", "layer1.0.conv1.weight", "classifier.0.bn.weight"}
_PLACE = re.compile(r"layer([1-9][0-9]?)\.(0|[1-9][0-9]{0,3})\.")  # stage, unit
_TABLE = "attn.pos_embedding"
_QUERY = re.compile(r"layer([1-9][0-9]?)\.[0-9]+\.attn\.attn\.to_q\.weight")

# One 1 × 1 convolution computes keys and values: kernel (2 · inner, in, 1, 1).
_KEY_VALUE = Transform(
    lambda a: [part[:, :, 0, 0].T for part in np.split(a, 2)],
    lambda arrays: np.concatenate([a.T for a in arrays])[:, :, None, None],
)


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
                "channels": kernel[1],
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


class AuthorsAlterNet(AuthorsSource):
    """AlterNets. The tensors only determine `num_heads` × `head_width`."""

    builder = "AlterNet"
    stem = "layer0.layer0.0.weight"

    def describe(self, shapes: Shapes, config: Config) -> Description:
        resnet = super().describe(shapes, config)
        attending = [
            sum(unit + _TABLE in shapes for unit in units) for units in stages(shapes)
        ]
        arguments, tables = resnet.arguments, [n for n in shapes if n.endswith(_TABLE)]
        if tables:
            window_size = (shapes.of(tables[0], 2)[0] + 1) // 2
            arguments = {**arguments, "window_size": window_size}
        return replace(
            resnet,
            numbers={**resnet.numbers, "attention_depths": attending},
            arguments=arguments,
            open_arguments=("num_heads", "head_width") if tables else (),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        _check_heads(kwargs, shapes or Shapes())
        rules: list[tuple] = []
        for i in range(len(kwargs["depths"])):
            name, ours = f"layer{i + 1}.{{j}}.", f"stage_{i}_unit_{{j}}/"
            rules += conv_units(name, ours)
            rules += _attention_units(name, ours)
        return KeyMap(*stem_and_head(self.stem), *rules)


def _check_heads(kwargs: dict[str, Any], shapes: Shapes) -> None:
    """Raises if the tensors do not fit the number of heads times their width."""
    heads_of_stages = kwargs["num_heads"]
    for name in shapes:
        match = _QUERY.fullmatch(name)
        if not match or int(match[1]) > len(heads_of_stages):
            continue
        heads, rows = heads_of_stages[int(match[1]) - 1], shapes.of(name, 4)[0]
        if rows != heads * kwargs["head_width"]:
            raise CheckpointError(
                f"{name} has {rows} rows, which are not {heads} heads of "
                f"{kwargs['head_width']}. The tensors only determine the product: give "
                "`num_heads`, a list with one number per stage, and `head_width`."
            )


def _attention_units(name: str, ours: str) -> tuple[tuple, ...]:
    """Returns the rules of a stage's attention units."""
    inside, projection = name + "attn.attn.", ours + "attention/output/"
    return (
        *torch_batch_norm(name + "norm1", ours + "conv_norm"),
        (name + "conv.weight", ours + "conv/kernel", CONVOLUTION),
        *torch_batch_norm(name + "norm2", ours + "attention_norm"),
        (name + _TABLE, ours + "attention/position_bias"),
        (inside + "to_q.weight", ours + "attention/query/kernel", TORCH_POINTWISE),
        (
            inside + "to_kv.weight",
            (ours + "attention/key/kernel", ours + "attention/value/kernel"),
            _KEY_VALUE,
        ),
        (inside + "to_out.0.weight", projection + "kernel", TORCH_POINTWISE),
        (inside + "to_out.0.bias", projection + "bias"),
    )


class AuthorsPreActResNet(AuthorsSource):
    """Pre-activation ResNets of models/preresnet.py.

    Models with dropout or smoothing have the same tensors and cannot be distinguished.
    """

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


class AuthorsResNeXt(AuthorsSource):
    """ResNeXts of models/resnext.py, and models/resnet.py's ResNets of bottlenecks.

    Models with dropout or smoothing have the same tensors and cannot be distinguished.
    """

    builder = "ResNeXt"
    stem = "layer0.0.weight"

    def recognises(self, names: Set[str]) -> bool:
        return names >= {self.stem, "layer0.1.running_mean", "layer1.0.conv3.0.weight"}

    def describe(self, shapes: Shapes, config: Config) -> Description:
        kernel = shapes.of(self.stem, 4)
        inside, group_width, *_ = shapes.of("layer1.0.conv2.0.weight", 4)
        classes = shapes.side("classifier.0.dense.weight", 0, 2, default=0)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "depths": [len(stage) for stage in stages(shapes)],
                "groups": inside // group_width,
                "group_width": group_width,
                "stem": "imagenet" if kernel[-1] == 7 else "cifar",
            },
            arguments={
                "channels": kernel[1],
                "num_classes": classes,
                "width": shapes.of("layer1.0.conv3.0.weight", 4)[0],
                "stem_width": kernel[0],
            },
            kernel=self.kernel,
            label_names=names_of_classes(None, classes),
            assumptions=("no smoothing of the feature maps",),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        rules: list[tuple] = []
        for i in range(len(kwargs["depths"])):
            unit, ours = f"layer{i + 1}.{{j}}.", f"stage_{i}_unit_{{j}}/"
            for k in range(3):
                rules += _conv_and_norm(
                    f"{unit}conv{k + 1}", f"{ours}conv_{k}", f"{ours}norm_{k}"
                )
            rules += _conv_and_norm(
                unit + "shortcut", ours + "projection", ours + "projection_norm"
            )
        return KeyMap(
            *_conv_and_norm("layer0", "stem", "stem_norm"),
            *rules,
            *torch_dense("classifier.0.dense", "head"),
        )


def _conv_and_norm(name: str, conv: str, norm: str) -> tuple[tuple, ...]:
    """Returns the rules of a convolution and the normalisation after it."""
    kernel = (name + ".0.weight", conv + "/kernel", CONVOLUTION)
    return (kernel, *torch_batch_norm(name + ".1", norm))
