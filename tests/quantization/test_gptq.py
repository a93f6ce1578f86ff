"""GPTQ: its integers, models that it quantises, and wrong calls."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.quantization import gptq
from kerasvit.quantization.gptq import DAMPING, rounded
from tests.contract import to_numpy
from tests.models.tiny import tiny
from tests.once import long_elsewhere, mainly_on_last, on_last_backend
from tests.random_weights import randomised

RNG = np.random.default_rng(3)
X = RNG.normal(size=(24, 16, 16, 3)).astype("float32")


def correlated(samples, inputs):
    shared = RNG.normal(size=(samples, inputs // 4)) @ RNG.normal(
        size=(inputs // 4, inputs)
    )
    return shared + 0.3 * RNG.normal(size=(samples, inputs))


def dequantised(integers, scales, zeros, size):
    blocks = np.arange(len(integers)) // size
    return (integers.astype(float) - zeros[blocks]) * scales[blocks]


def grid(block, size):
    """Scale and zero of a block, as Keras's int4, which fills a short block with 0."""
    low, high = block.min(0), block.max(0)
    if len(block) < size:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    scale = (high - low + keras.config.epsilon()) / 15
    return scale, np.clip(np.round(-low / scale) - 8, -8, 7)


def by_inverses(kernel, inputs, size):
    """Algorithm 1 with a new inverse for each row."""
    w, found = kernel.copy(), np.empty_like(kernel)
    hessian = inputs.T @ inputs
    hessian += DAMPING * np.diag(hessian).mean() * np.eye(len(w))
    for i in range(len(w)):
        if i % size == 0:
            scale, zero = grid(w[i : i + size], size)
        found[i] = (np.clip(np.round(w[i] / scale) + zero, -8, 7) - zero) * scale
        inverse = np.linalg.inv(hessian[i:, i:])
        w[i:] -= np.outer(inverse[:, 0], (w[i] - found[i]) / inverse[0, 0])
    return found


@on_last_backend
@pytest.mark.parametrize("size", [4, 7, 16])
def test_integers_are_those_of_new_inverses(size):
    kernel, inputs = RNG.normal(size=(14, 5)), correlated(40, 14)
    integers, scales, zeros = rounded(kernel, inputs, size)
    assert integers.dtype == zeros.dtype == "int8" and abs(integers).max() <= 8
    assert scales.shape == zeros.shape == (-(-14 // size), 5)
    found = dequantised(integers, scales, zeros, size)
    np.testing.assert_allclose(found, by_inverses(kernel, inputs, size), atol=1e-5)


@on_last_backend
def test_outputs_change_less_than_by_the_nearest_integers():
    kernel, inputs = RNG.normal(size=(64, 16)), correlated(500, 64)
    found = dequantised(*rounded(kernel, inputs, 32), 32)
    integers, scale, zero = map(
        to_numpy,
        keras.quantizers.abs_max_quantize_grouped_with_zero_point(
            kernel, 32, to_numpy=True
        ),
    )
    nearest = dequantised(integers, scale, zero, 32)
    errors = [np.linalg.norm(inputs @ (each - kernel)) for each in (found, nearest)]
    assert errors[0] < errors[1] / 2


@on_last_backend
def test_inputs_that_are_never_used_have_weights_of_zero():
    kernel, inputs = RNG.normal(size=(8, 3)), correlated(40, 8)
    inputs[:, [2, 5]] = 0
    found = dequantised(*rounded(kernel, inputs, 8), 8)
    np.testing.assert_allclose(found[[2, 5]], 0, atol=1e-6)
    assert np.isfinite(found).all()


def outputs(model):
    return np.asarray(to_numpy(model(X)), "float32")


@long_elsewhere
@pytest.mark.parametrize(
    "name", mainly_on_last(["VisionTransformer", "MLPMixer", "SwinTransformer"])
)
def test_a_model_is_closer_than_by_quantize(name, tmp_path):
    models = [randomised(tiny(name)) for _ in range(3)]
    for model in models[1:]:
        model.set_weights(models[0].get_weights())
    exact, by_gptq, nearest = models
    gptq(by_gptq, X, block_size=8)
    config = keras.quantizers.Int4QuantizationConfig(None, None, block_size=8)
    nearest.quantize(config=config)
    errors = [np.square(outputs(m) - outputs(exact)).mean() for m in (by_gptq, nearest)]
    assert 0 < errors[0] < 0.9 * errors[1]
    formats = [[row[:4] for row in kerasvit.weight_formats(m)] for m in models[1:]]
    assert formats[0] == formats[1] and "int4" in {row[2] for row in formats[0]}
    kerasvit.save_pretrained(by_gptq, tmp_path)
    loaded = kerasvit.from_pretrained(tmp_path)
    np.testing.assert_array_equal(outputs(loaded), outputs(by_gptq))


@pytest.mark.slow
def test_some_layers_of_bfloat16():
    model = randomised(tiny("VisionTransformer", dtype="mixed_bfloat16"))
    before = outputs(model)
    gptq(model, [(X[:12], np.zeros(12)), (X[12:], np.zeros(12))], filters="mlp")
    modes = {
        layer.path: layer.quantization_mode
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.Dense)
    }
    assert {mode for path, mode in modes.items() if "mlp" in path} == {"int4"}
    assert {mode for path, mode in modes.items() if "mlp" not in path} == {None}
    assert np.abs(outputs(model) - before).max() < 0.3 * np.abs(before).max()


@pytest.mark.slow
@on_last_backend
def test_wrong_calls_change_nothing():
    model = tiny("VisionTransformer")
    before = model.get_weights()
    for message, arguments in {
        "`batches` must have images, which": ([],),
        "`batches` must have images (16, 16, 3)": (np.zeros((2, 8, 8, 3)),),
        "`filters` must select dense layers": (X, "nothing"),
        "`block_size` must be": (X, None, 0),
        "must be finite": (np.where(X > X.mean(), np.nan, X),),
    }.items():
        with pytest.raises(ValueError) as caught:
            gptq(model, *arguments)
        assert message in str(caught.value)
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    kerasvit.add_lora(model)
    with pytest.raises(ValueError, match="has adapters"):
        gptq(model, X)
    other = tiny("VisionTransformer")
    other.quantize("int4")
    with pytest.raises(ValueError, match="must compute in floating point"):
        gptq(other, X)
