"""Checks the requirements of every layer in one call."""

import keras
import numpy as np


def check_layer(layer, *, input_shape, output_shape, parameters):
    """Shape, parameter count, configuration, saving, mixed precision, gradients."""
    x = np.random.default_rng(0).normal(size=input_shape).astype("float32")
    y = layer(x)
    assert tuple(y.shape) == output_shape
    assert tuple(layer.compute_output_shape(input_shape)) == output_shape
    assert sum(int(np.prod(w.shape)) for w in layer.weights) == parameters
    _check_build(layer, input_shape)
    _check_config(layer, x, y)
    _check_saving(layer, x, y)
    _check_mixed_precision(layer, x, y)
    _check_gradients(layer, x)


def _check_build(layer, input_shape):
    """All sublayers are built: `predict` calls others eagerly first on JAX."""
    again = type(layer).from_config(layer.get_config())
    again.build(input_shape)
    unbuilt = [each.name for each in again._flatten_layers() if not each.built]
    assert not unbuilt, unbuilt


def _check_config(layer, x, y):
    again = type(layer).from_config(layer.get_config())
    again.build(x.shape)
    assert again.get_config() == layer.get_config()
    assert [w.path.split("/")[1:] for w in again.weights] == [
        w.path.split("/")[1:] for w in layer.weights
    ]
    again.set_weights(layer.get_weights())
    np.testing.assert_allclose(to_numpy(again(x)), to_numpy(y), rtol=1e-5, atol=1e-6)


def _check_saving(layer, x, y):
    import tempfile
    from pathlib import Path

    image = keras.Input(x.shape[1:])
    model = keras.Model(image, layer(image))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        again = keras.saving.load_model(path)
    np.testing.assert_allclose(to_numpy(again(x)), to_numpy(y), rtol=1e-5, atol=1e-6)


def _check_mixed_precision(layer, x, y):
    config = layer.get_config()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = type(layer).from_config({**config, "dtype": "mixed_bfloat16"})
        half.build(x.shape)
        half.set_weights(layer.get_weights())
        result = half(x)
    finally:
        keras.config.set_dtype_policy("float32")
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"
    assert all(w.dtype == "float32" for w in half.weights)
    scale = np.abs(to_numpy(y)).max()
    assert np.abs(to_numpy(result) - to_numpy(y)).max() < 0.05 * scale


def _check_gradients(layer, x):
    """One plain training step moves every trainable weight."""
    if not layer.trainable_weights:
        return
    image = keras.Input(x.shape[1:])
    model = keras.Model(image, layer(image))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    before = [w.copy() for w in layer.get_weights()]
    target = np.random.default_rng(1).normal(size=model(x).shape)
    model.fit(x, target, verbose=0)
    for weight, old in zip(layer.weights, before, strict=True):
        moved = np.abs(to_numpy(weight) - old).max()
        assert np.isfinite(moved), weight.path
        # Softmax is invariant to a constant added to all keys: the gradient is zero.
        assert moved > 0 or weight.path.endswith("key/bias"), weight.path


def call(model, x):
    """`model(x)`; JAX compiles a whole model faster than its operations one by one."""
    return model.predict_on_batch(x) if keras.backend.backend() == "jax" else model(x)


def to_numpy(tensor):
    """The tensor's values, float32, whatever the backend."""
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))


def check_key_map(key_map, model, zero_rows=0):
    """Checks that every variable has a name in the file and is read back unchanged.

    Args:
        key_map: `KeyMap`.
        model: Model.
        zero_rows: Rows of the position table after the first that are zeros, because
            the code base has no positions for registers.

    Returns:
        {name: tensor} of random values, as in the file.
    """
    rng = np.random.default_rng(0)
    arrays = {w.path: rng.normal(size=w.shape).astype("float32") for w in model.weights}
    if zero_rows:
        arrays["position_embedding/table"][:, 1 : 1 + zero_rows] = 0
    tensors, again = key_map.write(arrays), {}
    for name, tensor in tensors.items():
        paths, transform = key_map.find(name)
        again.update(zip(paths, transform.read(tensor), strict=True))
    assert again.keys() == arrays.keys()
    for path, array in arrays.items():
        np.testing.assert_array_equal(again[path], array)
    return tensors
