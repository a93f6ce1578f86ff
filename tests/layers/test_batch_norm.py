import keras
import numpy as np
import pytest

from kerasvit.layers import BatchNormalization
from tests.contract import check_layer, to_numpy

SHAPE = (3, 4, 5, 6)


def pair(**options):
    """Returns this layer and Keras's with the same values."""
    layers = [BatchNormalization(**options), keras.layers.BatchNormalization(**options)]
    for layer in layers:
        layer.build((None, None, None, SHAPE[-1]))
        rng = np.random.default_rng(0)
        layer.set_weights([rng.uniform(0.5, 2, w.shape) for w in layer.weights])
    return layers


def maps(mean=0.0):
    return (np.random.default_rng(1).normal(size=SHAPE) + mean).astype("float32")


def test_contract():
    check_layer(
        BatchNormalization(),
        input_shape=SHAPE,
        output_shape=SHAPE,
        parameters=6 + 6 + 6 + 6,
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, {"scale": False}, {"center": False}])
def test_is_keras_layer(training, options):
    ours, theirs = pair(epsilon=1e-5, momentum=0.9, **options)
    x = maps(mean=3.0)
    found, expected = (layer(x, training=training) for layer in (ours, theirs))
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=2e-5)
    assert [w.name for w in ours.weights] == [w.name for w in theirs.weights]
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


def test_frozen_keeps_its_statistics():
    ours, theirs = pair()
    before = ours.get_weights()
    for layer in (ours, theirs):
        layer.trainable = False
    found, expected = (layer(maps(), training=True) for layer in (ours, theirs))
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=2e-5)
    np.testing.assert_array_equal(before[2:], ours.get_weights()[2:])


def test_equal_pixels_have_no_variance():
    layer = BatchNormalization(momentum=0.0)
    layer(np.full(SHAPE, 7.0, "float32"), training=True)
    assert np.all(layer.get_weights()[3] >= 0)
    np.testing.assert_allclose(layer.get_weights()[3], 0, atol=1e-8)


@pytest.mark.slow
def test_masks_vectors_and_other_axes_are_keras_own():
    for shape, options in (((3, 6), {}), ((3, 6, 4, 4), {"axis": 1})):
        layers = (
            BatchNormalization(**options),
            keras.layers.BatchNormalization(**options),
        )
        x = np.random.default_rng(2).normal(size=shape).astype("float32")
        found, expected = (to_numpy(layer(x, training=True)) for layer in layers)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    ours, theirs = pair()
    mask = np.arange(60).reshape(SHAPE[:3]) % 3 > 0
    found, expected = (x(maps(), training=True, mask=mask) for x in (ours, theirs))
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=1e-5)


def test_bfloat16_keeps_statistics_in_float32():
    half = BatchNormalization(dtype="mixed_bfloat16", momentum=0.0)
    x = np.random.default_rng(1).integers(-4, 5, SHAPE) / 2 + 8  # exact in bfloat16
    result = half(x.astype("float32"), training=True)
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"
    np.testing.assert_allclose(half.get_weights()[3], x.var((0, 1, 2)), rtol=1e-5)


def test_files_of_keras_layer_load(tmp_path):
    layers = BatchNormalization, keras.layers.BatchNormalization
    image = keras.Input(SHAPE[1:])
    models = [keras.Model(image, layer()(image)) for layer in layers]
    values = [np.full(6, i + 1.0) for i in range(4)]
    for ours, theirs in (models, reversed(models)):
        theirs.set_weights(values)
        theirs.save_weights(tmp_path / "of.weights.h5")
        ours.set_weights([np.zeros(6)] * 4)
        ours.load_weights(tmp_path / "of.weights.h5")
        np.testing.assert_array_equal(ours.get_weights(), values)


@pytest.mark.only_on("torch", reason="its own operation")
def test_statistics_may_change_before_the_backward_pass():
    import torch

    layer, _ = pair()
    kernel = torch.ones(SHAPE[-1], requires_grad=True)
    first = layer(torch.tensor(maps()) * kernel, training=False)
    expected = torch.autograd.grad(first.square().sum(), kernel, retain_graph=True)
    layer(torch.tensor(maps(mean=9.0)), training=True)
    found = torch.autograd.grad(first.square().sum(), kernel)
    np.testing.assert_array_equal(*map(to_numpy, (found[0], expected[0])))
