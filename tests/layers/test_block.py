"""Blocks in a `keras.RematScope` train as without it, with less memory."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.layers import Block
from tests.models.tiny import TINY
from tests.once import mainly_on_last

pytestmark = pytest.mark.slow

RATES = {"dropout": 0.3, "stochastic_depth": 0.3}
CASES = [
    ("VisionTransformer", {**RATES, "depth": 2}, "float32"),  # random masks
    ("AlterNet", {}, "float32"),  # moving statistics, relative positions
    ("VisionTransformer", {"layer_scale": 0.1}, "mixed_bfloat16"),  # reads weights
    ("HybridVisionTransformer", {}, "float32"),
    ("MLPMixer", {"stochastic_depth": 0.3, "depth": 2}, "mixed_bfloat16"),
    ("SwinTransformer", {}, "float32"),
]


def sam(model):
    return kerasvit.SAM(model, 0.1)


def trained(builder, changes, dtype, remat, wrap=sam):
    """Weights and seeds after two steps, and the blocks of the model."""
    keras.utils.set_random_seed(0)
    model = getattr(kerasvit, builder)(**{**TINY[builder], **changes}, dtype=dtype)
    blocks = [layer.name for layer in model.layers if isinstance(layer, Block)]
    weights = model.get_weights()
    with keras.RematScope("list_of_layers", layer_names=blocks if remat else []):
        model = keras.models.clone_model(model)
    model.set_weights(weights)
    for variable in model.non_trainable_variables:
        if variable.name == "seed_generator_state":
            variable.assign([1, 2])
    trainer = wrap(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.SGD(0.1), loss)
    x = np.random.default_rng(0).normal(size=(4, *model.input_shape[1:]))
    for _ in range(2):
        trainer.train_on_batch(x.astype("float32"), np.arange(4) % 3)
    return model


@pytest.mark.parametrize(("builder", "changes", "dtype"), mainly_on_last(CASES))
def test_blocks_train_as_without(builder, changes, dtype):
    both = [trained(builder, changes, dtype, remat) for remat in (False, True)]
    plain, remade = both
    configs = [[x.get_config() for x in m.layers if isinstance(x, Block)] for m in both]
    assert configs[0] == configs[1]
    assert remade.record == plain.record
    exact = 1e-5 if dtype == "float32" else 2e-3
    for one, other in zip(remade.variables, plain.variables, strict=True):
        values = [keras.ops.convert_to_numpy(variable) for variable in (one, other)]
        np.testing.assert_allclose(*values, exact, exact, err_msg=one.path)


@pytest.mark.not_on("jax", reason="runs what it traced")
def test_a_block_runs_again_in_the_backward_pass(monkeypatch):
    calls, call = [], kerasvit.layers.EncoderBlock.call

    def counted(self, x, training=None):
        calls.append(x)
        return call(self, x, training=training)

    monkeypatch.setattr(kerasvit.layers.EncoderBlock, "call", counted)

    def runs(remat):
        calls.clear()
        trained("VisionTransformer", {}, "float32", remat, lambda model: model)
        return len(calls)

    steps = 2 if keras.backend.backend() == "torch" else 1  # TensorFlow traces once
    assert runs(remat=True) == runs(remat=False) + steps


def test_blocks_train_in_keras_fit():
    """Without a trainer of kerasvit, whose passes have a scope."""
    case = "VisionTransformer", {"stochastic_depth": 0.3, "depth": 2}, "float32"
    plain, remade = (
        trained(*case, remat, wrap=lambda model: model) for remat in (False, True)
    )
    for one, other in zip(remade.variables, plain.variables, strict=True):
        values = [keras.ops.convert_to_numpy(variable) for variable in (one, other)]
        np.testing.assert_allclose(*values, 1e-5, 1e-5, err_msg=one.path)
