"""Norms of the loss gradient by layer."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import kerasvit
from kerasvit.inspection import gradient_norms
from tests.models.tiny import TINY
from tests.once import mainly_on_last, on_last_backend

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 16, 16, 3)).astype("float32")
Y = np.array([0, 1, 2, 0, 1, 2])


def test_norms_of_two_dense_layers_are_those_of_the_chain_rule():
    inputs = keras.Input((4,))
    x = layers.Dense(5, activation="tanh", name="hidden")(inputs)
    model = keras.Model(inputs, layers.Dense(3, name="head")(x))
    w, b, v, c = (RNG.normal(size=v.shape) for v in model.weights)
    model.set_weights([w, b, v, c])
    x = RNG.normal(size=(6, 4)).astype("float32")
    hidden = np.tanh(x @ w + b)
    logits = hidden @ v + c
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    d_logits = (p - np.eye(3)[Y]) / 6
    d_before = d_logits @ v.T * (1 - hidden**2)
    expected = {
        "hidden/kernel": x.T @ d_before,
        "hidden/bias": d_before.sum(0),
        "head/kernel": hidden.T @ d_logits,
        "head/bias": d_logits.sum(0),
    }
    found = gradient_norms(model, x, Y, CROSS_ENTROPY, by="variable", batch_size=4)
    assert list(found) == list(expected)
    for path, gradient in expected.items():
        np.testing.assert_allclose(found[path], np.sqrt((gradient**2).sum()), rtol=1e-4)
    by_layer = gradient_norms(model, x, Y, CROSS_ENTROPY)
    assert list(by_layer) == ["hidden", "head"]
    for name, norm in by_layer.items():
        whole = np.hypot(found[f"{name}/kernel"], found[f"{name}/bias"])
        np.testing.assert_allclose(norm, whole, rtol=1e-4)


def vit(norm="pre", depth=1):
    arguments = {**TINY["VisionTransformerAblation"], "window": None}
    return kerasvit.VisionTransformerAblation(
        **{**arguments, "norm": norm, "depth": depth}
    )


def dense():
    inputs = keras.Input((4,))
    x = layers.Dense(16, activation="tanh", name="hidden")(inputs)
    return keras.Model(
        inputs, layers.Dense(3, kernel_initializer="zeros", name="head")(x)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "x"), mainly_on_last([(dense, X[:, 0, :4, 0]), (vit, X)])
)
def test_a_random_head_takes_the_place_of_zeros_without_being_written(build, x):
    model = build()
    with pytest.raises(ValueError, match=r"'head/kernel' of zeros.*head=\"random"):
        gradient_norms(model, x, Y, CROSS_ENTROPY)
    found = gradient_norms(model, x, Y, CROSS_ENTROPY, head="random", seed=3)
    kernel = model.get_layer("head").kernel
    assert not ops.convert_to_numpy(kernel).any()
    kernel.assign(np.random.default_rng(3).normal(0, 16**-0.5, (16, 3)))
    expected = gradient_norms(model, x, Y, CROSS_ENTROPY)
    assert list(found) == list(expected)
    np.testing.assert_allclose([*found.values()], [*expected.values()], rtol=1e-4)
    assert min(found.values()) > 0


@on_last_backend
def test_the_head_in_a_trainer_is_found():
    x = X[:, 0, :4, 0]
    trainer = kerasvit.SAM(dense())
    with pytest.raises(ValueError, match=r"'head/kernel' of zeros"):
        gradient_norms(trainer, x, Y, CROSS_ENTROPY)
    found = gradient_norms(trainer, x, Y, CROSS_ENTROPY, head="random")
    assert list(found) == ["hidden", "head"] and min(found.values()) > 0


@pytest.mark.slow
@on_last_backend
def test_the_last_mlp_has_a_smaller_gradient_in_deeper_models_with_pre_norm_only():
    """Theorem 1 of the paper: constant with post-norm, 1 / √L with pre-norm."""

    def last_norm(norm, depth):
        model = vit(norm, depth)
        options = {"by": "variable", "head": "random"}
        found = gradient_norms(model, X, Y, CROSS_ENTROPY, **options)
        return found[f"encoder_block_{depth - 1}/mlp/dense_1/kernel"]

    ratios = {norm: last_norm(norm, 1) / last_norm(norm, 8) for norm in ("pre", "post")}
    assert ratios["pre"] > 2
    assert ratios["post"] < 1.5


@on_last_backend
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"by": "block"}, "`by` must be one of"),
        ({"head": "zero"}, "`head` must be one of"),
        ({"seed": -1}, "`seed` must be"),
    ],
)
def test_wrong_arguments_are_errors(options, expected):
    with pytest.raises(ValueError, match=expected):
        gradient_norms(vit(), X, Y, CROSS_ENTROPY, **options)
