"""Attention that is a convolution: Cordonnier et al. 2020 and Li et al. 2021."""

import keras
import numpy as np
import pytest

from kerasvit.layers import (
    QuadraticAttention,
    RelativeAttention,
    kernel_of_patches,
    set_convolution,
)
from tests.contract import to_numpy
from tests.once import mainly_on_last


def convolution(size, channels, filters, dtype=None):
    conv = keras.layers.Conv2D(filters, size, padding="same", dtype=dtype)
    conv.build((None, None, None, channels))
    conv.set_weights([np.random.normal(size=w.shape) for w in conv.weights])
    return conv


def attention(conv, x, kind=RelativeAttention, sharpness=1e4, **changes):
    size, _, channels, filters = conv.kernel.shape
    kwargs = {
        "head_dim": min(channels, filters), "filters": filters, "padding": size // 2
    }  # fmt: skip
    layer = kind(size**2, **{**kwargs, **changes})
    layer.build(x.shape)
    set_convolution(layer, conv.kernel, conv.bias, sharpness=sharpness)
    return layer


def images(*shape):
    return np.random.normal(size=shape).astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [RelativeAttention, QuadraticAttention])
@pytest.mark.parametrize(
    "size, channels, filters, grid",
    mainly_on_last(
        [
            (3, 3, 5, (6, 7)),
            (3, 5, 3, (5, 4)),
            (3, 4, 4, (1, 1)),  # a map smaller than the kernel
            (5, 2, 3, (3, 8)),
            (1, 3, 2, (4, 5)),
            (2, 3, 4, (5, 6)),  # an even kernel leans down and right
            (4, 3, 2, (6, 5)),
        ],
        everywhere=3,
    ),
)
def test_equals_the_convolution_border_included(kind, size, channels, filters, grid):
    conv, x = convolution(size, channels, filters), images(2, *grid, channels)
    expected = to_numpy(conv(x))
    found = to_numpy(attention(conv, x, kind)(x))
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_each_head_looks_at_one_shift_and_out_of_the_map():
    conv, x = convolution(3, 2, 2), images(1, 4, 5, 2)
    scores = to_numpy(attention(conv, x).position_scores())
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    assert set(np.unique(weights)) == {0.0, 1.0}
    # The first head, one up and one left, of the first cell: the corner of zeros.
    assert weights[0, 0, 0] == 1.0
    # The middle head sees each cell itself: in a map of 6 × 7 with its border.
    cells = [(y + 1) * 7 + x + 1 for y in range(4) for x in range(5)]
    assert weights[4].argmax(axis=-1).tolist() == cells


def test_larger_keys_and_padding_than_needed_are_exact():
    conv, x = convolution(3, 3, 5), images(2, 4, 6, 3)
    layer = attention(conv, x, head_dim=7, padding=2, key_dim=4)
    np.testing.assert_allclose(to_numpy(layer(x)), to_numpy(conv(x)), atol=2e-5)


def test_no_bias_is_zeros():
    conv, x = convolution(3, 3, 5), images(2, 4, 6, 3)
    layer = attention(conv, x)
    set_convolution(layer, to_numpy(conv.kernel))
    expected = to_numpy(conv(x)) - to_numpy(conv.bias)
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=2e-5)


def test_quadratic_scores_converge_as_alpha_grows():
    conv, x = convolution(3, 3, 4), images(2, 6, 7, 3)
    expected, errors = to_numpy(conv(x)), []
    for alpha in (1, 2, 4, 8, 16):
        layer = attention(conv, x, QuadraticAttention, sharpness=alpha)
        errors.append(np.abs(to_numpy(layer(x)) - expected).max())
    # The error is dominated by four neighbours of weight exp(−α) each.
    ratios = np.array(errors[1:]) / errors[:-1]
    assert (ratios < np.exp([-0.5, -1, -2, -4])).all(), ratios
    assert errors[-1] < 1e-4 * np.abs(expected).max()


def test_without_zeros_around_the_border_is_another():
    """With softmax alone, a head directed outside attends to the nearest cell."""
    conv, x = convolution(3, 3, 4), images(2, 5, 6, 3)
    padded = attention(conv, x, QuadraticAttention)
    bare = QuadraticAttention(9, head_dim=3, filters=4)
    bare.build(x.shape)
    bare.set_weights(padded.get_weights())
    found, expected = to_numpy(bare(x)), to_numpy(conv(x))
    inside = np.s_[:, 1:-1, 1:-1]
    np.testing.assert_allclose(found[inside], expected[inside], atol=2e-5)
    edge = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    repeated = to_numpy(conv(edge))[inside]
    np.testing.assert_allclose(found, repeated, atol=2e-5)
    assert np.abs(found - expected).max() > 0.1


