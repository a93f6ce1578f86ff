"""Calls without Keras's bookkeeping, on PyTorch: the same results, and what remains."""

from unittest import mock

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.backend.keras_private import masked, masks_of
from kerasvit.layers.attention import Attention
from kerasvit.layers.dense import Dense
from kerasvit.layers.mlp import MLP
from tests.contract import to_numpy
from tests.models.tiny import TINY, tiny
from tests.once import elsewhere
from tests.tiny_vit import TinyViT

if keras.backend.backend() != "torch":
    elsewhere("other backends trace a call once")

import torch  # noqa: E402

from kerasvit.backend.torch import direct_calls  # noqa: E402
from kerasvit.backend.torch.direct_calls import DirectCalls  # noqa: E402


@pytest.fixture
def calls():
    """Names of the layers that Keras's own `__call__` called."""
    names = []
    original = keras.Layer.__call__

    def call(self, *args, **kwargs):
        names.append(self.name)
        return original(self, *args, **kwargs)

    with (
        mock.patch.object(keras.Layer, "__call__", call),
        mock.patch.object(direct_calls, "KERAS_CALL", call),
    ):
        yield names


def as_keras_calls():
    return mock.patch.object(DirectCalls, "__call__", keras.Layer.__call__)


def images(model, count=2):
    shape = (count, *model.input_shape[1:])
    return np.random.default_rng(0).normal(size=shape).astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("name", TINY)
