"""Models that round: which operands, how well they do, training, and wrong calls."""

import math

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.layers.layer import Roundable
from kerasvit.quantization import METHODS, Log2, TwinUniform, Uniform, simulate
from kerasvit.quantization.simulation import Observer
from tests.contract import to_numpy
from tests.models.tiny import TINY, tiny
from tests.once import (
    long_elsewhere,
    mainly_on_last,
    on_last_backend,
    rest_long,
    rest_long_elsewhere,
)

RNG = np.random.default_rng(2)
X = RNG.normal(size=(4, 16, 16, 3)).astype("float32")


def outputs(model, x=X):
    return np.asarray(to_numpy(model(x)), "float32")


def error(model, exact):
    return np.abs(outputs(model) - exact).mean() / np.abs(exact).mean()


def rounded_layers(model):
    return {x.path: x for x in model._flatten_layers() if getattr(x, "rounding", None)}


def quantizers(model, path):
    return rounded_layers(model)[path].rounding.quantizers


# With convolutions and attention first.
FAMILIES = sorted(TINY, key=lambda name: name != "HybridVisionTransformer")


@long_elsewhere
@pytest.mark.parametrize("name", rest_long(mainly_on_last(FAMILIES), 2))
def test_all_products_are_rounded_and_more_bits_are_closer(name):
    model = tiny(name)
    exact = outputs(model)
    models = [simulate(model, X, bits=bits) for bits in (16, 8, 3)]
    errors = [error(each, exact) for each in models]
    assert errors[0] < 1e-3 and errors[1] < 0.05
    assert 3 * errors[0] < errors[1] < errors[2] / 3
    np.testing.assert_array_equal(outputs(model), exact)
    assert not rounded_layers(model)
    found = rounded_layers(models[0])
    for layer in models[0]._flatten_layers():
        names = {v.name for v in layer._trainable_variables}
        if "kernel" in names:
            expected = {"inputs", "kernel"}
        elif hasattr(layer, "attention_weights"):
            expected = {"weights", "value", "query", "key"}
        else:
            continue
        got = set(found[layer.path].rounding.quantizers)
        assert {each.replace("depthwise_", "") for each in got} == expected


