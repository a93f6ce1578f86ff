"""The empirical neural tangent kernel, against its formula."""

import importlib

import keras
import numpy as np
import pytest
from keras import layers, ops

import kerasvit
from kerasvit.backend import gradients_at
from kerasvit.inspection import ntk
from tests.models.tiny import tiny
from tests.once import mainly_on_last, on_last_backend

X = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")


def network(**head):
    """Two dense layers without biases, their kernels, and the hidden activations."""
    rng = np.random.default_rng(1)
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(6, activation="tanh", use_bias=False),
            layers.Dense(3, use_bias=False, **head),
        ]
    )
    first, second = (rng.standard_normal(w.shape) for w in model.weights)
    model.set_weights([first, second])
    return model, first, second


def longhand(first, second):
    """Gradients (n, K, P) of the logits by both kernels."""
    hidden = np.tanh(X @ first)
    by_second = np.einsum("nh,ab->nahb", hidden, np.eye(3)).reshape(4, 3, -1)
    by_first = np.einsum("ni,nh,ha->naih", X, 1 - hidden**2, second)
    return np.concatenate([by_first.reshape(4, 3, -1), by_second], axis=-1)


@pytest.mark.parametrize("memory", [2**30, 1000])
def test_all_forms(memory):
    model, *kernels = network()
    jacobian = longhand(*kernels)
    summed = jacobian.sum(1)
    by_logit = np.einsum("nap,map->anm", jacobian, jacobian)
    flat = jacobian.reshape(12, -1)
    expected = {
        "logit": by_logit,
        "summed": summed @ summed.T,
        "traced": by_logit.sum(0),
        "full": flat @ flat.T,
    }
    for form, matrix in expected.items():
        found = ntk(model, X, form=form, memory=memory)
        np.testing.assert_allclose(found.matrix, matrix, atol=1e-5 * matrix.max())
        values = np.linalg.eigvalsh(matrix)
        np.testing.assert_allclose(
            found.eigenvalues, values, atol=1e-5 * values.max(), err_msg=form
        )
        condition = values[..., -1] / values[..., 0]
        np.testing.assert_allclose(found.condition_number, condition, rtol=1e-3)
    found = ntk(model, X, form="full", logits=[2, 0])
    picked = jacobian[:, [2, 0]].reshape(8, -1)
    np.testing.assert_allclose(found.matrix, picked @ picked.T, rtol=1e-3, atol=1e-4)


@on_last_backend
@pytest.mark.parametrize(("form", "blocks"), [("traced", 1), ("full", 3)])
def test_memory_is_of_the_gradients_that_are_compared(form, blocks, monkeypatch):
    calls = []
    module = importlib.import_module("kerasvit.inspection.curvature.ntk")

    def counted(*arguments):
        gradients = gradients_at(*arguments)
        return lambda *values: (calls.append(1), gradients(*values))[1]

    monkeypatch.setattr(module, "gradients_at", counted)
    model, *_ = network()
    ntk(model, X, form=form, memory=8 * 4 * (5 * 6 + 6 * 3))  # of 4 images
    assert len(calls) == 4 * 3 * blocks


@pytest.mark.slow
@pytest.mark.parametrize(
    "builder", mainly_on_last(["DistilledVisionTransformer", "BigTransfer"])
)
def test_a_random_head(builder):
    model = tiny(builder)
    heads = [v for v in model.weights if "head" in v.path and v.name == "kernel"]
    for kernel in heads:
        kernel.assign(np.zeros(kernel.shape))
    x = np.random.default_rng(0).standard_normal((2, 16, 16, 3)).astype("float32")
    with pytest.raises(ValueError, match='kernel of the head is zero.*`head="random"`'):
        ntk(model, x)
    before = [np.array(ops.convert_to_numpy(v)) for v in model.variables]
    found = ntk(model, x, form="summed", head="random", seed=3)
    for v, value in zip(model.variables, before):
        np.testing.assert_array_equal(ops.convert_to_numpy(v), value)
        assert v.dtype == value.dtype.name
    assert {layer.compute_dtype for layer in model.layers} == {"float32"}
    rng = np.random.default_rng(3)
    for kernel in heads:
        kernel.assign(rng.standard_normal(kernel.shape) / np.sqrt(kernel.shape[0]))
    np.testing.assert_allclose(ntk(model, x, form="summed").matrix, found.matrix)


def test_a_trainer_and_half_precision_give_the_model_s_kernel():
    model = tiny("MLPMixer")
    x = np.random.default_rng(0).standard_normal((2, 16, 16, 3)).astype("float32")
    expected = ntk(model, x, dtype="float32").matrix
    half = tiny("MLPMixer", dtype="mixed_bfloat16")
    found = ntk(kerasvit.SAM(half), x, dtype="float32").matrix
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.only_on("tensorflow", reason="Keras's float64")
def test_float64_of_a_float32_model():
    model, *kernels = network()
    jacobian = longhand(*(ops.convert_to_numpy(w).astype(float) for w in model.weights))
    found = ntk(model, X)
    expected = np.einsum("nap,map->nm", jacobian, jacobian)
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-12)


@on_last_backend
def test_a_singular_kernel_has_an_infinite_condition_number():
    model, *_ = network()
    twice = np.concatenate([X, X[:1]])
    assert ntk(model, twice).condition_number == np.inf
    assert (ntk(model, twice, form="logit").condition_number == np.inf).all()


@on_last_backend
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"form": "trace"}, "`form` must be one of 'logit', 'summed', 'traced', 'full"),
        ({"logits": [3]}, r"`logits` must be a whole number in \[0, 2\]. .*=3"),
        ({"logits": []}, r"`len\(logits\)` must be a whole number ≥ 1"),
        ({"head": "zero"}, "`head` must be one of None, .random.. Received: .zero"),
        ({"memory": 0}, "`memory` must be a whole number ≥ 1"),
        ({"dtype": "float16"}, "`dtype` must be one of 'float32'.*Received: 'float16'"),
    ],
)
def test_arguments(options, expected):
    with pytest.raises(ValueError, match=expected):
        ntk(network()[0], X, **options)


@on_last_backend
@pytest.mark.parametrize(
    ("head", "x", "expected"),
    [
        ({"activation": "softmax"}, X, "must return logits.*outputs are probabilities"),
        ({}, 0 * X, "gradients that are all zero"),
        ({}, X * np.nan, "gradients of the logits must be finite"),
        ({}, X[:0], r"`len\(x\)` must be a whole number ≥ 1"),
        ({}, X[:, :4], "incompatible.*expected axis -1.*value 5"),
    ],
)
def test_kernels_that_do_not_exist(head, x, expected):
    model, *_ = network(**head)
    with pytest.raises(ValueError, match=expected):
        ntk(model, x, form="summed")


@on_last_backend
def test_outputs_that_are_no_logits():
    image = keras.Input((5,))
    outputs = [layers.Dense(2)(image), layers.Dense(2)(image)]
    with pytest.raises(ValueError, match="`model` must have one output of shape"):
        ntk(keras.Model(image, outputs), X)
