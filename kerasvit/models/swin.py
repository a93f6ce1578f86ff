"""Swin Transformer.

Liu et al. 2021, "Swin Transformer: Hierarchical Vision Transformer using Shifted
Windows", arXiv 2103.14030. Numerics follow timm/models/swin_transformer.py.
"""

import functools
import math
from typing import Any

import keras

from kerasvit.arguments import ArgumentError, Size
from kerasvit.layers import (
    MLP,
    LayerNormalization,
    PatchEmbedding,
    PatchMerging,
    SwinBlock,
    WindowAttention,
)
from kerasvit.preprocessing.defaults import CIFAR100, IMAGENET

from .builder import builder
from .checks import integer, integers, known_size
from .encoder import drop_rates
from .image_model import ImageModel, head, image_input
from .stages import check_stages, mlp_dim
from .variant import rows_of


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks heads, windows, MLPs and sizes; returns all arguments as plain JSON."""
    checked = check_stages(kwargs)
    stages, windows = len(kwargs["depths"]), kwargs["window_size"]
    if isinstance(windows, (list, tuple)):
        windows = integers("window_size", windows, stages, 1)
        checked["window_size"] = windows if len(set(windows)) > 1 else windows[0]
    else:
        checked["window_size"] = integer("window_size", windows, 1)
    checked["image_size"] = _image_size(kwargs["image_size"], checked)
    return checked


def _windows(window_size: int | list[int], depths: list[int]) -> list[int]:
    """Returns the window size of each stage."""
    if isinstance(window_size, list):
        return window_size
    return [window_size] * len(depths)


def _image_size(image_size: Size, kwargs: dict[str, Any]) -> Size:
    checked = known_size(image_size, "windows must fill the maps")
    given = kwargs["window_size"]
    windows = _windows(given, kwargs["depths"])[::-1]  # from the last stage on
    last = kwargs["patch_size"] * 2 ** (len(windows) - 1)  # stride of the last map
    if all(_fits(side / last, windows) for side in checked):
        return checked
    # Each stage has whole windows where the last map's sides are multiples of `whole`.
    whole = math.lcm(*(m // math.gcd(m, 2**i) for i, m in enumerate(windows)))
    longest = max(-(-m // 2**i) for i, m in enumerate(windows))
    small = [n for n in range(1, longest) if n % whole and _fits(n, windows)]
    near = [
        min(
            [*small, *range(whole, side // last + 2 * whole, whole)],
            key=lambda n, side=side: abs(n * last - side),  # type: ignore[misc]
        )
        for side in checked
    ]
    also = f", or {', '.join(str(n * last) for n in small)}" if small else ""
    shape = f"{given} × {given}" if isinstance(given, int) else f"{given} places"
    raise ArgumentError(
        f"`image_size` must be, for windows of {shape} in {len(windows)} stages, a "
        f"multiple of {last * whole}{also}. Received: {checked[0]} × {checked[1]}. "
        f"The nearest that fits is {near[0] * last} × {near[1] * last}; or choose "
        "another `window_size`.",
        "image_size",
        "window_size",
    )


def _fits(places: float, windows: list[int]) -> bool:
    """Whether windows fill all maps, if the last has a side of `places` cells."""
    maps = [places * 2**i for i in range(len(windows))]
    return places == int(places) and all(
        side <= window or side % window == 0
        for side, window in zip(maps, windows, strict=True)
    )


@builder(_checked)
def SwinTransformer(
    *,
    width: int,
    depths: list[int],
    num_heads: list[int],
    patch_size: int = 4,
    window_size: int | list[int] = 7,
    image_size: int | tuple[int, int] = 224,
    channels: int = 3,
    num_classes: int = 1000,
    mlp_ratio: float = 4.0,
    qkv_bias: bool = True,
    epsilon: float = 1e-5,
    dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "swin",
) -> ImageModel:
    """Builds a Swin Transformer: (batch, H, W, C) → (batch, num_classes) logits.

    Args:
        width: C, channels of the first stage; each further stage has twice as many.
        depths: Number of blocks of each stage.
        num_heads: Attention heads of each stage, divisors of its channels.
        patch_size: P, edge of a patch in pixels.
        window_size: M, edge of an attention window, in cells of the stage's map; or a
            list, one M for each stage (arXiv 2111.14725). Along a side of the map of
            at most M cells, the window is that side.
        image_size: Height and width in pixels; an int for a square. At each stage, a
            side of the map must be a multiple of M or at most M, and even if another
            stage follows. (timm pads other sizes.)
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        mlp_ratio: Hidden size of the blocks' MLPs, relative to the stage's channels.
        qkv_bias: Whether query, key and value have a bias.
        epsilon: Epsilon of each LayerNormalization.
        dropout: Dropout rate after the embedding and in each block, in [0, 1).
        stochastic_depth: Probability of dropping a residual branch of the last block,
            in [0, 1). It grows linearly from 0 in the first block.
        normalization: {"mean": numbers, "std": numbers} of pixels in [0, 1], one for
            each channel: the model takes pixels in [0, 255] and normalises them. None:
            it does not.
        dtype: Dtype policy, such as "mixed_bfloat16"; None: Keras's global policy.
        name: Name of the model.

    Raises:
        ValueError: An argument is out of range, or patches, windows and merged patches
            do not fill the image; the message names the nearest size that fits.
    """
    image, x = image_input(image_size, normalization, channels)
    norm = functools.partial(LayerNormalization, epsilon=epsilon)
    x = PatchEmbedding(patch_size, width=width, name="embedding")(x)
    grid = [side // patch_size for side in image_size]
    x = keras.layers.Reshape((*grid, width), name="map")(x)  # (B, H/P, W/P, C)
    x = norm(name="embedding_norm")(x)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    windows = _windows(window_size, depths)
    rates = iter(drop_rates(stochastic_depth, sum(depths)))
    for i, depth in enumerate(depths):
        if i:
            x = PatchMerging(epsilon=epsilon, name=f"stage_{i}_merging")(x)
        for j in range(depth):
            attention = WindowAttention(
                num_heads[i],
                window_size=windows[i],
                shifted=j % 2 == 1,
                use_bias=qkv_bias,
                dropout=dropout,
                name="attention",
            )
            x = SwinBlock(
                attention,
                MLP(mlp_dim(x.shape[-1], mlp_ratio), dropout=dropout, name="mlp"),
                epsilon=epsilon,
                stochastic_depth=next(rates),
                name=f"stage_{i}_block_{j}",
            )(x)
    x = norm(name="encoder_norm")(x)
    x = keras.ops.mean(x, axis=(1, 2))  # (B, C)
    return ImageModel(image, head(num_classes)(x), name=name)


# Section 3.3 of the paper, and Table 1, whose multiply-adds are those of the products
# alone. It has none for L at 224; for B at 384 it prints 47.0 where they are 47.08.
SIZES = {
    "T": {"width": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24]},
    "S": {"width": 96, "depths": [2, 2, 18, 2], "num_heads": [3, 6, 12, 24]},
    "B": {"width": 128, "depths": [2, 2, 18, 2], "num_heads": [4, 8, 16, 32]},
    "L": {"width": 192, "depths": [2, 2, 18, 2], "num_heads": [6, 12, 24, 48]},
}

# S3: Chen et al. 2021, "Searching the Search Space of Vision Transformer", arXiv
# 2111.14725: a window for each stage. Numbers as in timm.
S3: dict[str, dict[str, Any]] = {
    "T": {"depths": [2, 2, 6, 2], "window_size": [7, 7, 14, 7]},
    "S": {"depths": [2, 2, 18, 2], "window_size": [14, 14, 14, 7]},
    "B": {"depths": [2, 2, 30, 2], "window_size": [7, 7, 14, 7]},
}
S3 = {key: {**SIZES["T"], **numbers} for key, numbers in S3.items()}

_swin = rows_of(SwinTransformer, paper=__doc__, evaluation=IMAGENET)

SwinT = _swin("SwinT", 28_288_354, 4.5, SIZES["T"])
SwinS = _swin("SwinS", 49_606_258, 8.7, SIZES["S"])
SwinB = _swin("SwinB", 87_768_224, 15.4, SIZES["B"])
SwinL = _swin("SwinL", 196_532_476, 34.5, SIZES["L"])
SwinS3T = _swin("SwinS3T", 28_328_674, 4.62, S3["T"])
SwinS3S = _swin("SwinS3S", 49_737_298, 9.4, S3["S"])
SwinS3B = _swin("SwinS3B", 71_125_762, 13.66, S3["B"])

# Swin-T for the 32 × 32 pixels of CIFAR-100, which arXiv 2202.06709 compares with
# AlterNet: timm's, as xxxnell/how-do-vits-work builds it.
SwinTiCIFAR = _swin(
    "SwinTiCIFAR",
    27_562_126,
    1.43,
    SIZES["T"],
    patch_size=1,
    window_size=4,
    qkv_bias=False,
    image_size=32,
    num_classes=100,
    evaluation={**CIFAR100, "crop": 1.0},
)

__all__ = [
    "SwinB",
    "SwinL",
    "SwinS",
    "SwinS3B",
    "SwinS3S",
    "SwinS3T",
    "SwinT",
    "SwinTiCIFAR",
    "SwinTransformer",
]
