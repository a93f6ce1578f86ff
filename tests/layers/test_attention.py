import types

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.layers import Attention
from kerasvit.ops import attention, is_fused
from tests.contract import check_layer, to_numpy


def longhand(layer, x, context):
    q, k, v, o = (
        [w.astype("float64") for w in sub.get_weights()]
        for sub in (layer.query, layer.key, layer.value, layer.output_dense)
    )
    bias = lambda weights: weights[1] if len(weights) > 1 else 0  # noqa: E731
    size = x.shape[-1] // layer.num_heads
    result = np.zeros(x.shape)
    for b in range(len(x)):
        heads = []
        for h in range(layer.num_heads):
            part = slice(h * size, (h + 1) * size)
            query = (x[b] @ q[0] + bias(q))[:, part]
            key = (context[b] @ k[0] + bias(k))[:, part]
            value = (context[b] @ v[0] + bias(v))[:, part]
            score = np.exp(query @ key.T / np.sqrt(size))
            heads.append(score / score.sum(-1, keepdims=True) @ value)
        result[b] = np.concatenate(heads, -1) @ o[0] + o[1]
    return result


def filled(layer, shape):
    layer.build(shape)
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    return layer


def test_contract():
    check_layer(
        Attention(2),
        input_shape=(2, 5, 8),
        output_shape=(2, 5, 8),
        parameters=4 * (8 * 8 + 8),
    )


def test_contract_without_bias():
    check_layer(
        Attention(2, use_bias=False),
        input_shape=(2, 5, 8),
        output_shape=(2, 5, 8),
        parameters=4 * 8 * 8 + 8,
    )


@pytest.mark.parametrize("use_bias", [True, False])
def test_is_softmax_of_scaled_products(use_bias):
    x = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")
    layer = filled(Attention(3, use_bias=use_bias), x.shape)
    np.testing.assert_allclose(to_numpy(layer(x)), longhand(layer, x, x), atol=2e-4)


def test_attention_uses_the_context_instead_of_the_tokens():
    x, context = np.random.default_rng(0).normal(size=(2, 2, 7, 8)).astype("float32")
    x = x[:, :1]
    layer = filled(Attention(2), x.shape)
    found = to_numpy(layer(x, context))
    np.testing.assert_allclose(found, longhand(layer, x, context), atol=2e-4)


def test_variables_have_the_same_paths_and_shapes_on_every_backend():
    layer = filled(Attention(2, name="attention"), (None, 5, 8))
    assert {w.path: tuple(w.shape) for w in layer.weights} == {
        f"attention/{part}/{name}": shape
        for part in ("query", "key", "value", "output")
        for name, shape in (("kernel", (8, 8)), ("bias", (8,)))
    }


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="width=8, num_heads=3"):
        Attention(3)(np.ones((1, 2, 8), "float32"))


def tensors(dtype="bfloat16", tokens=5, size=8):
    query = np.random.default_rng(0).normal(size=(3, 2, tokens, 2, size))
    return [keras.ops.cast(each, dtype) for each in query.astype("float32")]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_attend_with_large_scores_and_masks(dtype):
    """Neither exponentials of large scores nor float16 sums of many values overflow."""
    rng = np.random.default_rng(0)
    query, key = rng.integers(-9, 10, (2, 2, 300, 2, 8)).astype("float64")
    value = rng.uniform(900, 1000, (2, 300, 2, 8))
    mask = rng.random((2, 2, 300, 300)) < 0.9
    for scale in (0, 1):
        scores = np.einsum("bnhd,bmhd->bhnm", scale * query, key) / np.sqrt(8)
        scores = np.where(mask, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        expected = np.einsum("bhnm,bmhd->bnhd", weights, value)
        inputs = (keras.ops.cast(x, dtype) for x in (scale * query, key, value))
        found = to_numpy(keras.ops.cast(attention(*inputs, mask), "float32"))
        tolerance = 1e-5 if dtype == "float32" else 2e-2
        np.testing.assert_allclose(found, expected, rtol=tolerance)


@pytest.fixture
def on_a_gpu(monkeypatch):
    """A GPU stands in for the device; returns the calls of Keras's operation."""
    calls, compute = [], keras.ops.dot_product_attention

    def counted(*args, **kwargs):
        calls.append(args)
        return compute(*args, **kwargs)

    monkeypatch.setattr(keras.ops, "dot_product_attention", counted)
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: ["gpu:0"])
    return calls


on_jax = pytest.mark.only_on("jax", reason="of JAX")
if keras.backend.backend() == "jax":
    import jax


@on_jax
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_attention_in_16_bits_is_fused_on_a_gpu(on_a_gpu, dtype):
    query, key, value = tensors(dtype)
    found = to_numpy(attention(query, key, value))
    assert len(on_a_gpu) == 1
    exact = [keras.ops.cast(each, "float32") for each in (query, key, value)]
    np.testing.assert_allclose(found, to_numpy(attention(*exact)), atol=0.02)
    assert len(on_a_gpu) == 1  # 32 bits are not fused


