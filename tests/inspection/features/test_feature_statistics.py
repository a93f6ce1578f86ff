"""Variance of features and share of active neurons, against longhand NumPy."""

import math

import keras
import numpy as np
import pytest
from keras import layers

from kerasvit.inspection import Activations, active_share, feature_variance
from tests.models.tiny import tiny
from tests.once import mainly_on_last, on_last_backend

X = np.random.default_rng(0).normal(size=(3, 16, 16, 3)).astype("float32")


@pytest.mark.parametrize(
    "name", mainly_on_last(["VisionTransformer", "MLPMixer", "SwinTransformer"])
)
def test_variance_is_over_the_cells_and_then_averaged(name):
    model = tiny(name)
    found = feature_variance(model, X, batch_size=2)
    (maps,) = Activations(model).maps(X)
    assert list(found) == Activations(model).names
    for value, each in zip(found.values(), maps, strict=True):
        cells = each.reshape(3, -1, each.shape[-1]).astype("float64")
        squares = (cells - cells.mean(1, keepdims=True)) ** 2
        variances = squares.sum(1) / (cells.shape[1] - 1)  # (images, channels)
        np.testing.assert_allclose(value, variances.mean(), rtol=1e-4)


@on_last_backend
def test_a_map_of_one_cell_has_no_variance():
    image = keras.Input((16, 16, 3))
    x = layers.MaxPooling2D(16, data_format="channels_last", name="pool")(image)
    model = keras.Model(image, x)
    with pytest.raises(ValueError, match="2 cells.*of 'pool'"):
        feature_variance(Activations(model, "pool$"), X)


def test_neurons_are_active_where_the_activation_is_above_zero():
    model = tiny("VisionTransformer")
    found = active_share(model, X, batch_size=2)
    assert list(found) == ["encoder_block_0/mlp/dense_1"]
    ((normed,),) = Activations(model, "mlp_norm$").batches(X)
    kernel, bias = (np.array(v) for v in model.get_layer("encoder_block_0").mlp
                    .dense_0.get_weights())  # fmt: skip
    hidden = normed.astype("float64") @ kernel + bias
    tail = np.vectorize(math.erf)(hidden / np.sqrt(2))
    after = 0.5 * hidden * (1 + tail)  # GELU
    np.testing.assert_allclose(list(found.values()), np.mean(after > 0), atol=1e-3)


@on_last_backend
def test_neurons_of_a_gated_mlp_are_the_products_with_the_gate():
    model = tiny("VisionTransformer", mlp="swiglu")
    found = active_share(model, X)
    ((normed,),) = Activations(model, "mlp_norm$").batches(X)
    mlp = model.get_layer("encoder_block_0").mlp
    gate, values = (
        normed.astype("float64") @ kernel + bias
        for kernel, bias in (mlp.gate.get_weights(), mlp.dense_0.get_weights())
    )
    expected = np.mean(gate * values > 0)  # silu has the sign of its argument
    np.testing.assert_allclose(list(found.values()), expected, atol=1e-3)


@on_last_backend
def test_both_mlps_of_a_mixer_have_neurons():
    found = active_share(tiny("MLPMixer"), X)
    block = "mixer_block_0"
    assert list(found) == [
        *(f"{block}/token_mixing/dense_1", f"{block}/channel_mixing/dense_1"),
    ]
    assert all(0 < share < 1 for share in found.values())


@on_last_backend
def test_neurons_of_a_resnet_are_chosen_by_their_normalisation():
    model = tiny("PreActResNet")
    found = active_share(Activations(model, "norm_1$"), X)
    assert list(found) == ["stage_0_unit_0/norm_1", "stage_1_unit_0/norm_1"]
    with pytest.raises(ValueError, match="`layers` must be a regular expression"):
        active_share(model, X)
