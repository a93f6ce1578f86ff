"""Masked time steps count neither in the loss nor in the metrics of a training."""

import keras
import numpy as np
import pytest
from keras import layers

from kerasvit.training import SAM
from tests.once import long_elsewhere
from tests.trainers import MODES, assert_same, compiled, values

pytestmark = pytest.mark.slow

backend = keras.backend.backend()
both_ways = pytest.mark.parametrize("options", MODES.values(), ids=[*MODES])
PARTS = pytest.mark.parametrize("parts", [1, 3])


def network(outputs=1):
    """A model with outputs (N, 5, 1), optionally also (N, 5, 2), and a mask (N, 5)."""
    keras.utils.set_random_seed(1)
    words = keras.Input((5,), dtype="int32")
    x = layers.Embedding(7, 4, mask_zero=True)(words)
    first = layers.Dense(1, name="first")(x)
    if outputs == 1:
        return keras.Model(words, first)
    return keras.Model(
        words, {"first": first, "second": layers.Dense(2, name="second")(x)}
    )


def samples(outputs=1):
    """Six samples; pairs share a mask, so that parts have equally many steps."""
    rng = np.random.default_rng(0)
    x = rng.integers(1, 7, (6, 5))
    x[::2, 2:] = 0
    x[1::2, 4:] = 0
    first = rng.normal(size=(6, 5, 1)).astype("float32")
    if outputs == 1:
        return x, first
    return x, {"first": first, "second": rng.normal(size=(6, 5, 2)).astype("float32")}


def weights(outputs=1):
    each = np.linspace(0.5, 2, 30, dtype="float32").reshape(6, 5)
    return each if outputs == 1 else {"first": each, "second": each[::-1]}


def measured(trainer, outputs, **options):
    names = ["mae"] if outputs == 1 else {"first": ["mae"], "second": ["mae"]}
    options = {"metrics": names, "weighted_metrics": names, **options}
    return compiled(trainer, keras.optimizers.SGD(0.0), **options)


def logs_of(trainer, outputs, weighted):
    x, y = samples(outputs)
    given = weights(outputs) if weighted else None
    return trainer.train_on_batch(x, y, sample_weight=given, return_dict=True)


def of_evaluation(trainer, outputs, weighted):
    x, y = samples(outputs)
    given = weights(outputs) if weighted else None
    return trainer.evaluate(
        x, y, batch_size=6, sample_weight=given, return_dict=True, verbose=0
    )


def longhand():
    """Mean error of the steps that are not masked."""
    x, y = samples()
    errors = np.abs(y - network().predict(x, verbose=0))[..., 0]
    return float(errors[x > 0].mean())


@both_ways
@PARTS
def test_metrics_of_training_are_those_of_the_steps_that_count(parts, options):
    trainer = measured(SAM(network(), 0.3, micro_batches=parts), 1, **options)
    logs = logs_of(trainer, 1, False)
    np.testing.assert_allclose(logs["mae"], longhand(), rtol=1e-5)


@long_elsewhere
@PARTS
@pytest.mark.parametrize(
    ("outputs", "weighted", "options"),
    [
        *((outputs, weighted, {}) for outputs in (1, 2) for weighted in (False, True)),
        # Compiling takes long: of the four, the largest is compiled.
        *((2, True, options) for options in MODES.values() if options),
    ],
)
def test_training_and_evaluation_agree(parts, outputs, weighted, options):
    trainer = SAM(network(outputs), 0.3, micro_batches=parts)
    trainer = measured(trainer, outputs, **options)
    logs = logs_of(trainer, outputs, weighted)
    expected = of_evaluation(trainer, outputs, weighted)
    assert logs.keys() == expected.keys()
    if parts > 1 and weighted:  # Keras's mean over a batch counts other steps.
        logs = {name: value for name, value in logs.items() if "mae" in name}
    for name, value in logs.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, err_msg=name)


@both_ways
def test_without_a_radius_it_is_plain_training(options):
    results = []
    for wrap in (lambda model: model, lambda model: SAM(model, 0.0)):
        trainer = compiled(wrap(network(2)), metrics=None, **options)
        x, y = samples(2)
        for _ in range(2):
            trainer.train_on_batch(x, y, sample_weight=weights(2))
        results.append(values(getattr(trainer, "model", trainer)))
    assert_same(*results)


def test_plain_keras_measures_the_same():
    plain, trainer = network(2), SAM(network(2), 0.3)
    # Plain Keras training on JAX passes no mask to the metrics.
    of_plain = of_evaluation if backend == "jax" else logs_of
    expected = of_plain(measured(plain, 2), 2, True)
    logs = logs_of(measured(trainer, 2), 2, True)
    for name, value in logs.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, err_msg=name)
