import keras
import numpy as np
import pytest

from kerasvit.layers.dense import Dense
from tests.contract import check_layer, to_numpy


def test_contract():
    check_layer(Dense(5), input_shape=(3, 4), output_shape=(3, 5), parameters=25)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
@pytest.mark.parametrize("changes", [{}, {"use_bias": False}, {"activation": "relu"}])
def test_is_the_layer_of_keras(shape, changes):
    layer, expected = Dense(5, **changes), keras.layers.Dense(5, **changes)
    for one in (layer, expected):
        one.build(shape)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=w.shape) for w in expected.weights]
    layer.set_weights(values), expected.set_weights(values)
    x = rng.normal(size=shape).astype("float32")
    np.testing.assert_allclose(to_numpy(layer(x)), to_numpy(expected(x)), atol=1e-6)


def test_low_rank_adaptation_and_quantisation_still_work():
    rows = np.random.default_rng(0).normal(size=(3, 8)).astype("float32")
    layer = Dense(8, bias_initializer="ones")
    plain = to_numpy(layer(rows))
    layer.quantize("int8")
    assert np.abs(to_numpy(layer(rows)) - plain).max() < 0.05 * np.abs(plain).max()
    layer = Dense(8)
    layer.build((None, 8))
    layer.enable_lora(2)
    before = to_numpy(layer(rows))
    layer.lora_kernel_b.assign(np.ones((2, 8)))
    assert np.abs(to_numpy(layer(rows)) - before).max() > 0.1