def test_results_are_those_of_keras(name, dtype, training):
    def outputs():
        keras.utils.set_random_seed(3)
        keras.config.set_dtype_policy(dtype)
        model = tiny(name)
        y = model(images(model), training=training)
        weights = [v.value for v in model.trainable_variables]
        gradients = torch.autograd.grad(y.float().square().sum(), weights)
        state = [to_numpy(v) for v in model.non_trainable_variables]
        return [y.dtype, to_numpy(y), *map(to_numpy, gradients), *state]

    try:
        direct = outputs()
        with as_keras_calls():
            expected = outputs()
    finally:
        keras.config.set_dtype_policy("float32")
    assert direct[0] == expected[0]
    for ours, keras_own in zip(direct[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(ours, keras_own)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_keras_calls_no_layer_inside_a_block(dtype, calls):
    model = TinyViT(image_size=8, num_classes=3, dtype=dtype)
    model(images(model), training=True)
    assert not {"attention", "query", "mlp_norm", "dense_0", "drop"} & set(calls)


def test_training_of_an_inner_call_is_kept(calls):
    class Outer(keras.layers.Layer):
        def call(self, x, training=None):
            return drop(x, training=True)

    drop = kerasvit.layers.StochasticDepth(0.9)
    drop.build((None, 4))
    y = to_numpy(Outer()(np.ones((64, 4), "float32"), training=False))
    assert np.any(y == 0)
    assert drop.name in calls


def test_training_is_inherited():
    class Block(keras.layers.Layer):
        def call(self, x):
            return norm(x)

    norm = kerasvit.layers.BatchNormalization()
    norm.build((None, 2, 2, 3))
    x = np.random.default_rng(0).normal(size=(5, 2, 2, 3)).astype("float32")
    y = to_numpy(Block()(x, training=True))
    np.testing.assert_allclose(y.mean((0, 1, 2)), 0, atol=1e-6)
    assert np.any(to_numpy(norm.moving_mean))


def test_no_training_is_not_inherited():
    """As in Keras, if the argument is given."""

    class Outer(keras.layers.Layer):
        def call(self, x):
            return drop(x, training=None)

    drop = kerasvit.layers.StochasticDepth(0.9)
    drop.build((None, 4))
    assert np.all(to_numpy(Outer()(np.ones((64, 4), "float32"), training=True)) == 1)


def test_parts_that_build_themselves_have_their_names():
    class WithExtra(MLP):
        def build(self, input_shape):
            super().build(input_shape)
            self.extra = keras.layers.Dense(8, name="extra")

        def call(self, x, training=None):
            return self.extra(super().call(x, training=training))

    parts = Attention(2, name="attention"), WithExtra(4, name="mlp")
    block = kerasvit.layers.EncoderBlock(*parts, name="block")
    x = keras.Input((3, 8))
    model = keras.Model(x, block(x))
    model(np.ones((2, 3, 8), "float32"))
    assert "block/mlp/extra/kernel" in [v.path for v in model.variables]


def test_layers_that_compute_in_integers():
    class Outer(keras.layers.Layer):
        def call(self, x):
            return drop(x)

    drop = kerasvit.layers.StochasticDepth(0.5, dtype="int32")
    drop.build((None, 4))
    x = np.ones((2, 4), "int32")
    y = Outer(dtype="mixed_bfloat16", autocast=False)(x, training=False)
    np.testing.assert_array_equal(to_numpy(y), x)


@pytest.mark.parametrize("default", [True, False, None])
def test_a_default_of_training_acts_as_in_keras(default):
    """Keras 3.15 takes it; Keras 3.16 takes that of the outermost call."""

    class Part(MLP):
        def call(self, x, training=default):
            return self.drop(x)

    class PartOfKeras(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.drop = keras.layers.Dropout(0.9)

        def call(self, x, training=default):
            return self.drop(x)

    class Outer(keras.layers.Layer):
        def __init__(self, part):
            super().__init__()
            self.part = part

        def call(self, x):
            return self.part(x)

    ours = Part(4, dropout=0.9)
    ours.build((None, 8))
    x = np.ones((9, 8), "float32")
    zeros = [np.any(to_numpy(Outer(p)(x)) == 0) for p in (ours, PartOfKeras())]
    assert zeros[0] == zeros[1]


def test_other_calls_of_keras_are_seen():
    model = TinyViT(image_size=8, num_classes=3)
    seen = []
    original = keras.Layer.__call__

    def call(self, *args, **kwargs):
        seen.append(self.name)
        return original(self, *args, **kwargs)

    with mock.patch.object(keras.Layer, "__call__", call):
        model(images(model))
    assert "query" in seen


def test_weights_of_attention_take_other_arrays():
    layer = Attention(2)
    layer.build((None, 3, 8))
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32")
    expected = to_numpy(layer.attention_weights(keras.ops.convert_to_tensor(x)))
    np.testing.assert_array_equal(to_numpy(layer.attention_weights(x)), expected)
    symbolic = keras.Input((3, 8))
    model = keras.Model(symbolic, layer.attention_weights(symbolic))
    np.testing.assert_allclose(to_numpy(model(x)), expected, rtol=1e-6)


def test_hooks_of_pytorch_are_called():
    model = TinyViT(image_size=8, num_classes=3)
    layer = model.get_layer("encoder_block_0").mlp.dense_0
    seen = []
    layer.register_forward_hook(lambda *parts: seen.append(parts[2].shape))
    model(images(model))
    assert len(seen) == 1


def test_regularizers_of_activities_are_added():
    model = TinyViT(image_size=8, num_classes=3)
    dense = model.get_layer("encoder_block_0").mlp.dense_0
    dense.activity_regularizer = keras.regularizers.L2(1.0)
    model(images(model))
    assert len(model.losses) == 1 and to_numpy(model.losses[0]) > 0


def test_masks_are_passed_on():
    class Outer(keras.layers.Layer):
        def call(self, x):
            return norm(masked(x, [torch.ones(2, 3)]))

    norm = kerasvit.layers.LayerNormalization()
    norm.build((None, 3, 4))
    y = Outer()(np.ones((2, 3, 4), "float32"))
    (mask,) = masks_of(y)
    assert mask.shape == (2, 3)


def test_inputs_are_converted():
    class Outer(keras.layers.Layer):
        def call(self, x):
            return dense(keras.ops.cast(x, "float64"))

    dense = Dense(2, dtype="mixed_bfloat16")
    dense.build((None, 3))
    y = Outer(dtype="mixed_bfloat16")(np.ones((2, 3), "float32"))
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"


def test_other_sizes_are_refused():
    class Outer(keras.layers.Layer):
        def call(self, x):
            return dense(x)

    dense = Dense(2, name="one")
    dense.build((None, 3))
    with pytest.raises(ValueError, match="layer 'one' is incompatible .* value 3"):
        Outer()(np.ones((2, 4), "float32"))


def test_messages_name_the_inner_layer():
    model = TinyViT(image_size=8, num_classes=3)
    mlp = model.get_layer("encoder_block_0").mlp
    mlp.activation = "unknown"
    with pytest.raises(KeyError) as raised:
        model(images(model))
    assert "calling MLP.call()" in str(raised.value)
