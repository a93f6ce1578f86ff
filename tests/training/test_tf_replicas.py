"""SAM on two replicas of a MirroredStrategy equals SAM on one device.

TensorFlow must have its two devices before anything else: all cases run in one process
of their own, which is this file, and report by name.
"""

import contextlib
import json
import os
import subprocess
import sys
import traceback

import pytest

CASES, LONG_CASES = {}, {}


def case(function):
    CASES[function.__name__] = function
    return function


def long_case(function):
    LONG_CASES[function.__name__] = function
    return function


if __name__ == "__main__":
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    STRATEGY = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

from kerasvit.models import VisionTransformer  # noqa: E402
from kerasvit.training import (  # noqa: E402
    ASAM,
    GSAM,
    SAM,
    SAMON,
    DistillationTrainer,
    LookSAM,
    MaskedPatches,
)
from tests.once import once  # noqa: E402

pytestmark = pytest.mark.slow


def plain():
    return keras.Sequential(
        [keras.Input((5,)), layers.Dense(6, activation="tanh"), layers.Dense(3)]
    )


def noisy():
    """A model with all kinds of state: moving statistics and two seeds."""
    return keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(8),
            layers.Dropout(0.4),
            layers.BatchNormalization(),
            layers.Dropout(0.4, seed=7),
            layers.Dense(3),
        ]
    )


RANGE = {"mean": [0.5] * 3, "std": [0.5] * 3}


def sgd(**options):
    return keras.optimizers.SGD(0.1, momentum=0.9, **options)


def data(n):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 5)).astype("float32")
    return x, rng.normal(size=(n, 3)).astype("float32")


def trained(replicas, wrap, model=noisy, optimizer=sgd, n=24, x=None, **options):
    """A trainer after one epoch of batches of 8, and its losses."""
    with STRATEGY.scope() if replicas == 2 else contextlib.nullcontext():
        keras.utils.set_random_seed(3)
        trainer = wrap(model())
        # Compiling for one device takes longer than its three steps.
        how = {"run_eagerly": True} if replicas == 1 else {"jit_compile": False}
        trainer.compile(optimizer(), **{"loss": "mse", **how, **options})
    samples, y = data(n)
    x = samples if x is None else x
    history = trainer.fit(x, y, batch_size=8, shuffle=False, verbose=0).history
    return trainer, history["loss"]


def copies(variable):
    """Values of a variable on each replica."""
    return [np.asarray(v) for v in STRATEGY.experimental_local_results(variable.value)]


def assert_synchronous(trainer):
    for variable in [*trainer.variables, *trainer.optimizer.variables]:
        first, *others = copies(variable)
        for other in others:
            np.testing.assert_array_equal(first, other, err_msg=variable.path)


def assert_synchronous_sums(trainer):
    (sums,) = trainer.sums()
    np.testing.assert_array_equal(*copies(sums))


def assert_equal(two, one, tolerance=1e-6):
    """Compares weights, seeds, statistics, memory, slots and the loss."""
    (trainer, loss), (expected, expected_loss) = two, one
    assert len(copies(trainer.trainable_variables[0])) == 2
    assert_synchronous(trainer)
    for a, e in zip(
        [*trainer.variables, *trainer.optimizer.variables],
        [*expected.variables, *expected.optimizer.variables],
        strict=True,
    ):
        np.testing.assert_allclose(
            copies(a)[0], copies(e)[0], rtol=0, atol=tolerance, err_msg=a.path
        )
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)


def check(method=SAM, model=noisy, optimizer=sgd, micro_batches=1, two=None, **options):
    """Two replicas equal one device with twice the parts; `two` compiles them only."""

    def wrap(parts):
        return lambda model: method(model, 0.3, micro_batches=parts, **options)

    assert_equal(
        trained(2, wrap(micro_batches), model, optimizer, **(two or {})),
        trained(1, wrap(2 * micro_batches), model, optimizer),
    )


@case
def local_is_one_device_with_two_parts():
    check()
    whole, _ = trained(1, lambda model: SAM(model, 0.3), plain)
    halves, _ = trained(2, lambda model: SAM(model, 0.3), plain)
    kernel = halves.model.layers[0].kernel.numpy()
    assert np.abs(kernel - whole.model.layers[0].kernel.numpy()).max() > 1e-4


