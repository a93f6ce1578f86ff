"""`Inspect`: measurements along a training."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.inspection import Inspect, largest_eigenvalue

X = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")
Y = np.arange(12) % 2
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def network():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


def weights(model):
    return np.concatenate([np.ravel(w) for w in model.get_weights()])


def fitted(callbacks, wrap=lambda model: model, epochs=4):
    trainer = wrap(network())
    trainer.compile(keras.optimizers.SGD(0.1), LOSS)
    trainer.fit(
        X, Y, batch_size=4, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks
    )
    return trainer


@pytest.mark.parametrize("wrap", [lambda model: model, kerasvit.SAM])
def test_weights_after_each_step_are_those_of_shorter_trainings(wrap):
    inspect = Inspect({"weights": weights}, unit="step")
    fitted([inspect], wrap, epochs=2)
    assert inspect.steps == [0, 1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(inspect.values["weights"][0], weights(network()))
    for epochs in (1, 2):
        expected = weights(fitted([], wrap, epochs))
        found = inspect.values["weights"][3 * epochs]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_measurement_does_not_change_the_training():
    inspect = Inspect(
        {"sharpness": lambda model: largest_eigenvalue(model, X, Y, LOSS)}, every=2
    )
    trainer = fitted([inspect])
    assert inspect.steps == [0, 6, 12]
    np.testing.assert_array_equal(weights(trainer), weights(fitted([])))
    assert inspect.values["sharpness"][2] == pytest.approx(
        largest_eigenvalue(trainer, X, Y, LOSS), rel=1e-3
    )


def test_a_second_fit_counts_on():
    inspect = Inspect({"weights": weights}, at_start=False)
    trainer = fitted([inspect], epochs=1)
    trainer.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[inspect])
    assert inspect.steps == [3, 6, 9]


@pytest.mark.not_on("torch", reason="Keras has one step per execution there")
def test_steps_of_one_execution_are_counted():
    inspect = Inspect({"weights": weights}, unit="step", every=3)
    model = network()
    model.compile(keras.optimizers.SGD(0.1), LOSS, steps_per_execution=2)
    model.fit(X, Y, 4, 2, verbose=0, callbacks=[inspect])  # 3 steps an epoch
    assert inspect.steps == [0, 3, 6]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({},), "`measures` must be a dictionary"),
        (({"norm": 3},), "`measures` must be a dictionary"),
        (([weights],), "`measures` must be a dictionary"),
        (({"weights": weights}, 0), "`every` must be a whole number"),
        (({"weights": weights}, 1, "hour"), "`unit` must be one of 'epoch', 'step'"),
    ],
)
def test_wrong_arguments(arguments, message):
    measures, *rest = arguments
    with pytest.raises(ValueError, match=message):
        Inspect(measures, **dict(zip(("every", "unit"), rest)))
