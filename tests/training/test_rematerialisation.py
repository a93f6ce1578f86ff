"""`keras.remat` inside a model: the same numbers as without it."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.inspection import Hessian
from kerasvit.training import SAM
from tests.once import rest_long_elsewhere
from tests.trainers import COMPILED, TRAINERS, assert_same, batch, compiled, values

pytestmark = pytest.mark.slow

backend = keras.backend.backend()
on_tensorflow = pytest.mark.only_on("tensorflow", reason="is TensorFlow's")


# JAX traces the function of a `keras.remat` once, and Keras's own eager step on JAX
# fails where it meets what it traced again.
HOW = ["call"] if backend == "jax" else ["__init__", "call"]


class Block(layers.Layer):
    """Two dense layers, which the function of a `keras.remat` computes.

    Args:
        how: "never", or when `keras.remat` is called: in "__init__" or in "call".
        between: Layer between the two.
    """

    def __init__(self, how, between=None):
        super().__init__(name="block")
        self.first = layers.Dense(4, activation="tanh", name="first")
        self.between = between
        self.second = layers.Dense(4, name="second")
        self.how, self.runs = how, 0
        self.rematerialised = keras.remat(self.inside) if how == "__init__" else None

    def build(self, shape):
        self.first.build(shape)
        if self.between is not None:
            self.between.build((None, 4))
        self.second.build((None, 4))

    def inside(self, x):
        self.runs += 1
        x = self.first(x)
        return self.second(x if self.between is None else self.between(x))

    def call(self, x):
        if self.how == "never":
            return self.inside(x)
        return (self.rematerialised or keras.remat(self.inside))(x)


def network(how, *between):
    keras.utils.set_random_seed(1)
    block = Block(how, *between)
    return keras.Sequential([keras.Input((5,)), block, layers.Dense(3, name="head")])


def in_scope(mode, **options):
    """The same layers as in `network`, rematerialised by a `keras.RematScope`."""
    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((5,))
    with keras.RematScope(mode=mode, **options):
        first = layers.Dense(4, activation="tanh", name="first")
        second = layers.Dense(4, name="second")
    head = layers.Dense(3, name="head")
    for layer in (first, second, head):
        x = layer(x)
    return keras.Model(inputs, x)


def train(trainer, steps=3, **options):
    trainer = compiled(trainer, **options)
    for i in range(steps):
        trainer.train_on_batch(*batch(seed=i))
    return values(getattr(trainer, "model", trainer))


MODES = [
    {"mode": "full"},
    {"mode": "activations"},
    {"mode": "list_of_layers", "layer_names": ["first"]},
]


@pytest.mark.parametrize(
    "name", rest_long_elsewhere(["sam", "looksam", "asam", "msam", "parts"], 2)
)
@pytest.mark.parametrize("how", HOW)
def test_every_trainer_trains_as_without(name, how):
    expected, found = (train(TRAINERS[name](network(h))) for h in ("never", how))
    assert_same(found, expected)


@pytest.mark.parametrize("options", MODES, ids=lambda options: options["mode"])
def test_a_rematerialisation_scope(options):
    expected = train(SAM(network("never"), 0.3))
    assert_same(train(SAM(in_scope(**options), 0.3)), expected)


@pytest.mark.parametrize("name", ["sam", "parts"])
def test_in_a_compiled_step(name):
    plain, trainer = (TRAINERS[name](network(how)) for how in ("never", "__init__"))
    expected = train(plain)
    assert_same(train(trainer, **COMPILED), expected, 1e-5)
    x, y = batch(7)
    losses = [each.evaluate(x, y, verbose=0) for each in (plain, trainer)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_without_a_radius_it_is_plain_training():
    # Keras's own compiled step on TensorFlow reads weights again while the optimizer
    # writes them: only its eager step repeats.
    assert_same(train(SAM(network("call"), 0.0)), train(network("call")))


@pytest.mark.parametrize("how", ["__init__", "activations"])
def test_second_derivatives(how):
    x, y = batch()
    make = in_scope if how == "activations" else network
    models = network("never"), make(how)
    vector = np.random.default_rng(0).normal(size=Hessian(models[0], x, y, "mse").shape)
    expected, found = (
        [*hessian.loss_and_gradient(), hessian @ vector[0]]
        for hessian in (Hessian(model, x, y, "mse") for model in models)
    )
    assert np.abs(expected[2]).min() > 1e-4
    assert_same(found, expected, 2e-5)


@on_tensorflow
@pytest.mark.parametrize("make", [layers.BatchNormalization, layers.Dropout])
def test_state_and_masks_are_those_of_the_first_run(make):
    between = {"rate": 0.5, "seed": 3} if make is layers.Dropout else {}
    expected, found = (
        train(SAM(network(how, make(**between)), 0.3)) for how in ("never", "call")
    )
    assert_same(found, expected)


@on_tensorflow
def test_the_second_run_is_of_the_same_dtypes():
    keras.config.set_dtype_policy("mixed_bfloat16")
    expected, found = (train(SAM(network(how), 0.3)) for how in ("never", "__init__"))
    assert_same(found, expected, 1e-6)


@on_tensorflow
def test_one_inside_another():
    class Outer(Block):
        def inside(self, x):
            return self.second(self.between(self.first(x)))

    class Inner(layers.Dense):
        def call(self, x):
            return keras.remat(super().call)(x)

    def outer(how, inner):
        keras.utils.set_random_seed(1)
        block = Outer(how, inner(4))
        return keras.Sequential([keras.Input((5,)), block, layers.Dense(3)])

    expected = train(SAM(outer("never", layers.Dense), 0.3))
    assert_same(train(SAM(outer("call", Inner), 0.3)), expected)


@on_tensorflow
def test_each_pass_runs_forward_twice():
    model = network("call")
    trainer = compiled(SAM(model, 0.3))
    trainer.train_on_batch(*batch())
    model.layers[0].runs = 0
    trainer.train_on_batch(*batch())
    assert model.layers[0].runs == 4


@on_tensorflow
def test_several_arguments_and_results():
    class Several(layers.Dense):
        def call(self, x):
            product, count = self.rematerialised({"x": x}, scale=2.0, bias=None)
            assert count == 7
            return product[0] + product[1]

        def pieces(self, inputs, scale, bias):
            product = ops.matmul(inputs["x"], self.kernel)
            return (scale * product, ops.square(product)), 7

    class Rematerialised(Several):
        def rematerialised(self, *args, **kwargs):
            return keras.remat(self.pieces)(*args, **kwargs)

    def one(kind):
        keras.utils.set_random_seed(1)
        return keras.Sequential([keras.Input((5,)), kind(3, use_bias=False)])

    Several.rematerialised = Several.pieces
    expected, found = (train(SAM(one(c), 0.3)) for c in (Several, Rematerialised))
    assert_same(found, expected)


@on_tensorflow
def test_classes_of_tensorflow_are_patched_in_a_pass_alone():
    import tensorflow as tf

    calls = [type(f).__call__ for f in (tf.function(abs), tf.recompute_grad(abs))]
    inside = []

    class Watching(layers.Layer):
        def call(self, x):
            inside.append(type(tf.function(abs)).__call__)
            return x

    pixels = keras.Input((3,))
    model = keras.Model(pixels, Watching()(layers.Dense(2)(pixels)))
    trainer = SAM(model, 0.1)
    trainer.compile("sgd", "mse")
    inside.clear()
    trainer.train_on_batch(np.ones((2, 3)), np.ones((2, 2)))
    assert calls[0] not in inside[-2:]
    after = [type(f).__call__ for f in (tf.function(abs), tf.recompute_grad(abs))]
    assert after == calls
