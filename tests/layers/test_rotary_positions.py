import keras
import numpy as np

from kerasvit.layers import RotaryPositions
from tests.contract import to_numpy


def image(height, width):
    return np.zeros((2, height, width, 3), "float32")


def test_rows_columns_and_grid():
    layer = RotaryPositions(2, prefix=2)
    expected = [[0] * 4] * 2
    expected += [[row, column, 2, 3] for row in range(2) for column in range(3)]
    found = layer(image(4, 6))
    assert keras.backend.standardize_dtype(found.dtype) == "int32"
    np.testing.assert_array_equal(to_numpy(found), expected)
    assert layer.compute_output_shape((2, 4, 6, 3)) == (8, 4)
    again = RotaryPositions.from_config(layer.get_config())
    np.testing.assert_array_equal(to_numpy(again(image(4, 6))), expected)


def test_images_of_any_size():
    x = keras.Input((None, None, 3))
    layer = RotaryPositions(4, prefix=1)
    model = keras.Model(x, layer(x))
    for size in ((8, 12), (16, 4)):
        expected = to_numpy(layer(image(*size)))
        np.testing.assert_array_equal(to_numpy(model(image(*size))), expected)


def test_counts_exactly_in_mixed_precision():
    layer = RotaryPositions(1, dtype="mixed_bfloat16")
    assert len(np.unique(to_numpy(layer(image(300, 2)))[:, 0])) == 300
