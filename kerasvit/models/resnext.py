"""ResNeXt: a ResNet whose 3 × 3 convolutions have groups of channels.

Xie et al. 2017, "Aggregated Residual Transformations for Deep Neural Networks", arXiv
1611.05431. Numerics follow timm/models/resnet.py, and xxxnell/how-do-vits-work
models/resnext.py, which has the stem for CIFAR. Fresh weights are drawn as PyTorch
draws them; the head is zero.
"""

from typing import Any

import keras

from kerasvit.arguments import ArgumentError, one_of
from kerasvit.layers import BatchNormalization, Conv, MaxPool, PostactUnit
from kerasvit.preprocessing.defaults import CIFAR100, IMAGENET
from kerasvit.types import Tensor

from .builder import builder
from .checks import MAXIMA, integer
from .encoder import drop_rates
from .image_model import ImageModel, head, image_input
from .variant import rows_of


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks stem, groups and channels; returns all arguments as plain JSON."""
    one_of("stem", kwargs["stem"], ("imagenet", "cifar"))
    checked, stages = {**kwargs}, len(kwargs["depths"])
    for name in ("groups", "group_width"):
        checked[name] = integer(name, kwargs[name], 1)
    inside = checked["groups"] * checked["group_width"]
    if max(checked["width"], inside) * 2 ** (stages - 1) > MAXIMA["width"]:
        raise ArgumentError(
            f"`width` and `groups` times `group_width`, doubled {stages - 1} times, "
            f"must be at most {MAXIMA['width']:,}. Received: {checked['width']}, and "
            f"{checked['groups']} times {checked['group_width']}.",
            *("width", "groups", "group_width", "depths"),
        )
    return checked


@builder(_checked)
def ResNeXt(
    *,
    depths: list[int],
    groups: int,
    group_width: int,
    stem: str,
    image_size: int | tuple[int, int] | tuple[None, None] = 224,
    channels: int = 3,
    num_classes: int = 1000,
    width: int = 256,
    stem_width: int = 64,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "resnext",
) -> ImageModel:
    """Builds a ResNeXt: (batch, H, W, C) → (batch, num_classes) logits.

    Args:
        depths: Units of each stage; each stage but the first halves the map.
        groups: Groups of each 3 × 3 convolution, the paper's cardinality; with 1 group
            of 64 channels it is a ResNet.
        group_width: Channels of a group in the first stage; each further stage has
            twice as many.
        stem: "imagenet": 7 × 7 with stride 2, then max-pooling. "cifar": 3 × 3.
        image_size: Height and width in pixels, of any size; an int for a square. (None,
            None): the model takes images of any size.
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        width: Output channels of the first stage; each further stage has twice as many.
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
    size, strides = (7, 2) if stem == "imagenet" else (3, 1)
    x = Conv(stem_width, size, strides=strides, name="stem")(x)
    x = keras.layers.ReLU(name="stem_relu")(_norm("stem_norm")(x))
    if stem == "imagenet":
        x = MaxPool(name="stem_pool")(x)
    rates = iter(drop_rates(stochastic_depth, sum(depths)))
    for i, depth in enumerate(depths):
        for j in range(depth):
            x = _unit(
                x,
                width * 2**i,
                groups * group_width * 2**i,
                groups=groups,
                strides=2 if i and not j else 1,
                stochastic_depth=next(rates),
                name=f"stage_{i}_unit_{j}",
            )
    x = keras.layers.GlobalAveragePooling2D("channels_last", name="pool")(x)  # (B, C)
    return ImageModel(image, head(num_classes)(x), name=name)


def _unit(
    x: Tensor, out: int, inside: int, *, groups: int, strides: int, **shared: Any
) -> Tensor:
    """Applies a unit with `inside` channels within: (B, H, W, C) → (B, H', W', out)."""
    shortcut = {}
    if strides > 1 or x.shape[-1] != out:
        shortcut = {
            "projection": Conv(out, 1, strides=strides, name="projection"),
            "projection_norm": _norm("projection_norm"),
        }
    convs = [
        Conv(inside, 1, name="conv_0"),
        Conv(inside, 3, strides=strides, groups=groups, name="conv_1"),
        Conv(out, 1, name="conv_2"),
    ]
    norms = [_norm(f"norm_{k}") for k in range(3)]
    return PostactUnit(convs, norms, **shortcut, **shared)(x)


def _norm(name: str) -> keras.layers.Layer:
    # As torch.nn.BatchNorm2d, whose momentum of 0.1 is the share of the new value.
    return BatchNormalization(epsilon=1e-5, momentum=0.9, name=name)


# Tables 1 and 3 of the paper, and timm's names.
R50, R101 = {"depths": [3, 4, 6, 3]}, {"depths": [3, 4, 23, 3]}
OF_32X4 = {"groups": 32, "group_width": 4}
OF_32X8 = {"groups": 32, "group_width": 8}
OF_64X4 = {"groups": 64, "group_width": 4}

# Evaluation of ImageNet as in timm's `_cfg`, of CIFAR as in ops/datasets.py there.
LARGE = {
    "stem": "imagenet",
    "evaluation": {"crop": 0.875, "kernel": "bilinear", **IMAGENET},
}
CIFAR = {
    "stem": "cifar",
    "image_size": 32,
    "num_classes": 100,
    "evaluation": {"crop": 1.0, "kernel": "bilinear", **CIFAR100},
}
_large = rows_of(ResNeXt, paper=__doc__, **LARGE)
_cifar = rows_of(ResNeXt, paper=__doc__, **CIFAR)

ResNeXt50 = _large("ResNeXt50", 25_028_904, 4.23, R50, OF_32X4)
ResNeXt101x32x4d = _large("ResNeXt101x32x4d", 44_177_704, 7.97, R101, OF_32X4)
ResNeXt101x32x8d = _large("ResNeXt101x32x8d", 88_791_336, 16.41, R101, OF_32X8)
ResNeXt101x64x4d = _large("ResNeXt101x64x4d", 83_455_272, 15.46, R101, OF_64X4)
ResNeXt50CIFAR = _cifar("ResNeXt50CIFAR", 23_177_124, 1.34, R50, OF_32X4)

__all__ = [
    "ResNeXt",
    "ResNeXt50",
    "ResNeXt50CIFAR",
    "ResNeXt101x32x4d",
    "ResNeXt101x32x8d",
    "ResNeXt101x64x4d",
]
