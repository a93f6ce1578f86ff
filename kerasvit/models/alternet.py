"""AlterNet and the pre-activation ResNet that it extends.

Park and Kim 2022, "How Do Vision Transformers Work?", arXiv 2202.06709, which puts
attention in place of every second convolutional unit at the end of a stage; He et al.
2016, arXiv 1603.05027. Numerics follow xxxnell/how-do-vits-work models/alternet.py and
models/preresnet.py. Fresh weights are drawn as PyTorch draws them; the head is zero.
"""

from collections.abc import Sequence
from typing import Any

import keras

from kerasvit.arguments import ArgumentError, one_of
from kerasvit.layers import (
    AttentionUnit,
    BatchNormalization,
    Conv,
    LocalAttention,
    MaxPool,
    PreactUnit,
)
from kerasvit.preprocessing.defaults import CIFAR100, IMAGENET
from kerasvit.types import Tensor

from .builder import builder
from .checks import integer, integers, known_size
from .encoder import drop_rates
from .image_model import ImageModel, head, image_input
from .variant import rows_of

STEMS = {"imagenet": 4, "cifar": 1}  # stride of each stem


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks what both builders have; returns all arguments as plain JSON."""
    one_of("stem", kwargs["stem"], tuple(STEMS))
    checked = {**kwargs}
    checked["widths"] = integers("widths", kwargs["widths"], len(kwargs["depths"]), 1)
    return checked


def _checked_with_attention(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks the arguments of `AlterNet`; returns all as plain JSON."""
    checked, depths = _checked(kwargs), kwargs["depths"]
    for key, low in (("attention_depths", 0), ("num_heads", 1)):
        checked[key] = integers(key, kwargs[key], len(depths), low)
    checked["window_size"] = integer("window_size", kwargs["window_size"], 1)
    attending = checked["attention_depths"]
    if any(2 * m > n for m, n in zip(attending, depths, strict=True)):
        raise ArgumentError(
            "`attention_depths` must be at most half of `depths` in each stage. "
            f"Received: attention_depths={attending}, depths={depths}.",
            "attention_depths",
            "depths",
        )
    _check_windows(checked)
    return checked


