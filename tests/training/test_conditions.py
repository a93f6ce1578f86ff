"""Conditions that many SAM implementations fail, for every trainer."""

import json

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.training import GSAM, SAM, LookSAM
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
every_trainer = pytest.mark.parametrize("name", NAMES)


# Of parts it is the mean; of MSAM that of its only pass, uphill.
@pytest.mark.parametrize("name", sorted({*NAMES} - {"parts", "msam"}))
def test_state_is_that_of_one_clean_pass(name):
    x, y = batch()
    plain = compiled(small(layers.Dropout(0.5, seed=3)))
    trainer = compiled(TRAINERS[name](small(layers.Dropout(0.5, seed=3))))
    for _ in range(2):
        plain.set_weights(trainer.model.get_weights())
        for each in (plain, trainer):
            each.train_on_batch(x, y)
        pairs = (plain, trainer.model)
        plain_state, state = (
            [v.numpy() for v in m.non_trainable_variables] for m in pairs
        )
        assert len(state) == 3  # two moving statistics and a seed
        assert_same(state, plain_state, 1e-6)


@every_trainer
def test_zero_gradient(name):
    x, _ = batch()
    trainer = compiled(TRAINERS[name](small()), loss=lambda y, y_pred: 0 * y_pred)
    before = trainer.model.trainable_variables
    before = [ops.convert_to_numpy(v) for v in before]
    for _ in range(3):
        trainer.train_on_batch(x, np.zeros((6, 3)))
    after = [ops.convert_to_numpy(v) for v in trainer.model.trainable_variables]
    assert_same(after, before, 0)
    assert all(np.isfinite(v).all() for v in values(trainer))


@every_trainer
def test_float16_takes_the_norm_without_the_scale_of_the_loss(name):
    x, y = batch()

    def train(policy, optimizer):
        keras.config.set_dtype_policy(policy)
        trainer = compiled(TRAINERS[name](small()), optimizer)
        for _ in range(2):
            trainer.train_on_batch(x, y)
        return values(trainer)

    expected = train("float32", None)
    scaled = [
        train(
            "mixed_float16",
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), scale),
        )
        for scale in (16.0, 1024.0)
    ]
    assert_same(scaled[0], expected, 1e-2)
    assert_same(scaled[1], scaled[0], 2e-3)


class TwoNorm(layers.Layer):
    """Two weighted sums, one with weights of a normalisation."""

    def build(self, shape):
        self.gamma = self.add_weight(shape=(4,), initializer="ones", name="gamma")
        self.other = self.add_weight(shape=(4,), initializer="ones", name="other")

    def call(self, x):
        sums = [ops.sum(x * w, axis=-1) for w in (self.gamma, self.other)]
        return ops.stack(sums, axis=-1)


def overflows(y, y_pred):
    """A loss of slope 1; infinite if the output is above (y = 1) or below (y = −1)."""
    first, second = y_pred[:, 0], y_pred[:, 1]
    above = first > 1.015
    trap = ops.where(y[:, 0] > 0, above, ops.logical_and(y[:, 0] < 0, ~above))
    return first + second * ops.where(trap, float("inf"), 1.0)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        pytest.param(name, where, id=f"{name}-{passes} pass")
        for name in TRAINERS
        for where, passes in ((1, "second"), (-1, "first"))
        if (name, where) != ("msam", 1)  # it has one pass
    ],
)
def test_an_overflow_in_either_pass_skips_the_step(name, where):
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), TwoNorm()])
    inner = keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, 64.0)
    trainer = compiled(TRAINERS[name](model), optimizer, overflows)
    x, y = np.full((4, 4), 0.25), np.zeros((4, 2))
    for _ in range(2):
        trainer.train_on_batch(x, y)
    before = values(trainer), values(inner)
    assert not np.array_equal(before[0][0], np.ones(4))
    y[3] = where
    trainer.train_on_batch(x, y)
    assert_same(values(trainer), before[0], 0)
    assert_same(values(inner), before[1], 0)
    assert float(optimizer.dynamic_scale) == 32