@case
def diagnostics_are_means_over_replicas():
    two, one = (
        trained(n, lambda m, n=n: SAM(m, 0.3, micro_batches=3 - n, diagnostics=True))[0]
        for n in (2, 1)
    )
    assert_synchronous_sums(two)
    np.testing.assert_allclose(two.ascent(), one.ascent(), rtol=1e-4)
    assert two.ascent().steps == 3
    assert {*two.history.history} == {"loss", "sharpness", "gradient_cosine"}


@long_case
def parts_of_both_replicas_are_four_parts():
    check(micro_batches=2)


@case
def global_is_one_device():
    assert_equal(
        trained(2, lambda model: SAM(model, 0.3, perturbation="global"), plain),
        trained(1, lambda model: SAM(model, 0.3), plain),
    )


@long_case
def clipping_and_decay_see_the_mean():
    def adamw():
        return keras.optimizers.AdamW(0.01, weight_decay=0.1, global_clipnorm=0.1)

    check(model=plain, optimizer=adamw)
    check(model=plain, optimizer=lambda: sgd(clipvalue=0.01))


@case
def looksam_remembers_the_same_on_both():
    check(LookSAM, k=2)


@case
def a_teacher_sees_the_batch_of_each_replica():
    teacher = plain()  # its variables are on one device

    def distilled(model, rho, **options):
        return SAM(DistillationTrainer(model, teacher), rho, **options)

    check(distilled, plain)


@long_case
def masks_are_those_of_parts():
    def vit():
        sizes = {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8}
        return VisionTransformer(
            image_size=8, patch_size=2, normalization=RANGE, **sizes
        )

    def masked(parts):
        return lambda model: MaskedPatches(model, rho=0.1, micro_batches=parts)

    x = np.random.default_rng(1).uniform(-1, 1, (24, 8, 8, 3)).astype("float32")
    two, one = (trained(n, masked(3 - n), vit, x=x, loss=None, n=24) for n in (2, 1))
    assert_equal(two, one, 1e-5)


@long_case
def every_third_update_in_executions_of_two():
    check(every=3, two={"steps_per_execution": 2})


@long_case
def eagerly():
    check(model=plain, two={"run_eagerly": True})


@long_case
def gsam_follows_the_learning_rate():
    def falling():
        decay = keras.optimizers.schedules.PolynomialDecay(0.1, 3, 0.01)
        return keras.optimizers.SGD(decay)

    rates = {"lr_max": 0.1, "lr_min": 0.01}
    check(GSAM, plain, falling, **rates)
    check(GSAM, plain, keras.optimizers.SGD, **rates)


@long_case
def a_schedule_of_the_radius():
    decay = keras.optimizers.schedules.PolynomialDecay(0.5, 3, 0.1)

    def method(model, rho, **options):
        return SAM(model, decay, **options)

    check(method, plain)


