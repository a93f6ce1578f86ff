import keras
import numpy as np
import pytest
from keras import ops

from kerasvit.layers import LayerNormalization
from tests.contract import check_layer, to_numpy


def values(shape):
    return np.random.default_rng(1).normal(3.0, 2.0, shape).astype("float32")


def test_contract():
    check_layer(
        LayerNormalization(),
        input_shape=(3, 5, 6),
        output_shape=(3, 5, 6),
        parameters=12,
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 6), (3, 5, 6), (2, 3, 4, 6), (0, 5, 6)])
@pytest.mark.parametrize("options", [{}, {"scale": False}, {"center": False}])
def test_is_keras_layer(shape, options):
    layers = [
        f(**options) for f in (LayerNormalization, keras.layers.LayerNormalization)
    ]
    for layer in layers:
        layer.build((None, *shape[1:]))
        rng = np.random.default_rng(0)
        layer.set_weights([rng.uniform(0.5, 2, w.shape) for w in layer.weights])
    ours, theirs = layers
    found, expected = (to_numpy(layer(values(shape))) for layer in layers)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert [w.name for w in ours.weights] == [w.name for w in theirs.weights]


@pytest.mark.parametrize("axis", [2, (1, 2), (-2, -1)])
def test_other_axes_are_keras_own(axis):
    x = values((3, 4, 6))
    found, expected = (
        to_numpy(layer(axis=axis)(x))
        for layer in (LayerNormalization, keras.layers.LayerNormalization)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(("built", "given"), [(8, 1), (1, 8)])
def test_other_widths_are_refused(built, given):
    layer = LayerNormalization()
    layer.build((None, built))
    with pytest.raises(ValueError, match=f"axis -1 .* to have value {built}"):
        layer(values((2, given)))


@pytest.mark.parametrize("options", [{"rms_scaling": True}, {"epsilon": None}])
def test_other_options_are_keras_own(options):
    layers = LayerNormalization, keras.layers.LayerNormalization
    found, expected = (to_numpy(each(**options)(values((3, 6)))) for each in layers)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_longhand():
    x = values((3, 5, 6))
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(
        x.var(-1, keepdims=True) + 1e-6
    )
    np.testing.assert_allclose(
        to_numpy(LayerNormalization(epsilon=1e-6)(x)), expected, atol=1e-5
    )


def test_bfloat16_is_rounded_at_the_end():
    layer = LayerNormalization(dtype="mixed_bfloat16")
    x = ops.cast(values((2, 5, 6)), "bfloat16")
    result = layer(x)
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"
    exact = to_numpy(LayerNormalization()(ops.cast(x, "float32")))
    rounded = to_numpy(ops.cast(ops.cast(exact, "bfloat16"), "float32"))
    np.testing.assert_array_equal(to_numpy(ops.cast(result, "float32")), rounded)


def test_sizes_that_are_not_known():
    image = keras.Input((None, None, 6))
    model = keras.Model(image, LayerNormalization()(image))
    assert model.output_shape == (None, None, None, 6)
    x = values((2, 3, 4, 6))
    np.testing.assert_allclose(
        to_numpy(model(x)), to_numpy(LayerNormalization()(x)), atol=1e-6
    )


def test_files_of_keras_layer_load(tmp_path):
    layers = LayerNormalization, keras.layers.LayerNormalization
    tokens = keras.Input((5, 6))
    models = [keras.Model(tokens, layer()(tokens)) for layer in layers]
    for ours, theirs in (models, reversed(models)):
        theirs.set_weights([np.full(6, 2.0), np.full(6, 3.0)])
        theirs.save_weights(tmp_path / "of.weights.h5")
        ours.set_weights([np.zeros(6)] * 2)
        ours.load_weights(tmp_path / "of.weights.h5")
        np.testing.assert_array_equal(ours.get_weights(), theirs.get_weights())


@pytest.mark.parametrize("mode", ["full", "list_of_layers"])
def test_it_is_computed_again(mode):
    with keras.RematScope(mode, layer_names=["norm"]):
        layer = LayerNormalization(name="norm")
    model = keras.Sequential([keras.Input((6,)), layer, keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    assert np.isfinite(model.train_on_batch(values((3, 6)), np.ones((3, 2))))
