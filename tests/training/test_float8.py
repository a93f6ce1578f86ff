"""float8 layers: scales and histories, whose gradients are their next values."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.inspection import Hessian
from kerasvit.training import SAM
from tests.once import rest_long_elsewhere
from tests.trainers import NAMES, RATE, TRAINERS, assert_same, batch, values

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize`"),
]


def model():
    keras.utils.set_random_seed(1)
    made = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(4, activation="tanh", name="hidden"),
            layers.LayerNormalization(name="norm"),
            layers.Dense(3, name="head"),
        ]
    )
    made.quantize("float8")
    return made


def compiled(trainer, optimizer=None):
    # Without a graph, TensorFlow cannot differentiate Keras's float8 layers.
    trainer.compile(optimizer or keras.optimizers.SGD(RATE), "mse", run_eagerly=False)
    return trainer


def overwritten(of):
    """{path: array} of the variables that are not weights."""
    return {
        v.path: ops.convert_to_numpy(v)
        for v in of.trainable_variables
        if v.overwrite_with_gradient
    }


def scaled():
    # Not a power of two, so that dividing and multiplying by it rounds.
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), 48.7)


def clipped():
    return keras.optimizers.Adam(RATE, global_clipnorm=0.1)


@pytest.mark.parametrize("optimizer", rest_long_elsewhere([scaled, clipped]))
def test_without_a_radius_it_is_plain_training(optimizer):
    plain, trained = compiled(model(), optimizer()), model()
    trainer = compiled(SAM(trained, 0.0), optimizer())
    for _ in range(3):
        for each in (plain, trainer):
            each.train_on_batch(*batch())
    for path, value in overwritten(plain).items():
        assert np.abs(value).max() > 0, path
    assert_same(values(trained), values(plain))


@pytest.mark.parametrize("name", NAMES)
def test_float8_scales_are_written_by_the_first_pass_only(name):
    plain, trainer = compiled(model()), TRAINERS[name](model())
    step, seen = trainer.step_gradients, []
    # MSAM adds a momentum of zeros to all; tested where nothing is compiled.
    same = np.array_equal if name == "msam" else lambda a, b: a is b
    marked = [v.overwrite_with_gradient for v in trainer.trainable_variables]
    assert sum(marked) == 12

    def watched(loss_and_gradients, weights, memory):
        def at(values):
            seen.append([same(a, b) for a, b in zip(values, weights, strict=True)])
            return loss_and_gradients(values)

        given, memory = step(at, weights, memory)
        assert [g is None for g in given] == marked
        return given, memory

    trainer.step_gradients = watched
    compiled(trainer)
    before = overwritten(plain)
    for each in (plain, trainer):
        each.train_on_batch(*batch())
    # At perturbed weights, the others are those of the first pass.
    assert all(
        same for kept in seen for same, mark in zip(kept, marked, strict=True) if mark
    )
    assert not all(same for kept in seen for same in kept) or name == "msam"
    after, found = overwritten(plain), overwritten(trainer.model)
    for (path, expected), value in zip(after.items(), found.values(), strict=True):
        if name == "parts" and "outputs_grad" in path:
            continue  # the loss of half a batch has other gradients
        if "amax_history" in path:  # the first scale is that of a history of zeros
            assert np.abs(expected - before[path]).max() > 0, path
        np.testing.assert_allclose(value, expected, rtol=1e-6, err_msg=path)
    for memory in trainer.slots_of(
        [v for v in trainer.trainable_variables if v.overwrite_with_gradient]
    ):
        assert not np.any(ops.convert_to_numpy(memory))


def test_float8_scales_are_not_in_the_hessian():
    hessian = Hessian(model(), *batch(), "mse")
    assert hessian.shape == (5 * 4 + 4 + 4 + 4 + 4 * 3 + 3,) * 2