@long_case
def float8_scales_are_the_same_on_both():
    def quantized():
        model = keras.Sequential([keras.Input((5,)), layers.Dense(3)])
        model.layers[0].quantize("float8")
        return model

    two, one = (
        trained(n, lambda m, n=n: SAM(m, 0.3, micro_batches=2 // n), quantized)
        for n in (2, 1)
    )
    assert_synchronous(two[0])
    for a, e in zip(two[0].variables, one[0].variables, strict=True):
        # Keras divides the loss, and so these, by the number of replicas.
        share = 2 if "outputs_grad" in a.path and np.max(copies(a)[0]) != 1 else 1
        np.testing.assert_allclose(
            share * copies(a)[0], copies(e)[0], rtol=1e-4, err_msg=a.path
        )


@long_case
def asam_and_sam_on():
    check(ASAM, plain, two={"steps_per_execution": 2})
    check(SAMON)


@long_case
def frozen_and_unused_weights():
    class Unused(layers.Layer):
        def build(self, shape):
            self.unused = self.add_weight(shape=(3,), name="unused")

        def call(self, inputs):
            return inputs

    def model():
        model = keras.Sequential([keras.Input((5,)), *plain().layers, Unused()])
        model.layers[0].trainable = False
        return model

    check(model=model)
    trainer, _ = trained(2, lambda m: SAM(m, 0.3), model)
    keras.utils.set_random_seed(3)
    before = model()
    for layer in (0, 2):
        (actual, *_), (expected, *_) = (
            each.layers[layer].weights for each in (trainer.model, before)
        )
        np.testing.assert_array_equal(actual.numpy(), expected.numpy())


@case
def overflow_on_one_replica_skips_the_step_on_both():
    keras.config.set_dtype_policy("mixed_float16")

    def scaled():
        return keras.optimizers.LossScaleOptimizer(sgd(), 64.0)

    wrap = lambda model: SAM(model, 0.3)  # noqa: E731
    trainer, loss = trained(2, wrap, plain, scaled)
    expected, expected_loss = trained(
        1, lambda model: SAM(model, 0.3, micro_batches=2), plain, scaled
    )
    assert_equal((trainer, loss), (expected, expected_loss), 5e-3)
    before = trainer.get_weights()
    for sample in (0, 7):  # of the first replica, of the second
        x, y = data(8)
        x[sample] = np.inf
        trainer.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        assert_synchronous(trainer)
        for a, e in zip(trainer.get_weights(), before, strict=True):
            np.testing.assert_array_equal(a, e)
    assert float(trainer.optimizer.dynamic_scale.numpy()) == 16.0
    keras.config.set_dtype_policy("float32")


@long_case
def an_overflow_is_not_clipped_away():
    keras.config.set_dtype_policy("mixed_float16")

    def scaled():
        return keras.optimizers.LossScaleOptimizer(sgd(clipvalue=1.0), 64.0)

    trainer, _ = trained(2, lambda model: SAM(model, 0.3), plain, scaled)
    before = trainer.get_weights()
    x, y = data(8)
    x[7] = np.inf
    trainer.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    for a, e in zip(trainer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, e)
    assert float(trainer.optimizer.dynamic_scale.numpy()) == 32.0
    keras.config.set_dtype_policy("float32")


@long_case
def replica_without_samples_does_no_harm():
    trainer, loss = trained(2, lambda model: SAM(model, 0.3), n=9)
    assert_synchronous(trainer)
    assert np.isfinite(loss).all()
    assert all(np.isfinite(v.numpy()).all() for v in trainer.variables)


@long_case
def rho_0_is_plain_training():
    assert_equal(
        trained(2, lambda model: SAM(model, 0), plain, n=17),
        trained(2, lambda model: model, plain, n=17),
        tolerance=0,
    )


@case
def what_keras_cannot_do_is_refused_before_a_step():
    for message, steps, jit_compile in (
        ("cannot accumulate", 2, False),
        ("XLA cannot", None, True),
    ):
        with STRATEGY.scope():
            trainer = SAM(plain())
            optimizer = sgd(gradient_accumulation_steps=steps)
            trainer.compile(optimizer, "mse", jit_compile=jit_compile)
            for train in (trainer.fit, trainer.train_on_batch):
                with pytest.raises(ValueError, match=message):
                    train(*data(8))


of_tensorflow = pytest.mark.only_on("tensorflow", reason="of its MirroredStrategy")


def results_of(cases, tmp_path_factory):
    """{name of a case: traceback, or ""}."""

    def on_two_replicas(folder):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, *cases],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        (folder / "results.json").write_text(done.stdout.splitlines()[-1])

    name = "tf_replicas_of_long_cases" if cases is LONG_CASES else "tf_replicas"
    folder = once(tmp_path_factory, name, on_two_replicas)
    return json.loads((folder / "results.json").read_text())


@of_tensorflow
@pytest.mark.waits_for("tf_replicas")
@pytest.mark.parametrize("name", CASES)
def test_two_replicas(name, tmp_path_factory):
    assert not results_of(CASES, tmp_path_factory)[name]


@of_tensorflow
@pytest.mark.long
@pytest.mark.parametrize("name", LONG_CASES)
def test_two_replicas_in_more_cases(name, tmp_path_factory):
    assert not results_of(LONG_CASES, tmp_path_factory)[name]


def main():
    """Runs the cases and prints {name: traceback or ""}."""
    answers = {}
    cases = {**CASES, **LONG_CASES}
    for name in sys.argv[1:] or cases:
        answers[name] = ""
        try:
            cases[name]()
        except Exception:
            answers[name] = traceback.format_exc()[-3000:]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
