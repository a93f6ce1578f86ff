"""Draws attention maps, distances and embeddings with matplotlib."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError, integer
from kerasvit.inspection.figures import as_rgb, new_figure

from .attention_maps import AttentionMaps
from .embeddings import Embeddings


def plot_attention(
    maps: AttentionMaps,
    images: Any,
    *,
    columns: int = 4,
    bands: Sequence[int] | None = None,
) -> Any:
    """Draws the first images, their heat, and the rollout where there is one.

    The heat is that of the last layer, mean over its heads. Each map has its own colour
    scale, in percent of the query's attention.

    Args:
        maps: `AttentionMaps` of the images.
        images: (images, H, W, C), of any range, which is stretched to black and white.
        columns: Number of images.
        bands: Channels that are red, green and blue, such as (3, 2, 1), or one that is
            grey; None: the first.

    Returns:
        `matplotlib.figure.Figure`; `figure.savefig(path)` writes it.

    Raises:
        ValueError: The images are not those of the maps, or have no such bands.
        ImportError: matplotlib is not installed.
    """
    images = np.asarray(images)
    heats = {"last layer": maps.heat, "rollout": maps.rollout}
    if images.ndim != 4 or images.shape[:3] != (len(maps.heat), *maps.image_size):
        raise ArgumentError(
            f"`images` must be those of `maps`, {len(maps.heat)} of "
            f"{maps.image_size[0]} × {maps.image_size[1]} pixels. Received: shape "
            f"{images.shape}.",
            "images",
        )
    rows = {name: heat for name, heat in heats.items() if heat is not None}
    count = min(columns, len(images))
    figure = new_figure(2.6 * count, 2.4 * (1 + len(rows)))
    axes = figure.subplots(1 + len(rows), count, squeeze=False)
    height, width = maps.image_size
    for i in range(count):
        axes[0, i].imshow(as_rgb(images[i], bands), extent=(0, width, height, 0))
        axes[0, i].set_title(f"image {i}")
        for axis, (name, heat) in zip(axes[1:, i], rows.items(), strict=True):
            picture = axis.imshow(
                100 * heat[i], extent=(0, width, height, 0), cmap="viridis"
            )
            figure.colorbar(picture, ax=axis, label="attention in %", shrink=0.8)
            axis.set_title(name)
    for axis in axes.flat:
        axis.set_xlabel("pixels")
        axis.set_ylabel("pixels")
    return figure


def plot_heads(maps: AttentionMaps, layer: str | None = None, image: int = 0) -> Any:
    """Draws the heat of each head of a layer for one image, on one colour scale.

    Args:
        maps: `AttentionMaps`.
        layer: Path of the layer; None: the last.
        image: Index of the image.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: The maps have no such layer.
        ImportError: matplotlib is not installed.
    """
    path = list(maps.layers)[-1] if layer is None else layer
    if path not in maps.layers:
        raise ArgumentError(
            f"`layer` must be one of {list(maps.layers)}. Received: {layer!r}.", "layer"
        )
    heats = maps.layers[path].heat
    heat = 100 * heats[integer("image", image, 0, len(heats) - 1)]
    columns = min(4, len(heat))
    rows = -(-len(heat) // columns)
    figure = new_figure(2.2 * columns + 1, 2.2 * rows + 0.6)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    height, width = maps.image_size
    for head, axis in enumerate(axes.flat):
        if head >= len(heat):
            axis.set_axis_off()
            continue
        picture = axis.imshow(
            heat[head],
            extent=(0, width, height, 0),
            cmap="viridis",
            vmin=0,
            vmax=heat.max(),
        )
        axis.set_title(f"head {head}")
    figure.colorbar(picture, ax=axes, label="attention in %")
    figure.suptitle(f"{path}, image {image}")
    figure.supxlabel("pixels")
    figure.supylabel("pixels")
    return figure


def plot_distances(maps: AttentionMaps) -> Any:
    """Draws the mean distance of each head by depth, as figure 7 of arXiv 2010.11929.

    Args:
        maps: `AttentionMaps`; the distances are averaged over the images.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    figure = new_figure(6, 4)
    axis = figure.subplots()
    distances = [
        each.distance.mean(axis=0)
        for each in maps.layers.values()
        if each.distance is not None
    ]
    for depth, heads in enumerate(distances, start=1):
        axis.scatter([depth] * len(heads), heads, color="tab:blue", s=18)
    axis.set_xlabel("attention layer")
    axis.set_ylabel("mean distance of a head in pixels")
    axis.set_ylim(bottom=0)
    return figure


def plot_filters(result: Embeddings, *, bands: Sequence[int] | None = None) -> Any:
    """Draws the principal components of the filters, as figure 7 of arXiv 2010.11929.

    Each component is stretched to the range of colours, with 0 at the middle. The
    titles are their shares of the variance.

    Args:
        result: `Embeddings` of a model.
        bands: Channels that are drawn, as for `plot_attention`.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: There are no filters, or no such bands.
        ImportError: matplotlib is not installed.
    """
    if result.filters is None or result.variance is None:
        raise _lacking("filters", "does not embed patches of the image")
    columns = min(7, len(result.filters))
    rows = -(-len(result.filters) // columns)
    figure = new_figure(1.1 * columns + 0.6, 1.3 * rows + 0.6)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for i, axis in enumerate(axes.flat):
        if i >= len(result.filters):
            axis.set_axis_off()
            continue
        one = result.filters[i]
        one = 0.5 + one / (2 * np.abs(one).max())
        axis.imshow(as_rgb(one, bands, stretch=False))
        axis.set_title(f"{100 * result.variance[i]:.1f} %", fontsize=8)
    figure.supxlabel("pixels of a patch")
    figure.supylabel("pixels of a patch")
    return figure


def plot_positions(result: Embeddings, *, largest: int = 16) -> Any:
    """Draws the similarity of positions, as figure 7 of arXiv 2010.11929.

    The small map at row i and column j is the cosine similarity of the embedding of
    patch (i, j) with those of all patches.

    Args:
        result: `Embeddings`.
        largest: Largest number of rows and of columns; of more patches, evenly spaced
            ones are drawn.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: There are no positions.
        ImportError: matplotlib is not installed.
    """
    if result.similarity is None:
        raise _lacking("similarity", "has no embeddings of absolute positions")
    height, width = result.similarity.shape[:2]
    rows, columns = (
        np.linspace(0, n - 1, min(n, largest)).round().astype(int)
        for n in (height, width)
    )
    figure = new_figure(0.4 * len(columns) + 2, 0.4 * len(rows) + 1)
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for (i, j), axis in np.ndenumerate(axes):
        picture = axis.imshow(
            result.similarity[rows[i], columns[j]], cmap="cividis", vmin=-1, vmax=1
        )
        axis.set_xticks([])
        axis.set_yticks([])
        if i == len(rows) - 1:
            axis.set_xlabel(str(columns[j]))
        if j == 0:
            axis.set_ylabel(str(rows[i]))
    figure.colorbar(picture, ax=axes, label="cosine similarity")
    figure.supxlabel("column of the patch")
    figure.supylabel("row of the patch")
    return figure


def _lacking(name: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"`result` must have `{name}`. Received: None, as the model {why}.", "result"
    )