@pytest.fixture
def capability(monkeypatch):
    """The device has a compute capability; returns the calls with a token added."""
    calls, compute = [], jax.nn.dot_product_attention

    def without_cudnn(*args, implementation, **options):
        calls.append((args, implementation))
        return compute(*args, **options)

    def of(version):
        device = types.SimpleNamespace(compute_capability=version, platform="gpu")
        monkeypatch.setattr(jax, "devices", lambda: [device])
        monkeypatch.setattr(jax.nn, "dot_product_attention", without_cudnn)
        return calls

    return of


@on_jax
@pytest.mark.parametrize("version", ["7.5", "gfx90a", None])
@pytest.mark.parametrize("tokens", [5, 6])
def test_odd_tokens_are_not_fused_in_training_on_other_gpus(
    on_a_gpu, capability, tokens, version
):
    assert not capability(version)
    attention(*tensors(tokens=tokens), training=True)
    assert len(on_a_gpu) == (tokens % 2 == 0)


@pytest.mark.slow
@on_jax
def test_odd_tokens_are_fused_in_training_with_one_more(on_a_gpu, capability):
    calls = capability("9.0")
    inputs = tensors(size=16)

    def loss(inputs, training):
        found = attention(*inputs, training=training).astype("float32")
        return (found * np.cos(np.arange(found.size)).reshape(found.shape)).sum(), found

    (_, found), gradients = jax.value_and_grad(loss, has_aux=True)(inputs, True)
    ((arrays, implementation),) = calls
    assert [a.shape for a in arrays] == [(2, 6, 2, 16)] * 3
    assert implementation == "cudnn"
    exact = [x.astype("float32") for x in inputs]
    (_, same), expected = jax.value_and_grad(loss, has_aux=True)(exact, False)
    assert len(calls) == 1
    np.testing.assert_allclose(found, same, atol=0.02)
    for one, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(one.astype("float32"), other, atol=0.03)


@on_jax
def test_no_token_is_added_where_keras_distributes(on_a_gpu, capability, monkeypatch):
    calls = capability("9.0")
    monkeypatch.setattr(keras.distribution, "distribution", lambda: "DataParallel")
    attention(*tensors(), training=True)
    assert not calls


@on_jax
@pytest.mark.parametrize(
    "case", [{"dtype": "float32"}, {"size": 12}, {"size": 136}, {"size": 4}], ids=str
)
def test_attention_that_cudnn_does_not_compute_is_not_fused(on_a_gpu, case):
    attention(*tensors(**case))
    assert not on_a_gpu


@on_jax
def test_masks_and_pooling_are_not_fused(on_a_gpu):
    query, key, value = tensors()
    attention(query, key, value, np.ones((5, 5), bool))
    attention(query[:, :1], key, value)
    assert not on_a_gpu


@on_jax
def test_attention_is_not_fused_on_a_cpu():
    query, key, _ = tensors()
    assert not is_fused(query, key)


@pytest.mark.slow
@on_jax
def test_second_derivatives_use_no_fused_attention(on_a_gpu):
    options = {"depth": 1, "width": 16, "num_heads": 2, "mlp_dim": 8}
    options |= {"patch_size": 4, "image_size": 8, "num_classes": 2}
    model = kerasvit.VisionTransformer(**options, dtype="mixed_bfloat16")
    x, y = np.ones((2, 8, 8, 3), "float32"), np.array([0, 1])
    model(x)
    assert on_a_gpu
    on_a_gpu.clear()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    kerasvit.inspection.Hessian(model, x, y, loss) @ np.ones(model.count_params())
    assert not on_a_gpu


@pytest.mark.not_on("jax", reason="JAX decides by device")
def test_pytorch_fuses_attention_and_tensorflow_does_not():
    query, key, _ = tensors("float32")
    assert is_fused(query, key) == (keras.backend.backend() == "torch")


@pytest.mark.only_on("torch", reason="of PyTorch")
@pytest.mark.parametrize("masked", [False, True])
def test_pytorch_chooses_the_kernel_on_a_gpu(monkeypatch, on_a_gpu, masked):
    from kerasvit.backend.torch import kernels

    query, key, value = (np.float32(x) for x in np.random.normal(size=(3, 2, 5, 2, 8)))
    mask = np.eye(5, dtype=bool) if masked else None
    query, key, value = (keras.ops.convert_to_tensor(x) for x in (query, key, value))
    expected = to_numpy(attention(query, key, value, mask))
    assert len(on_a_gpu) == 1

    class OnGPU:
        """The tensor of a GPU."""

        device = types.SimpleNamespace(type="cuda")
        transpose = query.transpose

    found = kernels.attention(query if masked else OnGPU(), key, value, mask)
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-6)
    assert len(on_a_gpu) == 1 + masked


def test_attention_of_symbolic_tensors():
    query, key, value = (keras.KerasTensor((2, 5, 2, 8)) for _ in range(3))
    assert attention(query, key, value).shape == (2, 5, 2, 8)
