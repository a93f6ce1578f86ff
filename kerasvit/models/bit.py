"""BiT: a pre-activation ResNet for transfer, without batch normalisation.

Kolesnikov et al. 2020, "Big Transfer (BiT): General Visual Representation Learning",
arXiv 1912.11370. Numerics follow google-research/big_transfer bit_pytorch/models.py and
timm/models/resnetv2.py, which differ in the epsilon of the standardised convolutions.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras

from kerasvit.arguments import ArgumentError, number
from kerasvit.layers import GroupNorm, MaxPool, PreactUnit, StandardizedConv

from .builder import builder
from .checks import stage_widths
from .image_model import ImageModel, head, image_input
from .variant import rows_of

GROUPS = 32  # of each group normalisation


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks widths and the image size; returns all arguments as plain JSON."""
    checked = {**kwargs}
    half = "a multiple of 0.5"
    factor = number("width_factor", kwargs["width_factor"], 0.5, meaning=half)
    if factor % 0.5:
        raise ArgumentError(
            f"`width_factor` must be {half}, so that {GROUPS} groups divide the "
            f"channels. Received: {factor}.",
            "width_factor",
        )
    checked["width_factor"] = int(factor) if factor.is_integer() else factor
    widths = stage_widths(kwargs["stage_widths"], len(kwargs["depths"]), GROUPS)
    checked["stage_widths"] = widths
    return checked


@builder(_checked)
def BigTransfer(
    *,
    depths: list[int],
    width_factor: float,
    image_size: int | tuple[int, int] | tuple[None, None] = 224,
    channels: int = 3,
    num_classes: int = 1000,
    stage_widths: list[int] | None = None,
    conv_epsilon: float = 1e-10,
    epsilon: float = 1e-5,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "bit",
) -> ImageModel:
    """Builds a BiT ResNet: (batch, H, W, C) → (batch, num_classes) logits.

    Args:
        depths: Units of each stage; all stages but the first halve height and width.
        width_factor: Multiplies the paper's channels, 64 in the root; a multiple of
            0.5, for 32 groups.
        image_size: Height and width in pixels, of any size; an int for a square. (None,
            None): the model takes images of any size.
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        stage_widths: Output channels of each stage, multiples of 128, four times those
            of its 3 × 3 convolutions. None: 256 times `width_factor`, doubled from
            stage to stage.
        conv_epsilon: Epsilon of the standardised convolutions: 1e-10 in big_transfer,
            1e-8 in timm.
        epsilon: Epsilon of each group normalisation.
        normalization: {"mean": numbers, "std": numbers} of pixels in [0, 1], one for
            each channel: the model takes pixels in [0, 255] and normalises them. None:
            it does not.
        dtype: Dtype policy, such as "mixed_bfloat16"; None: Keras's global policy.
        name: Name of the model.

    Raises:
        ValueError: An argument is out of range.
    """
    conv = functools.partial(StandardizedConv, epsilon=conv_epsilon)
    norm = functools.partial(GroupNorm, GROUPS, epsilon=epsilon)
    image, x = image_input(image_size, normalization, channels)
    x = conv(int(64 * width_factor), 7, strides=2, padding=3, name="root_conv")(x)
    # These zeros take part in the maximum, and without a ReLU before, inputs may be
    # negative. The pooling's padding, as in big_vision, would not take part.
    x = MaxPool(padding_value=0.0, name="root_pool")(x)  # (B, H/4, W/4, C)
    for i, depth in enumerate(depths):
        out = stage_widths[i] if stage_widths else int(256 * width_factor) * 2**i
        for j in range(depth):
            x = _unit(i, j, out, conv, norm)(x)
    x = norm(name="final_norm")(x)
    x = keras.layers.ReLU(name="final_relu")(x)
    x = keras.layers.GlobalAveragePooling2D(data_format="channels_last", name="pool")(x)
    return ImageModel(image, head(num_classes)(x), name=name)


def _unit(
    i: int, j: int, out: int, conv: Callable[..., Any], norm: Callable[..., Any]
) -> PreactUnit:
    """Returns unit j of stage i, with `out` channels at its end."""
    strides = 2 if i and not j else 1
    norms = [norm(name=f"norm_{k}") for k in range(3)]
    convs = [
        conv(out // 4, 1, name="conv_0"),
        conv(out // 4, 3, strides=strides, padding=1, name="conv_1"),
        conv(out, 1, name="conv_2"),
    ]
    projection = None if j else conv(out, 1, strides=strides, name="projection")
    name = f"stage_{i}_unit_{j}"
    return PreactUnit(norms, convs, projection=projection, name=name)


# `get_block_desc` in google-research/big_vision big_vision/models/bit.py.
DEPTHS = {
    50: [3, 4, 6, 3],
    101: [3, 4, 23, 3],
    152: [3, 8, 36, 3],
    200: [3, 24, 36, 3],
}
EVALUATION = {"crop": 0.875, "kernel": "bilinear"}  # timm/models/resnetv2.py, `_cfg`

_bit = rows_of(BigTransfer, paper=__doc__, evaluation=EVALUATION)

BiTR50x1 = _bit("BiTR50x1", 25_549_352, 4.09, depths=DEPTHS[50], width_factor=1)
BiTR50x2 = _bit("BiTR50x2", 97_988_712, 16.12, depths=DEPTHS[50], width_factor=2)
BiTR50x3 = _bit("BiTR50x3", 217_319_080, 36.08, depths=DEPTHS[50], width_factor=3)
BiTR101x1 = _bit("BiTR101x1", 44_541_480, 7.80, depths=DEPTHS[101], width_factor=1)
BiTR101x2 = _bit("BiTR101x2", 173_852_776, 30.97, depths=DEPTHS[101], width_factor=2)
BiTR101x3 = _bit("BiTR101x3", 387_934_888, 69.49, depths=DEPTHS[101], width_factor=3)
BiTR152x1 = _bit("BiTR152x1", 60_185_128, 11.51, depths=DEPTHS[152], width_factor=1)
BiTR152x2 = _bit("BiTR152x2", 236_335_208, 45.81, depths=DEPTHS[152], width_factor=2)
BiTR152x4 = _bit("BiTR152x4", 936_533_224, 182.78, depths=DEPTHS[152], width_factor=4)
BiTR200x3 = _bit("BiTR200x3", 568_633_000, 134.35, depths=DEPTHS[200], width_factor=3)

__all__ = [
    "BigTransfer",
    "BiTR50x1",
    "BiTR50x2",
    "BiTR50x3",
    "BiTR101x1",
    "BiTR101x2",
    "BiTR101x3",
    "BiTR152x1",
    "BiTR152x2",
    "BiTR152x4",
    "BiTR200x3",
]
