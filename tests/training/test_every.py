"""The arguments `every` and `k`: perturbed steps and the steps between them."""

import keras
import numpy as np
import pytest

from kerasvit.training import SAM, LookSAM
from tests.trainers import (
    RATE,
    TRAINERS,
    assert_same,
    batch,
    compiled,
    small,
    values,
)

pytestmark = pytest.mark.slow

backend = keras.backend.backend()


def momentum(**options):
    return keras.optimizers.SGD(RATE, momentum=0.9, **options)


@pytest.mark.parametrize("name", ["sam", "asam", "gsam", "sam_on"])
def test_the_steps_between_are_plain(name):
    trainer = compiled(TRAINERS[name](small(), every=3), momentum())
    always = compiled(TRAINERS[name](small()), momentum())
    never = compiled(SAM(always.model, 0), always.optimizer)
    for i in range(5):
        x, y = batch(seed=i)
        trainer.train_on_batch(x, y)
        (never if i % 3 else always).train_on_batch(x, y)
    assert_same(values(trainer), values(always), 1e-5)


def test_updates_are_counted_and_not_batches():
    x, y = batch(12)
    trainer = compiled(
        SAM(small(), 0.3, every=2), momentum(gradient_accumulation_steps=2)
    )
    trainer.fit(x, y, 2, 2, shuffle=False, verbose=0)
    # Of twelve batches the first two of every four climb.
    optimizer = momentum(gradient_accumulation_steps=2)
    always = compiled(SAM(small(), 0.3), optimizer)
    never = compiled(SAM(always.model, 0), optimizer)
    for i in range(12):
        part = slice(2 * (i % 6), 2 * (i % 6) + 2)
        (never if i // 2 % 2 else always).train_on_batch(x[part], y[part])
    assert_same(values(trainer), values(always), 1e-5)


@pytest.mark.not_on("jax", reason="compiles for long; is in jax_devices.py")
def test_a_batch_that_overflows_is_not_counted():
    keras.config.set_dtype_policy("mixed_float16")

    def scaled(trainer):
        optimizer = momentum(gradient_accumulation_steps=2)
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, 64.0)
        return compiled(trainer, optimizer)

    x, y = batch(6)
    trainer, always = scaled(SAM(small(), 0.3, every=2)), scaled(SAM(small(), 0.3))
    never = compiled(SAM(always.model, 0), always.optimizer)
    # Two batches make an update, the one with Inf makes none.
    for climbs in (True, None, True, False, None, False, True, True):
        inputs = np.full_like(x, np.inf) if climbs is None else x
        trainer.train_on_batch(inputs, y)
        if climbs is not None:
            (always if climbs else never).train_on_batch(x, y)
    assert trainer.batches == 6
    found, expected = (
        [keras.ops.convert_to_numpy(v) for v in each.trainable_variables]
        for each in (trainer, always)
    )
    assert_same(found, expected, 1e-3)


def test_looksam_adds_the_stored_direction():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    trainer = compiled(LookSAM(model, 0.4, 3, 0.6))
    w = [np.asarray(v, "float64") for v in model.get_weights()]

    def gradient(w):
        residual = 2 * (x @ w[0] + w[1] - y) / y.size
        return np.concatenate([(x.T @ residual).ravel(), residual.sum(0)])

    def moved(w, step):
        return [w[0] + step[:15].reshape(5, 3), w[1] + step[15:]]

    for i in range(5):
        x, y = batch(seed=i)
        g = gradient(w)
        length = np.linalg.norm(g)
        if i % 3 == 0:
            final = gradient(moved(w, 0.4 * g / length))
            seen = final - (final @ g) * g / length**2
        else:
            final = g + 0.6 * length / np.linalg.norm(seen) * seen
        w = moved(w, -RATE * final)
        trainer.train_on_batch(x, y)
        assert_same(model.get_weights(), w, 1e-5)
        memory = trainer.slots_of(model.trainable_variables)
        found = np.concatenate([keras.ops.convert_to_numpy(v).ravel() for v in memory])
        np.testing.assert_allclose(found, seen, atol=1e-6)


@pytest.mark.parametrize("name", ["every", "looksam"])
def test_several_steps_per_execution(name):
    x, y = batch(20)  # batches of two magnify rounding
    trainer = TRAINERS[name](small())
    xla = backend != "torch"
    many = {"run_eagerly": False, "jit_compile": xla, "steps_per_execution": 3}
    if backend == "torch" and keras.version() < "3.16":
        with pytest.raises(ValueError, match="steps_per_execution"):
            compiled(trainer, **many).fit(x, y, 4, verbose=0)
        return
    history = compiled(trainer, momentum(), **many).fit(
        x, y, 4, 2, shuffle=False, verbose=0
    )
    single = compiled(TRAINERS[name](small()), momentum())
    expected = single.fit(x, y, 4, 2, shuffle=False, verbose=0)
    assert_same(values(trainer), values(single), 1e-5)
    assert_same([history.history["loss"]], [expected.history["loss"]], 1e-5)
    assert trainer.batches == single.batches == 10


def test_compile_restarts_the_period():
    trainer = compiled(TRAINERS["every"](small()))
    trainer.train_on_batch(*batch())
    assert (trainer.batches, trainer.every) == (1, 2)
    compiled(trainer)
    assert trainer.batches == 0


def test_looksam_without_a_radius_is_plain_training():
    plain, trainer = compiled(small()), compiled(LookSAM(small(), 0.0, k=2))
    for _ in range(4):
        for each in (plain, trainer):
            each.train_on_batch(*batch())
    assert_same(values(trainer.model), values(plain), 1e-6)


def test_looksam_names_the_period_k():
    with pytest.raises(ValueError, match="`every` is LookSAM's `k`"):
        LookSAM(small(), every=3)
    assert LookSAM(small(), k=3).k == 3


def test_a_weight_without_a_stored_gradient():
    model = small()
    model.get_layer("hidden").trainable = False
    trainer = compiled(LookSAM(model))
    model.get_layer("hidden").trainable = True
    with pytest.raises(ValueError, match="Compile it again|[Oo]ptimizer|variable"):
        trainer.train_on_batch(*batch())
