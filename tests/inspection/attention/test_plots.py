"""Figures of attention and embeddings."""

import builtins
import sys

import numpy as np
import pytest

from kerasvit.inspection import (
    AttentionMaps,
    Embeddings,
    Landscape,
    LayerAttention,
    ReceptiveFields,
    plot_attention,
    plot_distances,
    plot_filters,
    plot_heads,
    plot_landscape,
    plot_positions,
    plot_receptive_fields,
)
from tests.once import on_last_backend

pytestmark = on_last_backend

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(2, 8, 12, 3))


def layer(heads=3, distance=True):
    return LayerAttention(
        weights=None,
        heat=RNG.uniform(size=(2, heads, 2, 3)),
        distance=RNG.uniform(size=(2, heads)) if distance else None,
        grid=(2, 3),
    )


def maps(rollout=True):
    layers = {"first": layer(), "second": layer(5), "pool": layer(1, distance=False)}
    heat = RNG.uniform(size=(2, 2, 3)) if rollout else None
    return AttentionMaps(layers, heat, (8, 12))


RESULT = Embeddings(
    RNG.normal(size=(9, 4, 4, 3)),
    np.full(9, 0.1),
    RNG.uniform(-1, 1, size=(2, 3, 2, 3)),
)


def pictures(figure):
    """The arrays of the images in a figure; drawing it finds errors."""
    figure.canvas.draw()
    return [image.get_array() for axis in figure.axes for image in axis.get_images()]


def labels(figure):
    axes = figure.axes
    return {axis.get_xlabel() for axis in axes} | {axis.get_ylabel() for axis in axes}


def test_images_heat_and_rollout():
    result = maps()
    figure = plot_attention(result, IMAGES)
    found = pictures(figure)
    assert len(found) == 6
    np.testing.assert_allclose(found[2], 100 * result.heat[0])
    np.testing.assert_allclose(found[5], 100 * result.rollout[1])
    assert labels(figure) == {"pixels", "attention in %", ""}
    assert len(pictures(plot_attention(maps(rollout=False), IMAGES, columns=1))) == 2


def test_heads_of_a_layer():
    result = maps()
    figure = plot_heads(result, "second", image=1)
    for head, picture in enumerate(pictures(figure)):
        np.testing.assert_allclose(picture, 100 * result.layers["second"].heat[1, head])
    assert figure.get_supxlabel() == "pixels"
    assert figure.get_suptitle() == "second, image 1"
    assert len(pictures(plot_heads(result))) == 1  # of the last layer


def test_distances_by_depth():
    result = maps()
    figure = plot_distances(result)
    figure.canvas.draw()
    (axis,) = figure.axes
    first, second = (points.get_offsets() for points in axis.collections)
    expected = result.layers["first"].distance.mean(0)
    np.testing.assert_allclose(first, np.stack([[1, 1, 1], expected], 1))
    assert len(second) == 5
    assert labels(figure) == {"attention layer", "mean distance of a head in pixels"}


def test_filters_and_positions():
    figure = plot_filters(RESULT)
    found = pictures(figure)
    assert len(found) == 9
    assert all(0 <= each.min() and each.max() <= 1 for each in found)
    figure = plot_positions(RESULT)
    np.testing.assert_allclose(pictures(figure)[4], RESULT.similarity[1, 1])
    assert "cosine similarity" in labels(figure)
    assert len(pictures(plot_positions(RESULT, largest=2))) == 4


def test_no_figure_belongs_to_pyplot():
    before = set(sys.modules)
    plot_distances(maps())
    assert "matplotlib.pyplot" not in set(sys.modules) - before


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda: plot_attention(maps(), IMAGES[:1]), r"2 of 8 × 12 .*\(1, 8, 12, 3\)"),
        (lambda: plot_heads(maps(), "third"), "'first', 'second', 'pool'.*'third'"),
        (lambda: plot_heads(maps(), image=2), r"`image` .*in \[0, 1\].*image=2"),
        (lambda: plot_filters(Embeddings(None, None, None)), "must have `filters`"),
        (lambda: plot_positions(Embeddings(None, None, None)), "`similarity`"),
    ],
)
def test_what_cannot_be_drawn(draw, expected):
    with pytest.raises(ValueError, match=expected):
        draw()


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_distances(maps()),
        lambda: plot_landscape(Landscape(np.ones((2, 2)), (np.arange(2.0),) * 2)),
        lambda: plot_receptive_fields(ReceptiveFields(["a"], np.ones((1, 2, 2)))),
    ],
)
def test_matplotlib_is_missing(monkeypatch, draw):
    load = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        draw()
