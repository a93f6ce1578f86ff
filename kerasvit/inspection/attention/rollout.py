"""Attention rollout: attention through all layers."""

from collections.abc import Iterable

import numpy as np

from kerasvit.arguments import one_of

FUSIONS = ("mean", "max")


def rollout(weights: Iterable[np.ndarray], heads: str = "mean") -> np.ndarray:
    """Returns the attention rollout of layers, (images, N, N).

    R_l = Â_l R_(l-1), where Â_l is the mean over the heads of layer l plus the identity
    for the shortcut, with rows normalised to 1. Entry (i, j) is the share of input
    token j in token i after the last layer.

    Args:
        weights: (images, heads, N, N) of each layer, from the first to the last.
        heads: "mean", or "max": the maximum over the heads instead.

    Raises:
        ValueError: There is no layer, the layers have other numbers of tokens, or
            `heads` is neither.

    Reference: Abnar and Zuidema 2020, arXiv 2005.00928, section 3; figure 6 of arXiv
    2010.11929 is made with it.
    """
    matrices = [fused(each, heads) for each in weights]
    shapes = sorted({each.shape for each in matrices})
    if len(shapes) != 1 or shapes[0][1] != shapes[0][2]:
        raise ValueError(
            "`weights` must be arrays (images, heads, N, N), one for each layer, with "
            f"the same N. Received: shapes {shapes} without the heads."
        )
    return product(matrices)


def fused(weights: np.ndarray, heads: str) -> np.ndarray:
    """Returns the mean or maximum over the heads, (images, queries, keys)."""
    one_of("heads", heads, FUSIONS)
    return weights.mean(axis=1) if heads == "mean" else weights.max(axis=1)


def product(matrices: list[np.ndarray]) -> np.ndarray:
    """Returns the rollout of layers whose heads are fused, (images, N, N)."""
    total = np.eye(matrices[0].shape[-1], dtype=matrices[0].dtype)
    for matrix in matrices:
        step = matrix + np.eye(len(total[-1]), dtype=matrix.dtype)
        total = step / step.sum(axis=-1, keepdims=True) @ total
    return total


def rolled_heat(
    matrices: list[np.ndarray], grid: tuple[int, int], of_token: bool
) -> np.ndarray | None:
    """Returns the rollout of a model's output to its patches, (images, height, width).

    Args:
        matrices: (images, queries, keys) of each layer, heads fused. The last may have
            one query, which pools the last of the tokens.
        grid: (height, width) of the patches, the last of the tokens.
        of_token: Whether the output is the first token, not the mean of the patches.

    Returns:
        None if the layers do not attend to the same tokens.
    """
    pooling = matrices[-1] if matrices[-1].shape[1] == 1 else None
    layers = matrices[:-1] if pooling is not None else matrices
    size = grid[0] * grid[1]
    shapes = {each.shape[1:] for each in layers}
    if len(shapes) != 1 or len(tokens := set(shapes.pop())) != 1:
        return None
    if pooling is not None and pooling.shape[-1] > max(tokens):
        return None
    total = product(layers)
    if pooling is not None:
        row = (pooling @ total[:, -pooling.shape[-1] :])[:, 0]
    else:
        row = total[:, 0] if of_token else total[:, -size:].mean(axis=1)
    return row[:, -size:].reshape(-1, *grid)