@every_trainer
def test_bfloat16_perturbs_in_float32(name):
    keras.config.set_dtype_policy("mixed_bfloat16")
    trainer = compiled(TRAINERS[name](small()))
    step, seen = trainer.step_gradients, []

    def watched(loss_and_gradients, weights, memory):
        def at(values):
            loss, gradients = loss_and_gradients(values)
            seen.extend([*values, *gradients])
            return loss, gradients

        return step(at, weights, memory)

    trainer.step_gradients = watched
    trainer.train_on_batch(*batch())
    assert {keras.backend.standardize_dtype(v.dtype) for v in seen} == {"float32"}


@every_trainer
def test_the_optimizer_sees_the_final_gradient_alone(name):
    rate = 0.1 if name == "gsam" else 0.05  # GSAM's radius depends on it
    steps = keras.optimizers.schedules.PiecewiseConstantDecay([0], [rate, rate])

    def adamw():
        return keras.optimizers.AdamW(
            steps,
            weight_decay=0.3,
            global_clipnorm=0.05,
            use_ema=True,
            ema_momentum=0.5,
        )

    trainer = compiled(TRAINERS[name](small()), adamw())
    gradients = compiled(TRAINERS[name](small()), keras.optimizers.SGD(rate))
    applied, optimizer = small(), adamw()
    for i in range(3):
        gradients.model.set_weights(trainer.model.get_weights())
        start = [v.numpy() for v in gradients.model.trainable_variables]
        for each in (trainer, gradients):
            each.train_on_batch(*batch(seed=i))
        after = [v.numpy() for v in gradients.model.trainable_variables]
        given = [
            ops.convert_to_tensor((a - b) / rate)
            for a, b in zip(start, after, strict=True)
        ]
        with_gradients(optimizer, given, applied.trainable_variables)
        found, expected = (
            [v.numpy() for v in model.trainable_variables]
            for model in (trainer.model, applied)
        )
        assert_same(found, expected, 2e-4)
    for each, model in ((trainer.optimizer, trainer.model), (optimizer, applied)):
        each.finalize_variable_values(model.trainable_variables)
    found, averaged = (
        [v.numpy() for v in model.trainable_variables]
        for model in (trainer.model, applied)
    )
    assert_same(found, averaged, 2e-4)
    assert np.abs(averaged[0] - expected[0]).max() > 1e-3


def with_gradients(optimizer, gradients, variables):
    if backend == "torch":
        import torch

        with torch.no_grad():
            optimizer.apply(gradients, variables)
    else:
        optimizer.apply(gradients, variables)


class Unused(layers.Layer):
    """Returns its inputs; has an unused weight."""

    def build(self, shape):
        self.unused = self.add_weight(shape=(3,), name="unused")

    def call(self, inputs):
        return inputs


@every_trainer
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_frozen_and_unused_weights_do_not_change(name):
    model = small(Unused(name="unused"))
    model.get_layer("hidden").trainable = False
    trainer = compiled(TRAINERS[name](model))
    before = {v.path: v.numpy() for v in model.trainable_variables}
    frozen = model.get_layer("hidden").get_weights()
    for _ in range(3):
        trainer.train_on_batch(*batch())
    assert_same(model.get_layer("hidden").get_weights(), frozen, 0)
    for variable in model.trainable_variables:
        moved = np.abs(variable.numpy() - before[variable.path]).max()
        assert np.isfinite(moved) and (moved > 0) == ("unused" not in variable.path)


@every_trainer
def test_freezing_and_thawing_after_compile(name):
    x, y = batch()
    model = small()
    trainer = compiled(TRAINERS[name](model))
    trainer.fit(x, y, verbose=0)
    for trainable in (False, True):
        model.get_layer("hidden").trainable = trainable
        compiled(trainer)
        hidden, head = (model.get_layer(n).get_weights() for n in ("hidden", "head"))
        trainer.fit(x, y, epochs=2, verbose=0)
        moved = np.abs(model.get_layer("hidden").get_weights()[0] - hidden[0]).max()
        assert (moved > 0) == trainable
        assert np.abs(model.get_layer("head").get_weights()[0] - head[0]).max() > 0


