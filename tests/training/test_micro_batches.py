"""Micro-batches: an update is the mean of the updates of the parts."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.layers.stochastic_depth import StochasticDepth
from kerasvit.training import SAM
from tests.once import rest_long_elsewhere
from tests.trainers import (
    NAMES,
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


def one(name, x, y, weights, **options):
    """A trainer's variables after its first step, one batch of SGD."""
    trainer = compiled(TRAINERS[name](small(), **options))
    trainer.train_on_batch(x, y, sample_weight=weights)
    return values(trainer)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "parts"])
def test_the_update_is_the_mean_of_those_of_the_parts(name):
    x, y = batch(5)
    weights = np.array([1, 2, 0.5, 3, 1.5], "float32")
    # With SGD the mean of gradients gives the mean of weights; so it is with moving
    # statistics and with what a trainer remembers.
    expected = 0
    for part in (slice(0, 2), slice(2, 4), slice(4, 5)):
        after = one(name, x[part], y[part], weights[part], micro_batches=1)
        share = (part.stop - part.start) / 5
        expected = expected + np.array([share * v for v in after], dtype=object)
    assert_same(one(name, x, y, weights, micro_batches=3), expected)
    whole = one(name, x, y, weights, micro_batches=1)
    assert np.abs(whole[0] - expected[0]).max() > 1e-4


def test_more_parts_than_samples_is_one_part_a_sample():
    x, y = batch(3)
    each = [one("sam", x[i : i + 1], y[i : i + 1], None) for i in range(3)]
    mean = [sum(v) / 3 for v in zip(*each, strict=True)]
    assert_same(one("sam", x, y, None, micro_batches=9), mean)
    assert_same(one("sam", x[:1], y[:1], None, micro_batches=4), each[0], 1e-7)


class ScaleNorm(layers.Layer):
    """The weighted sum of its inputs."""

    def build(self, shape):
        self.gamma = self.add_weight(shape=shape[1:], initializer="ones", name="gamma")

    def call(self, inputs):
        return ops.sum(inputs * self.gamma, axis=-1, keepdims=True)


def noisy():
    parts = [layers.Dropout(0.5, seed=7), StochasticDepth(0.5, seed=8), ScaleNorm()]
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((64,)), *parts])


def slope(trainer, x):
    """Loss of a step, and its gradient."""
    before = trainer.model.get_weights()[0]
    loss = trainer.train_on_batch(x, np.zeros((len(x), 1), "float32"))
    return loss, (before - trainer.model.get_weights()[0]) / RATE


def seeds(trainer):
    return [
        ops.convert_to_numpy(v).tolist()
        for v in trainer.variables
        if v.name == "seed_generator_state"
    ]


@pytest.mark.parametrize("name", NAMES)
def test_masks_repeat_in_a_step_and_differ_between_parts_and_steps(name):
    x = np.random.default_rng(0).normal(size=(4, 64)).astype("float32")
    twice = np.concatenate([x, x])

    def trainer(parts):
        made = TRAINERS[name](noisy(), micro_batches=parts)
        return compiled(made, loss=lambda y, y_pred: y_pred)

    whole, halves = trainer(1), trainer(2)
    start = seeds(halves)
    # The loss is w · g, whatever w is, if the gradient is by the same masks.
    loss, gradient = slope(halves, twice)
    np.testing.assert_allclose(gradient.sum(), loss, rtol=1e-4)
    first_loss, first = slope(whole, x)
    np.testing.assert_allclose(first.sum(), first_loss, rtol=1e-4)
    assert np.abs(gradient - first).max() > 0.1  # the second half has other masks
    assert seeds(halves) == seeds(whole) != start
    assert np.abs(slope(whole, x)[1] - first).max() > 0.1


def named():
    """A model with named inputs and outputs, penalties and a static shape."""
    keras.utils.set_random_seed(1)
    inputs = {"a": keras.Input((5,), name="a"), "b": keras.Input((2, 1), name="b")}
    b = layers.Reshape((-1,))(inputs["b"])
    joined = layers.Concatenate()([inputs["a"], layers.Flatten()(b)])
    l2 = keras.regularizers.L2(0.1)
    kind = layers.Dense(3, kernel_regularizer=l2, name="kind")(joined)
    size = layers.Dense(1, activity_regularizer=l2, name="size")(joined)
    return keras.Model(inputs, {"kind": kind, "size": size})


