"""Centred kernel alignment, against longhand NumPy."""

import keras
import numpy as np
import pytest
from keras import layers

from kerasvit.inspection import Activations, cka
from kerasvit.inspection.features.cka import hsic
from tests.models.tiny import tiny
from tests.once import on_last_backend

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 16, 16, 3)).astype("float32")


def hsic_longhand(k, ell):
    n = len(k)
    k, ell = k.copy(), ell.copy()
    np.fill_diagonal(k, 0)
    np.fill_diagonal(ell, 0)
    ones = np.ones(n)
    trace = np.trace(k @ ell)
    means = (ones @ k @ ones) * (ones @ ell @ ones) / ((n - 1) * (n - 2))
    mixed = 2 / (n - 2) * (ones @ k @ ell @ ones)
    return (trace + means - mixed) / (n * (n - 3))


def rows(features):
    return features.reshape(len(features), -1).astype("float64")


def linear(a):
    return a @ a.T


def rbf(a, s=0.5):
    squares = ((a[:, None] - a[None]) ** 2).sum(-1)
    return np.exp(-squares / (2 * s**2 * np.median(squares)))


@pytest.mark.parametrize(
    ("kernel", "gram", "options"),
    [("linear", linear, {}), ("rbf", rbf, {"bandwidth": 0.5})],
)
def test_alignment_is_the_ratio_of_estimates_averaged_over_batches(
    kernel, gram, options
):
    model = tiny("VisionTransformer", depth=2)
    activations = Activations(model, r"(embedding|block_\d)$")
    found = cka(activations, X, kernel=kernel, batch_size=10, **options)
    assert found.names == found.other_names == activations.names
    features = [list(map(rows, batch)) for batch in activations.batches(X, 10)]
    sizes = [10, 10, 4]

    def mean(i, j):
        terms = [hsic_longhand(gram(f[i]), gram(f[j])) for f in features]
        return np.average(terms, weights=sizes)

    for i, j in np.ndindex(found.values.shape):
        expected = mean(i, j) / np.sqrt(mean(i, i) * mean(j, j))
        np.testing.assert_allclose(found.values[i, j], expected, rtol=1e-3, atol=1e-4)


def through(kernel):
    """A model whose layer "features" is a linear map of the pixels."""
    image = keras.Input((2, 2, 3))
    dense = layers.Dense(12, use_bias=False, name="features")
    model = keras.Model(image, dense(layers.Flatten()(image)))
    dense.kernel.assign(kernel)
    return Activations(model, "features")


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_rotated_and_scaled_features_are_the_same(kernel):
    x = RNG.normal(size=(30, 2, 2, 3)).astype("float32")
    rotation = np.linalg.qr(RNG.normal(size=(12, 12)))[0]
    same, rotated = through(np.eye(12)), through(3 * rotation)
    found = cka(same, x, rotated, kernel=kernel)
    np.testing.assert_allclose(found.values, 1, atol=1e-5)
    sheared = through(RNG.normal(size=(12, 12)) * np.arange(12))
    assert cka(same, x, sheared, kernel=kernel).values < 0.9


@on_last_backend
def test_independent_features_have_no_alignment_on_average():
    """The biased estimate would be near 1: there are more features than images."""
    a, b = RNG.normal(size=(2, 300, 6, 50))
    pairs = [hsic(np.stack([linear(p), linear(q)])) for p, q in zip(a, b)]
    found = np.mean(pairs, axis=0)
    assert abs(found[0, 1]) < 0.1 * np.sqrt(found[0, 0] * found[1, 1])


@on_last_backend
def test_models_with_different_layers_are_compared():
    found = cka(tiny("MLPMixer"), X, tiny("AlterNet"))
    assert found.names == ["mixer_block_0"]
    assert len(found.other_names) == 3
    assert found.values.shape == (1, 3)


@on_last_backend
@pytest.mark.parametrize(
    ("x", "options", "expected"),
    [
        (X, {"batch_size": 23}, "at least 4 images, the last one too. Received: 1"),
        (X[:3], {}, "at least 4 images"),
        (np.ones_like(X), {}, "features of 'mixer_block_0' must differ"),
        (X, {"kernel": "cosine"}, "`kernel` must be one of"),
        (X, {"kernel": "rbf", "bandwidth": 0}, "`bandwidth` must be"),
    ],
)
def test_images_without_an_estimate_are_errors(x, options, expected):
    with pytest.raises(ValueError, match=expected):
        cka(tiny("MLPMixer"), x, **options)
