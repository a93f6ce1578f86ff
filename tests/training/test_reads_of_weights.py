"""Layers that read or write weights in unusual ways are trained or raise an error."""

import keras
import pytest
from keras import layers, ops

from kerasvit.training import SAM
from tests.trainers import MODES, TRAINERS, assert_same, batch, compiled, values

pytestmark = pytest.mark.slow

backend = keras.backend.backend()
on_jax = backend == "jax"
# JAX traces an eager step, too, for its gradient.
WAYS = {"eager": {}} if on_jax else MODES
both_ways = pytest.mark.parametrize("options", WAYS.values(), ids=[*WAYS])


class OwnScope(layers.Dense):
    """Computes in a `StatelessScope` without substitutions."""

    def call(self, x):
        with keras.StatelessScope():
            return super().call(x)


class Keeps(layers.Dense):
    """Computes with an array that `build` read from the kernel."""

    def build(self, shape):
        super().build(shape)
        self.found = {"kernel": self.kernel.value}

    def call(self, x):
        return ops.matmul(x, self.found["kernel"]) + self.bias


class StopsGradient(layers.Dense):
    """Reads its kernel but has no gradient with respect to it."""

    def call(self, x):
        return ops.matmul(x, ops.stop_gradient(self.kernel.value)) + self.bias


def network(kind, **options):
    keras.utils.set_random_seed(1)
    layer = kind(4, **options)
    return keras.Sequential([keras.Input((5,)), layer, layers.Dense(3, name="head")])


def spectral(units, **options):
    inner = layers.Dense(units, **options)
    return layers.SpectralNormalization(inner, name="spectral")


def train(trainer, steps=3, **options):
    trainer = compiled(trainer, **options)
    for i in range(steps):
        trainer.train_on_batch(*batch(seed=i))
    return values(getattr(trainer, "model", trainer))


@both_ways
@pytest.mark.parametrize("kind", [OwnScope, Keeps])
@pytest.mark.parametrize("name", ["sam", "msam", "parts"])
def test_a_weight_that_only_keras_would_train_raises(kind, name, options):
    model = network(kind, name="odd")
    before = values(model)
    trainer = TRAINERS[name](model)
    if on_jax:  # Keras's own step has no gradient, either.
        expected = train(network(kind, name="odd"))
        return assert_same(train(SAM(model, 0.0)), expected)
    with pytest.raises(ValueError, match="depends on these weights.*odd/kernel"):
        train(trainer, **options)
    assert_same(values(model), before, 0)


@both_ways
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_a_weight_without_a_gradient_in_keras_is_none(options):
    expected = train(network(StopsGradient), **options)
    assert_same(train(SAM(network(StopsGradient), 0.0), **options), expected)
    train(SAM(network(StopsGradient), 0.3), **options)


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.not_on("jax", reason="has zeros instead of nothing")
def test_reads_of_weights_are_traced_once():
    trainer = compiled(SAM(network(StopsGradient), 0.3))
    look, looks = trainer.gradients_by_variables, []

    def counted(variables, *arguments):
        looks.extend(variable.path for variable in variables)
        return look(variables, *arguments)

    trainer.gradients_by_variables = counted
    for _ in range(3):
        trainer.train_on_batch(*batch())
    assert looks == [trainer.model.layers[0].kernel.path]


@both_ways
def test_a_layer_that_assigns_weights(options):
    model = network(spectral)
    if on_jax:  # Keras drops what is assigned, and so does a SAM.
        expected = train(network(spectral), **options)
        return assert_same(train(SAM(model, 0.0), **options), expected)
    before = values(model)
    with pytest.raises(ValueError, match="SpectralNormalization.*spectral/.*kernel"):
        train(SAM(model, 0.3), **options)
    assert_same(values(model), before, 0)


@both_ways
def test_a_frozen_layer_that_assigns_weights_is_plain_state(options):
    models = [network(spectral, trainable=False) for _ in range(2)]
    expected = train(models[0], **options)
    assert_same(train(SAM(models[1], 0.0), **options), expected)


@pytest.mark.only_on("tensorflow", reason="is TensorFlow's")
@both_ways
@pytest.mark.parametrize("name", ["sam", "msam", "parts"])
def test_a_tf_function_in_a_layer(name, options):
    import tensorflow as tf

    class Traced(layers.Dense):
        @tf.function
        def call(self, x):
            return super().call(x)

    expected, found = (
        train(TRAINERS[name](network(kind)), **options)
        for kind in (layers.Dense, Traced)
    )
    assert_same(found, expected)
