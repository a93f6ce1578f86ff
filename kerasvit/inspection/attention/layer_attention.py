"""What one attention layer looks at."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, integer

from .patch_grid import pixel_distances


@dataclass(frozen=True)
class LayerAttention:
    """Attention of one layer, for each image and head.

    Attributes:
        weights: (images, heads, queries, keys); the queries and keys are the `prefix`
            tokens and then the patches, row by row. (images, windows, heads, n, n) of
            attention within windows of n cells. A layer that pools tokens has a single
            query. None if the weights were not kept.
        heat: (images, heads, height, width), attention of the class token to the
            patches; or the mean over all patches of their attention to each. It sums to
            the share of attention that does not go to other tokens.
        distance: (images, heads), mean distance in pixels between patch and attended
            patch. None for a layer that pools.
        grid: (height, width) in patches or cells.
        prefix: Number of tokens before the patches.
        of_token: Whether the heat is that of the first token.
        cells: (windows, n), indices of the windows' cells in the grid, row by row. None
            without windows.
    """

    weights: np.ndarray | None
    heat: np.ndarray
    distance: np.ndarray | None
    grid: tuple[int, int]
    prefix: int = 0
    of_token: bool = False
    cells: np.ndarray | None = None

    def of_cell(self, row: int, column: int) -> np.ndarray:
        """Returns the attention of one patch to all, (images, heads, height, width).

        Cells outside of the window of a layer with windows have 0.

        Raises:
            ArgumentError: The patch is not in the grid, the weights were not kept, or
                the layer pools.
        """
        height, width = self.grid
        row = integer("row", row, 0, height - 1)
        cell = row * width + integer("column", column, 0, width - 1)
        if self.weights is None or self.distance is None:
            raise ArgumentError(
                "`of_cell` needs the weights of a layer in which patches attend to "
                "patches, and `attention_maps(..., keep_weights=True)`. Received: "
                + ("no weights." if self.weights is None else "a layer that pools."),
                "keep_weights",
            )
        if self.cells is None:
            seen = self.weights[:, :, self.prefix + cell, self.prefix :]
        else:
            ((window, place),) = np.argwhere(self.cells == cell)
            images, _, heads = self.weights.shape[:3]
            seen = np.zeros((images, heads, height * width), self.weights.dtype)
            seen[..., self.cells[window]] = self.weights[:, window, :, place]
        return seen.reshape(*seen.shape[:2], height, width)


def layer_attention(
    weights: np.ndarray,
    *,
    grid: tuple[int, int],
    cells: np.ndarray | None,
    of_token: bool | None,
    image_size: tuple[int, int],
) -> LayerAttention:
    """Measures the weights of one layer for a batch.

    Args:
        weights: As in `LayerAttention`.
        grid: (height, width) in patches.
        cells: (windows, n) of windows; None without windows.
        of_token: Whether the heat is that of the first token, for a sequence of tokens;
            None: if there are tokens before the patches.
        image_size: (height, width) in pixels.

    Raises:
        ValueError: The weights are not those of self-attention or pooling, or there is
            no token.
    """
    heads, queries, keys = weights.shape[-3:]
    if weights.ndim != (4 if cells is None else 5) or queries not in (1, keys):
        raise ArgumentError(
            "Attention weights must be (images, heads, queries, keys), with as many "
            f"queries as keys, or one. Received: shape {weights.shape}. `layers` can "
            "leave the layer out.",
            "layers",
        )
    size = grid[0] * grid[1]
    prefix = 0 if cells is not None else keys - size
    if queries < keys:
        heat = weights[:, :, 0, prefix:].reshape(-1, heads, *grid)
        return LayerAttention(weights, heat, None, grid, prefix)
    of_token = prefix > 0 if of_token is None else of_token and cells is None
    if of_token and not prefix:
        raise ArgumentError(
            '`pool="token"` needs a token before the patches. Received: none before '
            f"{grid[0]} × {grid[1]} patches.",
            "pool",
        )
    places, patches = cells, weights  # (windows, n), (images, windows, heads, n, n)
    if places is None:
        places, patches = np.arange(size)[None], weights[:, None, :, prefix:, prefix:]
    if of_token:
        heat = weights[:, :, 0, prefix:]
    else:
        heat = np.zeros((len(weights), heads, size), weights.dtype)
        heat[..., places] = patches.sum(axis=3).swapaxes(1, 2) / size
    pixels = pixel_distances(places, grid, image_size)
    distance = np.einsum("bwhqk,wqk->bh", patches, pixels) / size
    heat = heat.reshape(-1, heads, *grid)
    return LayerAttention(weights, heat, distance, grid, prefix, of_token, cells)


def joined(parts: list[LayerAttention]) -> LayerAttention:
    """Joins the batches of one layer."""
    return replace(
        parts[0],
        weights=_joined([part.weights for part in parts]),
        heat=np.concatenate([part.heat for part in parts]),
        distance=_joined([part.distance for part in parts]),
    )


def _joined(arrays: list[Any]) -> np.ndarray | None:
    return None if arrays[0] is None else np.concatenate(arrays)
