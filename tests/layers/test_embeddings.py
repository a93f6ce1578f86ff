import keras
import numpy as np
import pytest

from kerasvit.layers import (
    PatchEmbedding,
    PositionEmbedding,
    PrefixTokens,
    SinCosPositionEmbedding,
)
from kerasvit.layers.position_embedding import POSITION_KERNELS
from kerasvit.layers.resampling import resampling_matrix
from tests.contract import check_layer, to_numpy


def test_patch_embedding_contract():
    check_layer(
        PatchEmbedding(4, width=5),
        input_shape=(2, 8, 12, 3),
        output_shape=(2, 6, 5),
        parameters=4 * 4 * 3 * 5 + 5,
    )


def test_patch_embedding_without_bias():
    check_layer(
        PatchEmbedding(4, width=5, use_bias=False),
        input_shape=(2, 8, 12, 3),
        output_shape=(2, 6, 5),
        parameters=4 * 4 * 3 * 5,
    )


@pytest.mark.parametrize("patch_size", [4, (4, 2), (2, 6)])
def test_patch_embedding_is_a_convolution_with_stride_of_its_size(patch_size):
    images = np.random.default_rng(0).normal(size=(2, 8, 12, 3)).astype("float32")
    layer = PatchEmbedding(patch_size, width=5)
    tokens = to_numpy(layer(images))
    convolved = keras.ops.conv(
        images, layer.kernel, strides=patch_size, padding="valid"
    )
    convolved = np.reshape(to_numpy(convolved + layer.bias), (2, -1, 5))
    np.testing.assert_allclose(tokens, convolved, atol=1e-5)


def test_rectangular_patch_embedding_contract():
    check_layer(
        PatchEmbedding((4, 2), width=5, partial=True),
        input_shape=(2, 9, 13, 3),
        output_shape=(2, 12, 5),
        parameters=4 * 2 * 3 * 5 + 5,
    )


@pytest.mark.parametrize(
    ("patch_size", "message"),
    [
        (4, "4 × 4 pixels.*8 × 10.*multiples of 4"),
        ((2, 4), "2 × 4 pixels.*8 × 10.*multiples of 2 and 4"),
    ],
)
def test_patch_embedding_raises_for_a_remainder(patch_size, message):
    with pytest.raises(ValueError, match=message):
        PatchEmbedding(patch_size, width=5)(np.ones((1, 8, 10, 3), "float32"))


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


def image_of(rows, columns):
    return np.zeros((2, 4 * rows, 4 * columns, 3), "float32")


def filled_positions(kernel):
    layer = PositionEmbedding((4, 6), prefix=2, patch_size=4, kernel=kernel)
    layer(np.zeros((2, 26, 8), "float32"), image_of(4, 6))
    layer.table.assign(np.random.default_rng(0).normal(size=(1, 26, 8)))
    return layer


GRIDS = [(4, 6), (6, 4), (9, 7), (2, 3), (1, 1)]


def in_a_graph(layer, x, image):
    """The layer in a graph of TensorFlow of unknown sizes; the largest with XLA too."""
    import tensorflow as tf

    signature = [
        tf.TensorSpec((None, None, 8)),
        tf.TensorSpec((None, None, None, image.shape[-1])),
    ]
    for xla in (False, True) if image.shape[1] > 30 else (False,):
        yield tf.function(layer, input_signature=signature, jit_compile=xla)(x, image)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", POSITION_KERNELS)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_positions_of_any_size_are_those_of_resample(kernel, grid):
    layer = filled_positions(kernel)
    fixed = PositionEmbedding(grid, prefix=2)
    expected = fixed.resample(to_numpy(layer.table), source_grid=(4, 6), kernel=kernel)
    x = np.zeros((2, 2 + grid[0] * grid[1], 8), "float32")
    found = [layer(x, image_of(*grid))]
    if keras.backend.backend() == "tensorflow":
        found += in_a_graph(layer, x, image_of(*grid))
    for each in found:
        np.testing.assert_allclose(to_numpy(each)[:1], expected, atol=1e-5)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_sincos_of_any_size_is_that_of_the_grid(grid):
    layer = SinCosPositionEmbedding((4, 6), patch_size=4)
    x = np.zeros((2, grid[0] * grid[1], 8), "float32")
    found = [layer(x, image_of(*grid))]
    if keras.backend.backend() == "tensorflow":
        found += in_a_graph(layer, x, image_of(*grid))
    for each in found:
        expected = to_numpy(SinCosPositionEmbedding(grid)(x))
        np.testing.assert_allclose(to_numpy(each), expected, atol=1e-5)


def test_gradients_flow_through_the_resampling():
    layer = filled_positions("bicubic_antialias")
    tokens, image = keras.Input((None, 8)), keras.Input((None, None, 3))
    model = keras.Model([tokens, image], layer(tokens, image))
    model.compile(keras.optimizers.SGD(1.0), "mse")
    before, x = to_numpy(layer.table), np.zeros((2, 2 + 63, 8), "float32")
    y = np.random.default_rng(1).normal(size=x.shape).astype("float32")
    down, across = (
        resampling_matrix(*sides, "bicubic_antialias") for sides in ((4, 9), (6, 7))
    )
    error = 2 * (to_numpy(layer(x, image_of(9, 7))) - y).mean(axis=0) / (65 * 8)
    cells = np.einsum("hH,wW,hwd->HWd", down, across, error[2:].reshape(9, 7, 8))
    model.train_on_batch([x, image_of(9, 7)], y)
    gradient = np.concatenate([error[:2], cells.reshape(24, 8)])
    np.testing.assert_allclose(
        before[0] - to_numpy(layer.table)[0], gradient, atol=1e-6
    )


def test_patches_of_any_size_are_checked_at_the_call():
    layer = PatchEmbedding(4, width=8)
    layer.build((None, None, None, 3))
    assert layer.compute_output_shape((None, None, None, 3)) == (None, None, 8)
    assert layer(image_of(2, 3)).shape == (2, 6, 8)
    with pytest.raises(ValueError, match="Received: 10 × 12. Choose multiples of 4"):
        layer(np.zeros((1, 10, 12, 3), "float32"))


def test_partial_patches_are_ignored():
    layer, image = PatchEmbedding(4, width=8, partial=True), np.ones((1, 11, 14, 3))
    whole = PatchEmbedding(4, width=8)
    whole.build((None, 8, 12, 3))
    layer.build((None, 11, 14, 3))
    layer.set_weights(whole.get_weights())
    found = to_numpy(layer(image.astype("float32")))
    np.testing.assert_array_equal(found, to_numpy(whole(image_of(2, 3)[:1] + 1)))
    with pytest.raises(ValueError, match="at least one patch of 4 × 4.*3 × 14"):
        layer(np.ones((1, 3, 14, 3), "float32"))


@pytest.mark.only_on("tensorflow", reason="of TensorFlow")
def test_a_graph_of_tensorflow_names_the_size_that_does_not_fit():
    import tensorflow as tf

    layer = PatchEmbedding(4, width=8)
    signature = [tf.TensorSpec((None, None, None, 3))]
    graph = tf.function(layer, input_signature=signature)
    assert graph(image_of(2, 3)).shape == (2, 6, 8)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"patches.*\[10\] \[12\]"):
        graph(np.zeros((1, 10, 12, 3), "float32"))