PLAIN = (Uniform, Uniform, False)  # of softmax, of GELU, whether norms are rounded
KINDS = {
    "twin_uniform": (TwinUniform, TwinUniform, False),
    "log2": (Log2, Uniform, True),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", mainly_on_last(METHODS, 1))
def test_each_method_is_close_with_8_bits_by_its_quantizers(method):
    model = tiny("VisionTransformer")
    simulated = simulate(model, X, method, 8)
    assert 0 < error(simulated, outputs(model)) < 0.1
    block = "encoder_block_0"
    weights = quantizers(simulated, f"{block}/attention")["weights"]
    first, second = (
        quantizers(simulated, f"{block}/mlp/dense_{i}")["inputs"] for i in (0, 1)
    )
    norm = rounded_layers(simulated).get(f"{block}/attention_norm")
    assert isinstance(first, Uniform)
    found = type(weights), type(second), norm is not None
    assert found == KINDS.get(method, PLAIN)
    if norm:
        assert norm.rounding.quantizers["normalized"].scale.shape == (16,)


@on_last_backend
def test_a_sample_has_the_ends_and_is_the_same_again():
    x = RNG.normal(size=(3, 50, 16)).astype("float32")
    samples = []
    for _ in range(2):
        observer = Observer(64)
        observer(lambda *both: None, {"inputs": x, "normalized": x, "kernel": x[0]})
        samples.append(observer.values())
    for name, shape in {"inputs": (66,), "normalized": (6, 16)}.items():
        first, second = (sample[name] for sample in samples)
        np.testing.assert_array_equal(first, second)
        assert first.shape == shape
        assert (first.min(), first.max()) == (x.min(), x.max())
    np.testing.assert_array_equal(samples[0]["kernel"], x[0])


@pytest.mark.slow
@on_last_backend
def test_mixed_bits_have_the_size_of_equal_ones():
    model = simulate(tiny("VisionTransformer"), X, "ranking", 4)
    kernels = [
        (layer.rounding.quantizers["kernel"].highest, math.prod(layer.kernel.shape))
        for layer in rounded_layers(model).values()
        if "kernel" in layer.rounding.quantizers
    ]
    bits = [(highest + 1).bit_length() for highest, _ in kernels]
    assert len(set(bits)) > 2 and set(bits) <= {2, 3, 4, 5, 6}
    sizes = [size for _, size in kernels]
    assert 0.9 < np.dot(bits, sizes) / (4 * sum(sizes)) <= 1


@pytest.mark.slow
def test_a_dense_layer_and_an_attention_round_their_operands():
    model = simulate(tiny("VisionTransformer"), X, "log2", (4, 5))
    attention = rounded_layers(model)["encoder_block_0/attention"]
    dense = attention.query
    x = RNG.normal(size=(1, 5, 16)).astype("float32")
    for each in (dense, attention.key, attention.value, attention.output_dense):
        assert each.rounding.quantizers["kernel"].highest == 7  # ± 3 bits
        assert each.rounding.quantizers["inputs"].highest == 31

    def projected(layer, rows):
        own = layer.rounding.quantizers
        kernel = own["kernel"].rounded(to_numpy(layer.kernel))[0]
        return own["inputs"].rounded(rows)[0] @ kernel + to_numpy(layer.bias)

    np.testing.assert_allclose(to_numpy(dense(x[0])), projected(dense, x[0]), atol=1e-5)
    own = {n: q.rounded for n, q in attention.rounding.quantizers.items()}
    query, key, value = (
        projected(each, x[0]).reshape(5, 2, 8).transpose(1, 0, 2)
        for each in (dense, attention.key, attention.value)
    )
    scores = own["query"](query / np.sqrt(8))[0] @ own["key"](key.transpose(0, 2, 1))[0]
    shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    joined = own["weights"](shares)[0] @ own["value"](value)[0]
    rows = joined.transpose(1, 0, 2).reshape(5, 16).astype("float32")
    expected = projected(attention.output_dense, rows)
    np.testing.assert_allclose(to_numpy(attention(x))[0], expected, atol=1e-4)
    np.testing.assert_allclose(
        to_numpy(attention.attention_weights(x))[0], shares, atol=1e-5
    )


@pytest.mark.slow
@on_last_backend
def test_forms_of_images_give_the_same_ranges():
    model = tiny("MLPMixer")
    x = keras.ops.convert_to_tensor(X)
    first = outputs(simulate(model, X, bits=4))
    for batches in ([(X, np.zeros(4))], x, iter([[x, None]])):
        found = outputs(simulate(model, batches, bits=4))
        np.testing.assert_array_equal(found, first)


@pytest.mark.slow
@on_last_backend
def test_layers_of_16_bits_adapters_and_features():
    model = tiny("VisionTransformer", dtype="mixed_bfloat16")
    exact = outputs(model)
    assert error(simulate(model, X, bits=8), exact) < 0.1
    kerasvit.add_lora(model, 2)
    simulated = simulate(model, X, bits=3)
    assert simulated.adapters == model.adapters
    features, rounded = kerasvit.features(model), kerasvit.features(simulated)
    change = outputs(features) - outputs(rounded)
    assert np.abs(change).max() > 0.01


TRAINERS = {"fit": lambda model: model, "SAM": kerasvit.SAM}


@pytest.mark.slow
@pytest.mark.parametrize("trainer", rest_long_elsewhere(TRAINERS))
def test_training_recovers_what_4_bits_lose(trainer):
    """The trained weights then are those of the floating model."""
    model = tiny("VisionTransformer")
    x = RNG.normal(size=(32, 16, 16, 3)).astype("float32")
    labels = outputs(model, x).argmax(-1)
    simulated = simulate(model, x, "mse", 4)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def value(each):
        return float(to_numpy(loss(labels, each(x))))

    before, exact = value(simulated), value(model)
    trained = TRAINERS[trainer](simulated)
    trained.compile(keras.optimizers.Adam(3e-3), loss)
    trained.fit(x, labels, batch_size=32, epochs=8, verbose=0)
    assert exact < before and value(simulated) < 0.8 * before
    model.set_weights(simulated.get_weights())
    again = simulate(model, x, "mse", 4)
    assert value(again) < before
    kernel = quantizers(simulated, "encoder_block_0/mlp/dense_0")["kernel"]
    assert kernel.highest == 7


def quantized():
    model = tiny("VisionTransformer")
    model.quantize("int8")
    return model


VIT = "VisionTransformer"
WRONG = {
    "none": (lambda m: simulate(m, []), "must have images.*Received: none"),
    "empty": (lambda m: simulate(m, X[:0]), "must have images.*Received: none"),
    "size": (
        lambda m: simulate(m, [X, X[:, :8]]),
        r"images \(16, 16, 3\).*Received: shape \(4, 8, 16, 3\).*resize",
    ),
    "no batch": (lambda m: simulate(m, list(X)), r"in batches.*shape \(16, 16, 3\)"),
    "type": (lambda m: simulate(m, 3), "`batches` must be an array.*int"),
    "scalar": (lambda m: simulate(m, np.float32(3)), "must be an array.*float32"),
    "method": (lambda m: simulate(m, X, "max"), "one of 'min_max', 'percentile'"),
    "bits": (lambda m: simulate(m, X, bits=1), r"`bits` must be .*in \[2, 16\]"),
    "many": (lambda m: simulate(m, X, bits=(4, 17)), r"\[2, 16\].*bits=17"),
    "three": (lambda m: simulate(m, X, bits=(4, 4, 4)), "bits of weights, bits of act"),
    "quantised": (lambda m: simulate(quantized(), X), "is int8.*before `quantize`"),
    "twice": (lambda m: simulate(simulate(m, X), X), "is simulated"),
    "foreign": (
        lambda m: simulate(kerasvit.SAM(m), X),
        "model of kerasvit; for a trainer",
    ),
    "nan": (lambda m: simulate(m, X * np.nan), "must be finite"),
    "stored": (lambda m: simulate(m, X).quantize("int8"), "simulated.*set_weights"),
}


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("case", WRONG)
def test_errors_say_what_to_do(case):
    call, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        call(tiny(VIT))


def test_layers_compute_as_before_without_rounding():
    layer = tiny(VIT).get_layer("encoder_block_0")
    assert isinstance(layer.attention, Roundable) and layer.attention.rounding is None
