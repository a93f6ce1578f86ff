import math

import keras
import numpy as np
import pytest

from kerasvit.layers import MixerBlock
from kerasvit.layers.resampling import KERNELS, resample_grid
from tests.contract import check_layer, to_numpy
from tests.once import on_last_backend

SIZES = {"tokens_mlp_dim": 5, "channels_mlp_dim": 7}


def block(grid, **changes):
    layer = MixerBlock(grid, **{**SIZES, **changes})
    layer.build((None, math.prod(grid), 4))
    rng = np.random.default_rng(0)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    return layer


def resampled(grid, old, **how):
    """The block for another grid."""
    new = block(grid, tokens_mlp_dim=old.tokens_mlp_dim)
    for variable, value in zip(new.weights, old.get_weights(), strict=True):
        variable.assign(
            new.resample(value, path=variable.path, source_grid=old.grid, **how)
        )
    return new


def hidden(layer, tokens):
    """Output of the first product over tokens, (D, tokens_mlp_dim)."""
    dense = layer.token_mixing.dense_0
    return to_numpy(dense(np.asarray(tokens, "float32").T))


@pytest.mark.slow
def test_contract():
    across = 6 * 5 + 5 + 5 * 6 + 6
    check_layer(
        MixerBlock((2, 3), **SIZES, stochastic_depth=0.0),
        input_shape=(2, 6, 4),
        output_shape=(2, 6, 4),
        parameters=across + 4 * 7 + 7 + 7 * 4 + 4 + 4 * 4,
    )


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def normal(x, gamma, beta, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt(x.var(-1, keepdims=True) + epsilon) * gamma + beta


def test_is_an_mlp_across_tokens_then_one_across_channels():
    layer = block((2, 3), epsilon=1e-3)
    x = np.random.default_rng(1).normal(size=(2, 6, 4)).astype("float32")
    weights = {
        "/".join(w.path.split("/")[1:]): to_numpy(w).astype("float64")
        for w in layer.weights
    }

    def mlp(y, name):
        for i, form in ((0, gelu), (1, lambda z: z)):
            part = f"{name}/dense_{i}"
            y = form(y @ weights[f"{part}/kernel"] + weights[f"{part}/bias"])
        return y

    def norm(y, name):
        return normal(y, weights[f"{name}/gamma"], weights[f"{name}/beta"], 1e-3)

    y = x + mlp(norm(x, "token_norm").swapaxes(1, 2), "token_mixing").swapaxes(1, 2)
    y = y + mlp(norm(y, "channel_norm"), "channel_mixing")
    np.testing.assert_allclose(to_numpy(layer(x)), y, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_stochastic_depth_is_for_training_only():
    layer = block((2, 3), stochastic_depth=0.9)
    x = np.random.default_rng(1).normal(size=(8, 6, 4)).astype("float32")
    still = to_numpy(layer(x))
    np.testing.assert_array_equal(still, to_numpy(layer(x, training=False)))
    trained = to_numpy(layer(x, training=True))
    dropped = np.isclose(trained, x).all(axis=(1, 2))
    assert 0 < dropped.sum()


def test_tokens_must_fill_the_grid():
    with pytest.raises(ValueError, match="2 × 3, 6. Received: 5"):
        MixerBlock((2, 3), **SIZES)(np.zeros((1, 5, 4), "float32"))


# Another grid.

OTHER = [(2, 2), (6, 2), (3, 4), (1, 9)]
GRIDS = [(5, 7), *(pytest.param(grid, marks=on_last_backend) for grid in OTHER)]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("grid", GRIDS)
def test_a_constant_keeps_its_hidden_values_and_a_smooth_answer(grid, kernel):
    old = block((3, 4))
    new = resampled(grid, old, kernel=kernel)
    channels = np.array([1.0, -2.0, 0.5, 3.0])
    before, after = np.tile(channels, (12, 1)), np.tile(channels, (math.prod(grid), 1))
    np.testing.assert_allclose(hidden(new, after), hidden(old, before), atol=1e-4)
    out_before, out_after = (
        to_numpy(layer.token_mixing(np.asarray(x.T[None], "float32")))[0].T
        for layer, x in ((old, before), (new, after))
    )
    expected = resample_grid(out_before.reshape(3, 4, 4), grid, kernel)
    np.testing.assert_allclose(out_after, expected.reshape(-1, 4), atol=2e-4)


def waves(grid):
    """A smooth image: the same half waves, sampled at the centres of the cells."""
    y, x = ((np.arange(n) + 0.5) / n for n in grid)
    rows = [np.cos(np.pi * y)[:, None] + 0 * x, y[:, None] * x, 0 * y[:, None] + x**2]
    rows.append(np.cos(np.pi * y)[:, None] * np.cos(np.pi * x))
    return np.stack(rows, axis=-1).reshape(-1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["bicubic_antialias", "bilinear_antialias"])
@pytest.mark.parametrize("grid", [(12, 12), (8, 12), (16, 16), (6, 6), (12, 6)])
def test_a_smooth_image_nearly_keeps_its_hidden_values(grid, kernel):
    old = block((8, 8), tokens_mlp_dim=64)
    new = resampled(grid, old, kernel=kernel)
    before, after = hidden(old, waves((8, 8))), hidden(new, waves(grid))
    assert np.abs(after - before).std() < 0.05 * before.std()


def test_the_same_grid_changes_nothing():
    old = block((3, 4))
    for one, other in zip(
        resampled((3, 4), old).get_weights(), old.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_weights_independent_of_the_grid_are_kept():
    old = block((3, 4))
    new = resampled((5, 2), old)
    changed = {
        "/".join(variable.path.split("/")[-3:])
        for variable, value in zip(new.weights, old.get_weights(), strict=True)
        if to_numpy(variable).shape != value.shape
    }
    names = ("dense_0/kernel", "dense_1/kernel", "dense_1/bias")
    assert changed == {f"token_mixing/{name}" for name in names}


def test_equal_counts_of_another_grid_are_resampled():
    old = block((3, 4))
    kernel = old.token_mixing.dense_0.kernel
    turned = block((4, 3)).resample(
        to_numpy(kernel), path=kernel.path, source_grid=(3, 4)
    )
    assert turned.shape == kernel.shape
    assert np.abs(turned - to_numpy(kernel)).max() > 0.1


def test_an_impossible_grid_is_named():
    layer = block((3, 4))
    path = layer.token_mixing.dense_0.kernel.path
    with pytest.raises(ValueError, match="mixing's kernel has 10 patch rows"):
        layer.resample(np.zeros((10, 5)), path=path)
    with pytest.raises(ValueError, match="Received: 3 × 3"):
        layer.resample(np.zeros((10, 5)), path=path, source_grid=(3, 3))


def test_gelu_in_tanh_form():
    x = np.random.default_rng(1).normal(size=(2, 6, 4)).astype("float32")
    exact, tanh = (
        to_numpy(block((2, 3), activation=name)(x)) for name in ("gelu", "gelu_tanh")
    )
    assert 0 < np.abs(exact - tanh).max() < 0.01
    with pytest.raises(ValueError, match="gelu_tanh.*relu"):
        keras.layers.deserialize(
            keras.layers.serialize(MixerBlock((2, 3), activation="relu", **SIZES))
        )(x)