def _check_windows(checked: dict[str, Any]) -> None:
    """Raises a `ValueError` with the nearest size if windows do not fill a map."""
    image_size = known_size(checked["image_size"], "windows must fill the maps")
    window = checked["window_size"]
    attention, first = checked["attention_depths"], STEMS[checked["stem"]]
    strides = [first * 2**i for i, m in enumerate(attention) if m]
    for stride in strides:
        grid = [-(-side // stride) for side in image_size]  # padded where it is odd
        if any(side % window for side in grid):
            step = strides[-1] * window
            near = [max(1, round(side / step)) * step for side in image_size]
            raise ArgumentError(
                f"Windows of {window} × {window} do not cover a map of {grid[0]} × "
                f"{grid[1]}, which `image_size` {image_size[0]} × {image_size[1]} "
                f"leads to. Multiples of {step} fit; the nearest is {near[0]} × "
                f"{near[1]}. Or choose another `window_size`.",
                *("image_size", "window_size"),
            )


@builder(_checked_with_attention)
def AlterNet(
    *,
    depths: list[int],
    attention_depths: list[int],
    bottleneck: bool,
    stem: str,
    image_size: int | tuple[int, int] = 224,
    channels: int = 3,
    num_classes: int = 1000,
    widths: Sequence[int] = (64, 128, 256, 512),
    stem_width: int = 64,
    num_heads: Sequence[int] = (3, 6, 12, 24),
    head_width: int = 64,
    window_size: int = 7,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "alternet",
) -> ImageModel:
    """Builds an AlterNet: (batch, H, W, C) → (batch, num_classes) logits.

    Args:
        depths: Units of each stage; each stage but the first halves the map.
        attention_depths: Units with attention of each stage, m of n: n - 2 m
            convolutional units come first, then the two kinds alternate.
        bottleneck: True: a unit has one 3 × 3 convolution, on a quarter of the output
            channels. False: it has two, on all channels.
        stem: "imagenet": 7 × 7 with stride 2, then max-pooling. "cifar": 3 × 3.
        image_size: Height and width in pixels, an int for a square. Windows must fill
            the map of each stage with attention.
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        widths: Channels inside the units of each stage; a bottleneck has four times as
            many output channels.
        stem_width: Channels of the stem.
        num_heads: Attention heads in each stage.
        head_width: Size of a head.
        window_size: Edge of an attention window, in pixels of the map.
        stochastic_depth: Probability of dropping the residual branch of the last unit,
            in [0, 1). It grows linearly from 0 in the first unit.
        normalization: {"mean": numbers, "std": numbers} of pixels in [0, 1], one for
            each channel: the model takes pixels in [0, 255] and normalises them. None:
            it does not.
        dtype: Dtype policy, such as "mixed_bfloat16"; None: Keras's global policy.
        name: Name of the model.

    Raises:
        ValueError: An argument is out of range, or windows do not fill a map.
    """
    image, x = image_input(image_size, normalization, channels)
    x = _stem(x, stem, stem_width)
    rates = iter(drop_rates(stochastic_depth, sum(depths)))
    for i, depth in enumerate(depths):
        for j in range(depth):
            shared = {"stochastic_depth": next(rates), "name": f"stage_{i}_unit_{j}"}
            # Every second one of the last 2 m attends.
            if j >= depth - 2 * attention_depths[i] and (depth - j) % 2 == 1:
                attention = LocalAttention(
                    x.shape[-1],
                    num_heads=num_heads[i],
                    window_size=window_size,
                    head_width=head_width,
                    name="attention",
                )
                x = AttentionUnit(
                    _norm("conv_norm"),
                    Conv(widths[i], 1, name="conv"),
                    _norm("attention_norm"),
                    attention,
                    **shared,
                )(x)
            else:
                strides = 2 if i and not j else 1
                x = _conv_unit(x, widths[i], strides, bottleneck, **shared)
    return ImageModel(image, _logits(x, num_classes), name=name)


@builder(_checked)
def PreActResNet(
    *,
    depths: list[int],
    bottleneck: bool,
    stem: str,
    image_size: int | tuple[int, int] | tuple[None, None] = 224,
    channels: int = 3,
    num_classes: int = 1000,
    widths: Sequence[int] = (64, 128, 256, 512),
    stem_width: int = 64,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "preact_resnet",
) -> ImageModel:
    """Builds a pre-activation ResNet: (batch, H, W, C) → (batch, num_classes) logits.

    It is an AlterNet without attention.

    Args:
        depths: Units of each stage; each stage but the first halves the map.
        bottleneck: True: a unit has one 3 × 3 convolution, on a quarter of the output
            channels. False: it has two, on all channels.
        stem: "imagenet": 7 × 7 with stride 2, then max-pooling. "cifar": 3 × 3.
        image_size: Height and width in pixels, of any size; an int for a square. (None,
            None): the model takes images of any size.
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        widths: Channels inside the units of each stage; a bottleneck has four times as
            many output channels.
        stem_width: Channels of the stem.
        stochastic_depth: Probability of dropping the residual branch of the last unit,
            in [0, 1). It grows linearly from 0 in the first unit.
        normalization: {"mean": numbers, "std": numbers} of pixels in [0, 1], one for
            each channel: the model takes pixels in [0, 255] and normalises them. None:
            it does not.
        dtype: Dtype policy, such as "mixed_bfloat16"; None: Keras's global policy.
        name: Name of the model.

    Raises:
        ValueError: An argument is out of range.
    """
    image, x = image_input(image_size, normalization, channels)
    x = _stem(x, stem, stem_width)
    rates = iter(drop_rates(stochastic_depth, sum(depths)))
    for i, depth in enumerate(depths):
        for j in range(depth):
            shared = {"stochastic_depth": next(rates), "name": f"stage_{i}_unit_{j}"}
            strides = 2 if i and not j else 1
            x = _conv_unit(x, widths[i], strides, bottleneck, **shared)
    return ImageModel(image, _logits(x, num_classes), name=name)


def _stem(x: Tensor, stem: str, width: int) -> Tensor:
    if stem == "cifar":
        return Conv(width, 3, name="stem")(x)
    x = Conv(width, 7, strides=2, name="stem")(x)
    return MaxPool(name="stem_pool")(x)  # units begin with normalisation and ReLU


def _conv_unit(
    x: Tensor, width: int, strides: int, bottleneck: bool, **shared: Any
) -> Tensor:
    """Applies a unit of convolutions: (B, H, W, C) → (B, H', W', C')."""
    if bottleneck:
        out = 4 * width
        convs = [(width, 1, 1), (width, 3, strides), (out, 1, 1)]
    else:
        out = width
        convs = [(width, 3, strides), (out, 3, 1)]
    projection = None
    if strides > 1 or x.shape[-1] != out:
        projection = Conv(out, 1, strides=strides, name="projection")
    return PreactUnit(
        [_norm(f"norm_{k}") for k in range(len(convs))],
        [
            Conv(filters, size, strides=step, name=f"conv_{k}")
            for k, (filters, size, step) in enumerate(convs)
        ],
        projection=projection,
        **shared,
    )(x)


def _logits(x: Tensor, num_classes: int) -> Tensor:
    x = keras.layers.ReLU(name="final_relu")(_norm("final_norm")(x))
    x = keras.layers.GlobalAveragePooling2D("channels_last", name="pool")(x)  # (B, C)
    return head(num_classes)(x)


def _norm(name: str) -> keras.layers.Layer:
    # As torch.nn.BatchNorm2d, whose momentum of 0.1 is the share of the new value.
    return BatchNormalization(epsilon=1e-5, momentum=0.9, name=name)


# Units of each stage: He et al. 2015, arXiv 1512.03385, table 1. The last stage of most
# AlterNets has four units; `attention_depths` is from the authors' models/alternet.py.
TWIN: dict[str, dict[str, Any]] = {
    "18": {"depths": [2, 2, 2, 2], "bottleneck": False},
    "34": {"depths": [3, 4, 6, 3], "bottleneck": False},
    "50": {"depths": [3, 4, 6, 3], "bottleneck": True},
    "101": {"depths": [3, 4, 23, 3], "bottleneck": True},
    "152": {"depths": [3, 8, 36, 3], "bottleneck": True},
}
ALTER = {
    size: {**row, "depths": [*row["depths"][:3], 4], "attention_depths": [0, 1, 3, 2]}
    for size, row in TWIN.items()
}
ALTER["18"] = {**TWIN["18"], "attention_depths": [0, 1, 1, 1]}

# Evaluation as in ops/datasets.py there.
EVALUATION = {"crop": 0.875, "kernel": "bilinear"}
LARGE = {"stem": "imagenet", "evaluation": {**EVALUATION, **IMAGENET}}
SMALL = {"stem": "cifar", "evaluation": {**EVALUATION, **CIFAR100, "crop": 1.0}}
CIFAR = {**SMALL, "image_size": 32, "num_classes": 100}

_large = rows_of(AlterNet, paper=__doc__, window_size=7, **LARGE)
# A window of 7 covers no map of 32 pixels.
_cifar = rows_of(AlterNet, paper=__doc__, window_size=4, **CIFAR)
_large_preact = rows_of(PreActResNet, paper=__doc__, **LARGE)
_cifar_preact = rows_of(PreActResNet, paper=__doc__, **CIFAR)

AlterNet18 = _large("AlterNet18", 9_968_803, 1.67, ALTER["18"])
AlterNet34 = _large("AlterNet34", 22_833_054, 3.60, ALTER["34"])
AlterNet50 = _large("AlterNet50", 35_915_038, 5.01, ALTER["50"])
AlterNet101 = _large("AlterNet101", 54_907_166, 8.72, ALTER["101"])
AlterNet152 = _large("AlterNet152", 70_550_814, 12.44, ALTER["152"])
AlterNet18CIFAR = _cifar("AlterNet18CIFAR", 9_499_063, 0.50, ALTER["18"])
AlterNet34CIFAR = _cifar("AlterNet34CIFAR", 22_362_954, 1.12, ALTER["34"])
AlterNet50CIFAR = _cifar("AlterNet50CIFAR", 34_062_538, 1.58, ALTER["50"])
AlterNet101CIFAR = _cifar("AlterNet101CIFAR", 53_054_666, 2.79, ALTER["101"])
AlterNet152CIFAR = _cifar("AlterNet152CIFAR", 68_698_314, 4.00, ALTER["152"])
# What the author gives for CIFAR-100, with less attention than the ImageNet model:
# github.com/xxxnell/how-do-vits-work, issues 1 and 38.
AlterNet50CIFAR100 = _cifar(
    "AlterNet50CIFAR100",
    33_012_840,
    1.51,
    ALTER["50"],
    {"attention_depths": [0, 1, 1, 2], "stochastic_depth": 0.1},
)

PreActResNet18 = _large_preact("PreActResNet18", 11_687_720, 1.81, TWIN["18"])
PreActResNet34 = _large_preact("PreActResNet34", 21_795_880, 3.66, TWIN["34"])
PreActResNet50 = _large_preact("PreActResNet50", 25_549_352, 4.09, TWIN["50"])
PreActResNet101 = _large_preact("PreActResNet101", 44_541_480, 7.80, TWIN["101"])
PreActResNet152 = _large_preact("PreActResNet152", 60_185_128, 11.51, TWIN["152"])
PreActResNet18CIFAR = _cifar_preact("PreActResNet18CIFAR", 11_218_340, 0.56, TWIN["18"])
PreActResNet34CIFAR = _cifar_preact("PreActResNet34CIFAR", 21_326_500, 1.16, TWIN["34"])
PreActResNet50CIFAR = _cifar_preact("PreActResNet50CIFAR", 23_697_572, 1.30, TWIN["50"])
PreActResNet101CIFAR = _cifar_preact(
    "PreActResNet101CIFAR", 42_689_700, 2.51, TWIN["101"]
)
PreActResNet152CIFAR = _cifar_preact(
    "PreActResNet152CIFAR", 58_333_348, 3.72, TWIN["152"]
)

__all__ = [
    "AlterNet",
    "AlterNet18",
    "AlterNet18CIFAR",
    "AlterNet34",
    "AlterNet34CIFAR",
    "AlterNet50",
    "AlterNet50CIFAR",
    "AlterNet50CIFAR100",
    "AlterNet101",
    "AlterNet101CIFAR",
    "AlterNet152",
    "AlterNet152CIFAR",
    "PreActResNet",
    "PreActResNet18",
    "PreActResNet18CIFAR",
    "PreActResNet34",
    "PreActResNet34CIFAR",
    "PreActResNet50",
    "PreActResNet50CIFAR",
    "PreActResNet101",
    "PreActResNet101CIFAR",
    "PreActResNet152",
    "PreActResNet152CIFAR",
]
