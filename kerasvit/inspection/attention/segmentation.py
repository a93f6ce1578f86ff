"""Compares heat on an image with the object's mask."""

from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, number


def segmentation_score(heat: Any, masks: Any, mass: float = 0.6) -> np.ndarray:
    """Returns how well the hottest patches cover the objects of images.

    The score is the intersection over union (Jaccard index) of a mask and the patches
    that hold the given share of the heat: the hottest ones, as many as are needed, each
    upsampled to its pixels by the nearest neighbour.

    Args:
        heat: (images, height, width) or (images, ..., height, width), on the grid of
            the patches, ≥ 0, such as `maps.heat`, `maps.rollout`, or
            `maps.layers[path].heat` with its heads.
        masks: (images, H, W) booleans, True on the object; they cover what the patches
            cover.
        mass: Share of the heat that the patches keep, in (0, 1).

    Returns:
        (images, ...) in [0, 1]. DINO takes the best head of the last layer:
        `scores.max(axis=1)`.

    Raises:
        ValueError: The masks are not booleans of the heat's images and proportions, or
            one has no object; the heat is not finite, negative, or zero everywhere.

    Reference: Caron et al. 2021 (DINO), arXiv 2104.14294, figure 4 and appendix, and
    its visualize_attention.py, with 60 % of the mass.
    """
    number("mass", mass, 0, 1)
    number("mass", mass, positive=True)
    heat, masks = np.asarray(heat, "float64"), np.asarray(masks)
    _check_masks(heat, masks)
    flat = heat.reshape(*heat.shape[:-2], -1)
    total = flat.sum(axis=-1, keepdims=True)
    if not np.isfinite(flat).all() or (flat < 0).any() or not total.all():
        raise ArgumentError(
            "`heat` must be finite, at least 0, and not 0 everywhere. Received: a sum "
            f"of {total.min()}, values from {flat.min()} to {flat.max()}.",
            "heat",
        )
    order = np.argsort(-flat, axis=-1, kind="stable")
    hotter = np.cumsum(np.take_along_axis(flat, order, -1), -1) / total
    hotter = np.roll(hotter, 1, axis=-1)  # the share of all hotter patches
    hotter[..., 0] = 0
    kept = np.zeros(flat.shape, bool)
    np.put_along_axis(kept, order, hotter < mass, -1)
    sizes = zip(heat.shape[-2:], masks.shape[-2:], strict=True)
    rows, columns = (np.arange(pixels) * cells // pixels for cells, pixels in sizes)
    seen = kept.reshape(heat.shape)[..., rows[:, None], columns]
    between = (1,) * (heat.ndim - 3)
    masks = masks.reshape(len(masks), *between, *masks.shape[1:])
    both, either = (part.sum(axis=(-2, -1)) for part in (seen & masks, seen | masks))
    return both / either


def _check_masks(heat: np.ndarray, masks: np.ndarray) -> None:
    fitting = masks.ndim == 3 and heat.ndim >= 3 and len(heat) == len(masks)
    if not fitting or masks.dtype != bool:
        raise ArgumentError(
            "`masks` must be booleans (images, H, W), for `heat` of as many images "
            f"(images, ..., height, width). Received: masks of shape {masks.shape} and "
            f"dtype {masks.dtype}, heat of shape {heat.shape}.",
            "masks",
            "heat",
        )
    (height, width), (h, w) = masks.shape[1:], heat.shape[-2:]
    if min(h, w) < 1 or height < h or width < w or height * w != width * h:
        raise ArgumentError(
            "`masks` must have the proportions of the heat, and as many pixels as it "
            f"has patches or more. Received: masks of {height} × {width}, heat of "
            f"{h} × {w}. Crop and resize the masks as the images.",
            "masks",
        )
    empty = np.flatnonzero(~masks.any(axis=(1, 2)))
    if len(empty):
        raise ArgumentError(
            "Each mask must be True somewhere. Received: all False in the masks "
            f"{empty[:5].tolist()}. Leave their images out.",
            "masks",
        )