def test_a_soft_start_trains_everything():
    conv, x = convolution(3, 2, 3), images(4, 5, 5, 2)
    layer = attention(conv, x, QuadraticAttention, sharpness=3.0, key_dim=2)
    for dense in (layer.query, layer.key):  # zeros would have no gradients
        dense.kernel.assign(images(2, 18) / 10)
    model = keras.Sequential([keras.Input((5, 5, 2)), layer])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    before = layer.get_weights()
    history = model.fit(x, images(4, 5, 5, 3), epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]
    for weight, old in zip(layer.weights, before):
        assert np.abs(to_numpy(weight) - old).max() > 0, weight.path


def test_bfloat16_is_near():
    conv, x = convolution(3, 3, 5), images(2, 6, 7, 3)
    expected = to_numpy(conv(x))
    for kind in (RelativeAttention, QuadraticAttention):
        found = to_numpy(attention(conv, x, kind, dtype="mixed_bfloat16")(x))
        assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


@pytest.mark.only_on(
    "tensorflow",
    reason="Keras computes in float64 on TensorFlow only",
)
def test_float64_agrees_to_its_own_precision():
    conv, x = convolution(3, 3, 5, "float64"), np.random.normal(size=(2, 4, 5, 3))
    found = keras.ops.convert_to_numpy(attention(conv, x, dtype="float64")(x))
    expected = keras.ops.convert_to_numpy(conv(x))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def cut(x, p):
    """(B, H, W, C) → (B, H/P, W/P, P·P·C)."""
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height // p, p, width // p, p, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // p, width // p, -1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "size, patch, heads",
    mainly_on_last(
        [(3, 2, 9), (4, 2, 9), (5, 2, 9), (7, 2, 25), (3, 1, 9), (5, 1, 25), (1, 3, 1)],
        everywhere=2,
    ),
)
def test_attention_over_patches_is_the_convolution_of_pixels(size, patch, heads):
    conv, x = convolution(size, 2, 3), images(2, 3 * patch, 4 * patch, 2)
    kernel = kernel_of_patches(conv.kernel, patch)
    assert len(kernel) ** 2 == heads == (2 * -(-(size - 1) // (2 * patch)) + 1) ** 2
    wide = keras.layers.Conv2D(3 * patch**2, len(kernel), padding="same")
    patches, expected = cut(x, patch), cut(to_numpy(conv(x)), patch)
    wide.build(patches.shape)
    wide.set_weights([kernel, np.tile(to_numpy(conv.bias), patch**2)])
    found = to_numpy(attention(wide, patches)(patches))
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("patch", [2, 4, 16])
def test_nine_heads_suffice_for_kernels_up_to_the_neighbouring_patches(patch):
    def heads(size):
        return len(kernel_of_patches(np.zeros((size, size, 1, 1)), patch)) ** 2

    assert [heads(size) for size in (1, 2, 2 * patch + 1)] == [1, 9, 9]
    assert heads(2 * patch + 2) == 25


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_heads": 8}, "needs attention with `num_heads` 9. Received: num_heads=8"),
        ({"head_dim": 2}, "`head_dim` 3 or more. Received: head_dim=2"),
        ({"padding": 0}, "`padding` 1 or more. Received: padding=0"),
        ({"filters": 4}, "3 channels and 4 filters.*3, 3, 3, 5"),
    ],
)
def test_attention_that_cannot_be_the_convolution_raises(changes, message):
    kwargs = {"num_heads": 9, "head_dim": 3, "filters": 5, "padding": 1, **changes}
    layer = RelativeAttention(kwargs.pop("num_heads"), **kwargs)
    layer.build((None, 4, 5, 3))
    before = layer.get_weights()
    with pytest.raises(ValueError, match=message):
        set_convolution(layer, np.ones((3, 3, 3, 5)))
    for old, new in zip(before, layer.get_weights()):
        np.testing.assert_array_equal(old, new)


def test_wrong_kernels_and_biases_give_a_hint():
    layer = RelativeAttention(9, head_dim=3, filters=5, padding=1)
    with pytest.raises(ValueError, match="must be built first"):
        set_convolution(layer, np.ones((3, 3, 3, 5)))
    layer.build((None, 4, 5, 3))
    for shape in ((3, 2, 3, 5), (3, 3, 3), (9, 3, 5)):
        with pytest.raises(ValueError, match="`kernel` must be .K, K, channels"):
            set_convolution(layer, np.ones(shape))
        with pytest.raises(ValueError, match="`kernel` must be .K, K, channels"):
            kernel_of_patches(np.ones(shape), 2)
    with pytest.raises(ValueError, match="3 channels and 5 filters"):
        set_convolution(layer, np.ones((3, 3, 4, 5)))
    with pytest.raises(ValueError, match="`bias` must have the kernel's 5 filters"):
        set_convolution(layer, np.ones((3, 3, 3, 5)), np.ones(4))
    with pytest.raises(ValueError, match="patch_size=0"):
        kernel_of_patches(np.ones((3, 3, 3, 5)), 0)