def fitted(samples, **options):
    x, y = batch(samples)
    inputs = {"a": x, "b": x[:, :2, None]}
    targets = {"kind": y.argmax(1), "size": y[:, :1]}
    model = named()
    trainer = compiled(
        SAM(model, 0, **options),
        run_eagerly=False,  # where TensorFlow does not know the size of a batch
        jit_compile="auto",
        loss={
            "kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "size": "mse",
        },
        loss_weights={"kind": 1.0, "size": 0.5},
        metrics={"kind": ["accuracy"], "size": keras.metrics.RootMeanSquaredError()},
        weighted_metrics={"kind": ["accuracy"], "size": ["mae"]},
    )
    weights = np.linspace(0, 2, samples).astype("float32")
    history = trainer.fit(
        inputs, targets, 4, 2, sample_weight=weights, shuffle=False, verbose=0
    ).history
    measured = trainer.evaluate(inputs, targets, 4, verbose=0, return_dict=True)
    outputs = trainer.predict(inputs, 4, verbose=0)
    return history, measured, outputs, model.get_weights()


# The last of three batches has one sample, fewer than parts.
SIZES = [(9, 3)] if backend != "tensorflow" else [(9, 3), (8, 2)]


@pytest.mark.parametrize(("samples", "parts"), rest_long_elsewhere(SIZES))
def test_without_a_perturbation_parts_change_nothing(samples, parts):
    results = zip(fitted(samples), fitted(samples, micro_batches=parts), strict=True)
    for whole, joined in results:
        if not isinstance(whole, dict):
            assert_same(joined, whole, 5e-6)
            continue
        assert whole.keys() == joined.keys()
        for name in whole:
            if backend == "tensorflow" and name.endswith("_loss") and samples == 9:
                # Where Keras knows no size of a batch, a small one counts as much as
                # others in the mean of one output's loss; so do small parts.
                continue
            np.testing.assert_allclose(joined[name], whole[name], atol=5e-6)


@pytest.mark.only_on("jax", reason="JAX says what a compiled step needs")
def test_activations_are_those_of_one_part():
    import jax

    def bytes_needed(parts):
        wide = layers.Dense(256, activation="tanh")
        model = keras.Sequential([keras.Input((4,)), wide, layers.Dense(1)])
        trainer = compiled(SAM(model, micro_batches=parts))
        trainer.optimizer.build(trainer.trainable_variables)
        state = tuple(
            [v.value for v in variables]
            for variables in (
                trainer.trainable_variables,
                trainer.non_trainable_variables,
                trainer.optimizer.variables,
                trainer.metrics_variables,
            )
        )
        data = np.zeros((1024, 4), "float32"), np.zeros((1024, 1), "float32")
        step = jax.jit(trainer.train_step, donate_argnums=0).lower(state, data)
        return step.compile().memory_analysis().temp_size_in_bytes

    assert bytes_needed(4) < bytes_needed(1) / 2


def test_a_last_batch_may_have_fewer_samples_than_parts():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 4, 4, 2)).astype("float32")
    y = rng.normal(size=(5, 2)).astype("float32")

    def trainer(**options):
        keras.utils.set_random_seed(1)
        image = keras.Input((4, 4, 2))
        features = layers.BatchNormalization()(layers.Conv2D(3, 3)(image))
        outputs = layers.Dense(2)(layers.Flatten()(features))
        made = SAM(keras.Model(image, outputs), 0.3, micro_batches=3)
        return compiled(made, **options)

    fit = trainer(run_eagerly=False, jit_compile="auto")
    fit.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    by_hand = trainer()
    for part in (slice(0, 4), slice(4, 5)):
        by_hand.train_on_batch(x[part], y[part])
    assert_same(values(fit), values(by_hand), 1e-5)
