import keras
import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy

SETTINGS = {
    "plain": {},
    "amsgrad": {"amsgrad": True},
    "decay": {"weight_decay": 0.1, "epsilon": 1e-3, "beta_1": 0.8, "beta_2": 0.95},
    "clip": {"global_clipnorm": 0.5, "use_ema": True, "ema_momentum": 0.9},
    "accumulation": {"gradient_accumulation_steps": 2},
    "schedule": {"learning_rate": keras.optimizers.schedules.CosineDecay(1e-2, 8)},
}


def trained(make, settings, steps=8, dtype="float32"):
    """Weights and optimizer after steps with the same gradients."""
    rng = np.random.default_rng(0)
    dtypes = dtype if isinstance(dtype, list) else [dtype] * 3
    weights = [
        keras.Variable(rng.normal(size=shape), dtype=each)
        for shape, each in zip(((3, 4), (5,), ()), dtypes, strict=True)
    ]
    optimizer = make(**{"learning_rate": 1e-2, **settings})
    for _ in range(steps):
        gradients = [rng.normal(size=weight.shape) for weight in weights]
        gradients = [
            keras.ops.convert_to_tensor(each, weight.dtype)
            for each, weight in zip(gradients, weights, strict=True)
        ]
        optimizer.apply(gradients, weights)
    return [to_numpy(weight) for weight in weights], optimizer


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_trains_as_keras(name):
    ours, optimizer = trained(kerasvit.AdamW, SETTINGS[name])
    theirs, other = trained(keras.optimizers.AdamW, SETTINGS[name])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(optimizer.variables, other.variables, strict=True):
        np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=1e-5, atol=1e-6)


@pytest.mark.only_on("torch", reason="PyTorch's own update")
@pytest.mark.parametrize("name", SETTINGS)
def test_trains_as_keras_off_a_cpu(name, monkeypatch):
    """The update of other devices, which a CPU stands for."""
    from kerasvit.backend.torch import optimizers

    monkeypatch.setattr(optimizers, "_have_fused_update", lambda weights: False)
    test_trains_as_keras(name)


def test_gradients_may_lie_in_memory_in_another_order():
    """A transposed tensor, and a part of a larger one."""
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (4, 5)]
    values = [rng.normal(size=shape).astype("float32") for shape in shapes]
    found = []
    for make in (kerasvit.AdamW, keras.optimizers.AdamW):
        weights = [keras.Variable(value) for value in values]
        optimizer = make(1e-2)
        for step in range(3):
            random = np.random.default_rng(step).normal(size=(4, 8)).astype("float32")
            tensor = keras.ops.convert_to_tensor(random)
            optimizer.apply(
                [keras.ops.transpose(tensor[:, :3]), tensor[:, 3:]], weights
            )
        found.append([to_numpy(weight) for weight in weights])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.not_on("jax", reason="JAX has no float64")
@pytest.mark.parametrize("name", ["plain", "amsgrad"])
def test_trains_weights_of_two_dtypes(name):
    dtypes = ["float32", "float64", "float32"]
    ours, _ = trained(kerasvit.AdamW, SETTINGS[name], dtype=dtypes)
    exact, _ = trained(keras.optimizers.AdamW, SETTINGS[name])
    for a, b in zip(ours, exact, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_weight_decay_of_no_weight():
    weight = keras.Variable([1.0], name="bias")
    optimizer = kerasvit.AdamW(1e-2, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer.apply([keras.ops.ones(1)], [weight])
    np.testing.assert_allclose(to_numpy(weight), [0.99], rtol=1e-5)


def test_trains_weights_of_16_bits():
    settings = {"beta_2": 0.9}  # 0.999 is 1 in bfloat16
    start, _ = trained(kerasvit.AdamW, settings, steps=0, dtype="bfloat16")
    ours, _ = trained(kerasvit.AdamW, settings, dtype="bfloat16")
    theirs, _ = trained(keras.optimizers.AdamW, settings, dtype="bfloat16")
    assert np.any(start[0] != ours[0])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.astype("float32"), b.astype("float32"), atol=0.01)


@pytest.mark.not_on("jax", reason="has 32 bits by default")
def test_weights_of_64_bits_by_hand():
    rng = np.random.default_rng(0)
    expected, mean, square = rng.normal(size=3), 0, 0
    weight = keras.Variable(expected, dtype="float64")
    optimizer = kerasvit.AdamW(1e-2, weight_decay=0.1, epsilon=1e-7)
    for step in range(1, 51):
        gradient = rng.normal(size=3)
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float64")], [weight])
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        rate = 1e-2 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        expected = expected * (1 - 1e-3) - rate * mean / (np.sqrt(square) + 1e-7)
    np.testing.assert_allclose(to_numpy(weight), expected, rtol=1e-6)


def test_layers_have_rates_of_their_own():
    layers = [
        keras.layers.Dense(4, name="dense"),
        keras.layers.Dense(2, name="dense_1"),
    ]
    model = keras.Sequential([keras.Input((3,)), *layers])
    before = [to_numpy(w) for w in model.trainable_variables]
    for make in (kerasvit.AdamW, keras.optimizers.AdamW):
        for weight, value in zip(model.trainable_variables, before):
            weight.assign(value)
        optimizer = kerasvit.layer_decay(
            make(1e-2, weight_decay=0.1), model, 0.5, groups=["dense/", "dense_1/"]
        )
        for _ in range(3):
            gradients = [keras.ops.ones(w.shape) for w in model.trainable_variables]
            optimizer.apply(gradients, model.trainable_variables)
        after = [to_numpy(w) for w in model.trainable_variables]
        if make is kerasvit.AdamW:
            ours = after
    for a, b in zip(ours, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_file_keeps_the_state(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(kerasvit.AdamW(1e-2, weight_decay=0.1), "mse")
    x, y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is kerasvit.AdamW
    for each in (model, loaded):
        each.fit(x, y, verbose=0)
    for a, b in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))
