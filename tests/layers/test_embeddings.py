import keras
import numpy as np
import pytest

from kerasvit.layers import (
    PatchEmbedding,
    PositionEmbedding,
    PrefixTokens,
    SinCosPositionEmbedding,
)
from tests.contract import check_layer, to_numpy


def test_patch_embedding_contract():
    check_layer(
        PatchEmbedding(4, width=5),
        input_shape=(2, 8, 12, 3),
        output_shape=(2, 6, 5),
        parameters=4 * 4 * 3 * 5 + 5,
    )


def test_patch_embedding_is_a_convolution_with_stride_of_its_size():
    images = np.random.default_rng(0).normal(size=(2, 8, 12, 3)).astype("float32")
    layer = PatchEmbedding(4, width=5)
    tokens = to_numpy(layer(images))
    convolved = keras.ops.conv(images, layer.kernel, strides=4, padding="valid")
    convolved = np.reshape(to_numpy(convolved + layer.bias), (2, 6, 5))
    np.testing.assert_allclose(tokens, convolved, atol=1e-5)


def test_patch_embedding_raises_for_a_remainder():
    with pytest.raises(ValueError, match="4 × 4 pixels.*8 × 10"):
        PatchEmbedding(4, width=5)(np.ones((1, 8, 10, 3), "float32"))


def test_prefix_tokens_contract():
    check_layer(
        PrefixTokens(2, stddev=0.1),
        input_shape=(2, 5, 4),
        output_shape=(2, 7, 4),
        parameters=8,
    )


def test_prefix_tokens_come_first():
    x = np.ones((2, 3, 4), "float32")
    layer = PrefixTokens(2)
    np.testing.assert_array_equal(to_numpy(layer(x))[:, 2:], x)
    assert to_numpy(layer(x))[:, :2].max() == 0


def test_position_embedding_contract():
    check_layer(
        PositionEmbedding((2, 3), prefix=1),
        input_shape=(2, 7, 4),
        output_shape=(2, 7, 4),
        parameters=28,
    )


def test_position_embedding_keeps_its_prefix_rows_in_resampling():
    layer = PositionEmbedding((4, 6), prefix=2)
    table = np.random.default_rng(0).normal(size=(1, 2 + 9, 4)).astype("float32")
    resampled = layer.resample(table)
    assert resampled.shape == (1, 26, 4)
    assert resampled.dtype == np.float32
    np.testing.assert_array_equal(resampled[:, :2], table[:, :2])


def test_a_table_of_equal_size_has_the_grid_of_the_layer():
    layer = PositionEmbedding((2, 8))
    table = np.random.default_rng(0).normal(size=(1, 16, 4)).astype("float32")
    np.testing.assert_array_equal(layer.resample(table), table)
    resampled = layer.resample(table, source_grid=(4, 4))
    assert np.abs(resampled - table).max() > 0.1


def test_a_table_that_is_no_square_asks_for_its_grid():
    layer = PositionEmbedding((4, 4))
    table = np.zeros((1, 12, 4), "float32")
    with pytest.raises(ValueError, match=r"source_grid=\(height, width\)"):
        layer.resample(table)
    assert layer.resample(table, source_grid=(3, 4)).shape == (1, 16, 4)
    with pytest.raises(ValueError, match="12. Received: 3 × 3"):
        layer.resample(table, source_grid=(3, 3))


def test_sincos_contract():
    check_layer(
        SinCosPositionEmbedding((2, 3)),
        input_shape=(2, 6, 8),
        output_shape=(2, 6, 8),
        parameters=0,
    )


def test_sincos_is_big_visions_formula():
    zero = np.zeros((1, 6, 8), "float32")
    table = to_numpy(SinCosPositionEmbedding((2, 3))(zero))[0]
    for i in range(6):
        y, x = divmod(i, 3)
        angles = [(x, 1), (x, 1e-4), (y, 1), (y, 1e-4)]
        sx, sy = angles[:2], angles[2:]
        expected = [
            f(a * w) for part in (sx, sy) for f in (np.sin, np.cos) for a, w in part
        ]
        np.testing.assert_allclose(table[i], expected, atol=1e-6)


def test_sincos_needs_a_multiple_of_four():
    with pytest.raises(ValueError, match="width=6"):
        SinCosPositionEmbedding((2, 2))(np.zeros((1, 4, 6), "float32"))