@every_trainer
def test_several_outputs_count_in_both_passes(name):
    x, y = batch()

    def model(split):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((5,))
        z = layers.LayerNormalization()(inputs)
        a, b = layers.Dense(2, name="a")(z), layers.Dense(1, name="b")(z)
        outputs = {"a": a, "b": b} if split else layers.Concatenate()([a, b])
        return keras.Model(inputs, outputs)

    def joined(y, y_pred):
        square = ops.square(y - y_pred)
        return ops.mean(square[:, :2], -1) + 0.5 * square[:, 2]

    one = compiled(TRAINERS[name](model(False)), loss=joined)
    two = compiled(
        TRAINERS[name](model(True)),
        loss={"a": "mse", "b": "mse"},
        loss_weights={"a": 1.0, "b": 0.5},
    )
    weights = np.linspace(0.5, 2, 6).astype("float32")
    for _ in range(2):
        one.train_on_batch(x, y, sample_weight=weights)
        targets = {"a": y[:, :2], "b": y[:, 2:]}
        two.train_on_batch(x, targets, sample_weight={"a": weights, "b": weights})
    assert_same(values(two), values(one))


@pytest.mark.parametrize("name", rest_long_elsewhere(["gsam", "looksam", "parts"]))
def test_eager_and_compiled_steps_agree(name):
    x, y = batch(7)
    results = []
    for options in (
        {"run_eagerly": False, "jit_compile": backend != "torch"},
        {"run_eagerly": True},
    ):
        trainer = compiled(TRAINERS[name](small()), **options)
        trainer.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
        results.append(values(trainer))
    assert_same(*results, 1e-5)


@every_trainer
def test_callbacks(name, tmp_path):
    x, y = batch()
    trainer = compiled(TRAINERS[name](small()), keras.optimizers.SGD(0.1))
    kept = []
    best = tmp_path / "best.weights.h5"
    callbacks = [
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: kept.append(trainer.get_weights())
        ),
        # Uphill in the third epoch.
        keras.callbacks.LearningRateScheduler(lambda i: [0.1, 0.05, -1.0, -1.0][i]),
        keras.callbacks.ModelCheckpoint(
            best, "loss", save_best_only=True, save_weights_only=True
        ),
        keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True),
    ]
    losses = trainer.fit(
        x, y, epochs=4, validation_data=(x, y), callbacks=callbacks, verbose=0
    ).history["val_loss"]
    first = int(np.argmin(losses))
    assert first < len(losses) - 1
    assert_same(trainer.get_weights(), kept[first], 0)
    other = compiled(TRAINERS[name](small(seed=2)))
    other.load_weights(best)
    assert any(
        all(map(np.array_equal, other.get_weights(), weights)) for weights in kept
    )


def test_averaged_weights_are_swapped_in_for_evaluation():
    x, y = batch()
    results = []
    for wrap in (lambda model: model, lambda model: SAM(model, 0)):
        optimizer = keras.optimizers.SGD(RATE, use_ema=True, ema_momentum=0.5)
        trainer = compiled(wrap(small()), optimizer)
        swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
        history = trainer.fit(
            x, y, epochs=3, validation_data=(x, y), callbacks=[swap], verbose=0
        )
        results.append([*trainer.get_weights(), history.history["val_loss"]])
    assert_same(*results)


@every_trainer
def test_config_and_summary(name):
    trainer = TRAINERS[name](small(), perturbation="global", name="mine")
    config = json.loads(json.dumps(trainer.get_config()))
    again = type(trainer).from_config(config)
    other = again.get_config()
    assert again.name == "mine" and again.perturbation == "global"
    assert {**config, "model": None} == {**other, "model": None}
    lines = []
    trainer.summary(print_fn=lambda line, **_: lines.append(line))
    text = "\n".join(lines)
    for word in (type(trainer).__name__, "rho", "hidden", "norm", "head"):
        assert word in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: SAM(m, perturbation="x"), "`perturbation` must be"),
        *(
            (lambda m, n=n: SAM(m, micro_batches=n), "`micro_batches` must be a whole")
            for n in (0, 2.5, True, "2", None)
        ),
        *(
            (lambda m, k=k: SAM(m, every=k), "`every` must be a whole number")
            for k in (0, -1, 1.5, True)
        ),
        (lambda m: LookSAM(m, k=0), "`k` must be a whole number"),
        (lambda m: LookSAM(m, alpha=-0.1), "`alpha` must be a finite number"),
        (lambda m: LookSAM(m, float("nan")), "`rho` must be a finite number"),
        (
            lambda m: GSAM(m, float("nan"), lr_max=1, lr_min=0),
            "`rho_max` must be a finite number",
        ),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=f"{message}.*Received: "):
        make(small())
