"""Overflow in one of the passes, and float64 weights."""

import contextlib

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.training import ASAM, GSAM, MSAM, SAM, SAMON, FriendlySAM, LookSAM
from tests.trainers import NAMES, RATE, TRAINERS, assert_same, batch, small, values

pytestmark = pytest.mark.slow

backend = keras.backend.backend()


@pytest.mark.parametrize("name", sorted({*NAMES, "sam"} - {"msam"}))
@pytest.mark.parametrize("bad", [np.inf, 1e30] if backend == "torch" else [np.inf])
def test_an_overflow_of_the_first_pass_that_the_second_hides(name, bad):
    """Max-pooling on TensorFlow can hide that weights are NaN.

    1e30 is finite, and its square is not.
    """
    trainer = TRAINERS[name](small())
    step, fails = trainer.step_gradients, []

    def hiding(loss_and_gradients, weights, memory):
        passes = []

        def at(values):
            loss, gradients = loss_and_gradients(weights)  # whatever was asked for
            if fails and not passes:
                passes.append(1)
                gradients = [gradients[0] + bad, *gradients[1:]]
            return loss, gradients

        return step(at, weights, memory)

    trainer.step_gradients = hiding
    inner = keras.optimizers.SGD(RATE, momentum=0.9, global_clipnorm=1.0)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, 64.0)
    trainer.compile(optimizer, "mse", run_eagerly=True)
    for _ in range(2):  # those at which something is remembered, or not
        trainer.train_on_batch(*batch())
    before = values(trainer.model), values(inner), values(trainer)
    assert float(optimizer.dynamic_scale) == 64
    fails.append(1)
    trainer.train_on_batch(*batch())
    trained = [v.trainable for v in trainer.model.variables]
    for a, b, weight in zip(values(trainer.model), before[0], trained, strict=True):
        assert not weight or np.array_equal(a, b)
    assert_same(values(inner), before[1], 0)
    assert float(optimizer.dynamic_scale) == 32
    memory = trainer.slots_of(trainer.trainable_variables)
    held = {id(v): value for v, value in zip(trainer.variables, before[2])}
    for variable in memory:
        np.testing.assert_array_equal(
            ops.convert_to_numpy(variable), held[id(variable)]
        )
    fails.clear()
    trainer.train_on_batch(*batch())
    assert all(np.isfinite(v).all() for v in values(trainer))


def test_weights_that_diverge_without_a_loss_scale_become_nan():
    trainer = SAM(small(), 0.3)
    gradients = [ops.ones(v.shape) for v in trainer.trainable_variables]
    passes = []

    def loss_and_gradients(weights):
        passes.append(1)
        if len(passes) == 1:
            return None, [gradients[0] * float("inf"), *gradients[1:]]
        return None, list(gradients)

    weights = [ops.convert_to_tensor(v) for v in trainer.trainable_variables]
    found, _ = trainer.step_gradients(loss_and_gradients, weights, [])
    assert all(np.isnan(ops.convert_to_numpy(g)).all() for g in found)


RHO, ETA = 0.3, 0.01
DOUBLE = {
    "sam": lambda m: SAM(m, RHO),
    "schedule": lambda m: SAM(m, keras.optimizers.schedules.CosineDecay(0.25, 1)),
    "asam": lambda m: ASAM(m, RHO, eta=ETA),
    "gsam": lambda m: GSAM(m, RHO, 0.1, 0.4, lr_max=0.5, lr_min=0.5),
    "sam_on": lambda m: SAMON(m, RHO),
    "looksam": lambda m: LookSAM(m, RHO, 2, 0.7),
    "msam": lambda m: MSAM(m, RHO, 0.5),
    "friendly": lambda m: FriendlySAM(m, RHO, 0.6, 0.5),
}


def in_float64():
    if backend != "jax":
        return contextlib.nullcontext()
    import jax

    return jax.enable_x64(True)


def slope(w):
    """A gradient with equal results in NumPy and on every backend."""
    return w * w * w + w


def longhand(name, w, memory, variables):
    """The expected gradients for the optimizer and the expected memory."""

    def length(vector):
        return np.sqrt(sum(np.sum(v * v) for v in vector))

    def product(a, b):
        return sum(np.sum(x * y) for x, y in zip(a, b))

    g = [slope(v) for v in w]
    rho, up = (0.25 if name == "schedule" else RHO), g
    if name == "asam":
        t = [
            1.0 if v.name in ("bias", "beta") else np.abs(x) + ETA
            for v, x in zip(variables, w)
        ]
        scaled = [a * b for a, b in zip(t, g)]
        up = [a * b for a, b in zip(t, scaled)]
        factor = rho / length(scaled)
    elif name == "sam_on":
        up = [a * (v.name in ("gamma", "beta")) for v, a in zip(variables, g)]
    elif name == "msam":
        up, rho = memory, -rho
    elif name == "friendly":
        up = [a - 0.6 * m for a, m in zip(g, memory)]
    if name != "asam":
        factor = rho / length(up)
    above = [slope(a + factor * b) for a, b in zip(w, up)]
    if name == "gsam":
        share = product(g, above) / product(above, above)
        return [p - 0.4 * (a - share * p) for a, p in zip(g, above)], []
    if name == "looksam":
        share = product(above, g) / product(g, g)
        return above, [p - share * a for a, p in zip(g, above)]
    if name == "msam":
        return above, [0.5 * m + p for m, p in zip(memory, above)]
    if name == "friendly":
        return above, [0.5 * m + 0.5 * a for m, a in zip(memory, g)]
    return above, []


@pytest.mark.parametrize("name", DOUBLE)
def test_float64_weights_are_perturbed_in_float64(name):
    with in_float64():
        parts = [
            layers.Dense(4, dtype="float64"),
            layers.LayerNormalization(dtype="float64"),
            layers.Dense(3, dtype="float64"),
        ]
        model = keras.Sequential([keras.Input((5,), dtype="float64"), *parts])
        trainer = DOUBLE[name](model)
        trainer.compile("sgd", "mse")
        variables = trainer.trainable_variables
        rng = np.random.default_rng(0)
        w, v = ([rng.normal(size=v.shape) for v in variables] for _ in range(2))
        weights, memory = (
            [ops.convert_to_tensor(each, dtype="float64") for each in vector]
            for vector in (w, v)
        )
        memory = memory if name in ("looksam", "msam", "friendly") else []
        found = trainer.step_gradients(
            lambda values: (None, [slope(each) for each in values]), weights, memory
        )
        expected = longhand(name, w, v, variables)
        for vector, numbers in zip(found, expected, strict=True):
            for a, b in zip(vector, numbers, strict=True):
                a = ops.convert_to_numpy(a)
                assert a.dtype == np.float64
                np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
