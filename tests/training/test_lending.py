"""A model's `compute_loss` can use the trainer's compiled loss and optimizer."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.backend import keras_private
from kerasvit.training import SAM
from tests.trainers import (
    MODES,
    NAMES,
    RATE,
    TRAINERS,
    assert_same,
    batch,
    compiled,
    values,
)

pytestmark = pytest.mark.slow

backend = keras.backend.backend()
both_ways = pytest.mark.parametrize("options", MODES.values(), ids=[*MODES])


class Annealed(keras.Model):
    """A loss whose weight depends on the optimizer's updates and learning rate."""

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        done = ops.cast(self.optimizer.iterations, "float32")
        rate = ops.cast(self.optimizer.learning_rate, "float32")
        return (1.0 + done) * rate * loss


class Weighted(keras.Model):
    """The same loss with the number of updates as an attribute."""

    factor = RATE

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return self.factor * loss


def network(kind):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((5,))
    hidden = layers.Dense(4, activation="tanh")(inputs)
    return kind(inputs, layers.Dense(3)(hidden))


@both_ways
@pytest.mark.parametrize("name", sorted({*NAMES} - {"gsam", "sam_on"}))
def test_the_loss_can_read_the_optimizer_of_the_trainer(name, options):
    trainer = compiled(TRAINERS[name](network(Annealed)), **options)
    longhand = compiled(TRAINERS[name](network(Weighted)))
    for i in range(3):
        longhand.model.factor = RATE * (1 + i)
        for each in (trainer, longhand):
            each.train_on_batch(*batch(seed=i))
    assert_same(values(trainer.model), values(longhand.model), 1e-5)


def test_a_loss_scale_is_the_trainers_too():
    keras.config.set_dtype_policy("mixed_float16")
    trainer = compiled(SAM(network(Annealed), 0.3))
    longhand = compiled(SAM(network(Weighted), 0.3))
    for i in range(2):
        longhand.model.factor = RATE * (1 + i)
        for each in (trainer, longhand):
            each.train_on_batch(*batch(seed=i))
    assert int(trainer.optimizer.iterations) == 2
    assert_same(values(trainer.model), values(longhand.model), 2e-3)


def test_the_models_own_compilation_stays():
    model = network(Annealed)
    optimizer = keras.optimizers.Adam(0.5)
    model.compile(optimizer, "mae", metrics=["mse"])
    kept = [model.optimizer, model.loss, model._compile_loss, model._compile_metrics]
    trainer = compiled(SAM(model, 0.3), metrics=["mae"])
    trainer.train_on_batch(*batch())
    trainer.test_on_batch(*batch())
    now = [model.optimizer, model.loss, model._compile_loss, model._compile_metrics]
    assert all(a is b for a, b in zip(now, kept, strict=True))
    assert int(optimizer.iterations) == 0


class Fails(keras.Model):
    def compute_loss(self, *arguments, **options):
        assert self.optimizer is self.expected
        raise KeyError("from the loss")


@pytest.mark.parametrize("own", [None, "adam"])
def test_an_error_in_a_step_restores_the_model(own):
    model = network(Fails)
    if own is not None:
        model.compile(own, "mae")
    kept = {name: vars(model).get(name) for name in keras_private._COMPILED}
    trainer = compiled(SAM(model, 0.3))
    model.expected = trainer.optimizer
    for step in (trainer.train_on_batch, trainer.test_on_batch):
        with pytest.raises(KeyError):
            step(*batch())
        assert {name: vars(model).get(name) for name in kept} == kept
        assert ("optimizer" in vars(model)) == (own is not None)


@pytest.mark.parametrize("name", ["sam", "parts"])
def test_a_step_lends_attributes_once(name, monkeypatch):
    trainer = compiled(TRAINERS[name](network(Annealed)), metrics=["mae"])
    trainer.train_on_batch(*batch())
    x, y = (ops.convert_to_tensor(a) for a in batch())
    popped, times = keras_private._popped, []
    counted = lambda a: times.append(1) or popped(a)  # noqa: E731
    monkeypatch.setattr(keras_private, "_popped", counted)
    if backend == "jax":
        state = trainer._get_jax_state(
            trainable_variables=True,
            non_trainable_variables=True,
            optimizer_variables=True,
            metrics_variables=True,
        )
        times.clear()
        trainer.train_step(state, (x, y))
    else:
        trainer.train_step((x, y))
    assert len(times) == 2  # in and out
    assert np.isfinite(values(trainer.model)[0]).all()
