"""Tests of the train steps of all backends, which the SAM methods use."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.backend import TrainStep

backend = keras.backend.backend()


class Twice(TrainStep, keras.Model):
    """Computes gradients at shifted weights and records them in `seen`."""

    def __init__(self, model, shifts):
        super().__init__()
        self.model, self.shifts, self.seen = model, shifts, []
        self.built = True

    def call(self, inputs, training=None):
        return self.model(inputs, training=training)

    def step_gradients(self, loss_and_gradients, weights, memory):
        for shift in self.shifts:
            loss, gradients = loss_and_gradients([w + shift for w in weights])
            self.seen.append([ops.convert_to_numpy(v) for v in [loss, *gradients]])
        return gradients, memory


def trainer(shifts):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((4,)), layers.BatchNormalization(), layers.Dropout(0.5)]
        + [layers.Dense(2)]
    )
    result = Twice(model, shifts)
    options = {} if backend != "jax" else {"jit_compile": False}
    result.compile("sgd", "mse", run_eagerly=True, **options)
    return result


def batch():
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 4)).astype("float32"), np.ones((8, 2), "float32")


def test_every_call_starts_from_the_same_state():
    step = trainer([0.0, 0.5, 0.0])
    step.train_on_batch(*batch())
    first, shifted, again = step.seen
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert shifted[0] != first[0]


def test_logs_and_state_are_those_of_the_first_call():
    step = trainer([0.5, 0.0, 0.0])
    logs = step.train_on_batch(*batch(), return_dict=True)
    np.testing.assert_allclose(logs["loss"], step.seen[0][0], rtol=1e-6)
    assert logs["loss"] != step.seen[1][0]
    once = trainer([0.5])
    once.train_on_batch(*batch())
    for one, other in zip(
        once.non_trainable_variables, step.non_trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(one), ops.convert_to_numpy(other)
        )


@pytest.mark.only_on("torch", reason="PyTorch keeps gradients on weights")
def test_no_gradient_is_left_behind():
    step = trainer([0.0, 0.1])
    step.train_on_batch(*batch())
    assert all(v.value.grad is None for v in step.trainable_variables)
    assert all(v.value.requires_grad for v in step.trainable_variables)


@pytest.mark.only_on("tensorflow", reason="TensorFlow has sparse gradients")
def test_gradients_of_embeddings_are_dense():
    model = keras.Sequential([keras.Input((3,)), layers.Embedding(5, 2)])
    step = Twice(model, [0.0])
    step.compile("sgd", "mse", run_eagerly=True)
    step.train_on_batch(np.array([[0, 1, 1]]), np.zeros((1, 3, 2)))
    assert step.seen[0][1].shape == (5, 2)


@pytest.mark.only_on("torch", reason="plain Keras fails here elsewhere")
def test_rematerialised_layers_run_again_at_the_same_weights():
    def gradients(mode):
        keras.utils.set_random_seed(0)
        with keras.RematScope(mode=mode):
            stack = [layers.Dense(3, activation="tanh"), layers.Dense(2)]
        step = Twice(keras.Sequential([keras.Input((4,)), *stack]), [0.5])
        step.compile("sgd", "mse")
        step.train_on_batch(*batch())
        return step.seen[0]

    for plain, remade in zip(gradients(None), gradients("full"), strict=True):
        np.testing.assert_allclose(remade, plain, rtol=1e-5, atol=1e-6)
