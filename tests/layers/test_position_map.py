import numpy as np

from kerasvit.layers import PositionMap
from kerasvit.layers.resampling import resample_grid
from tests.contract import check_layer, to_numpy


def test_contract():
    check_layer(
        PositionMap((3, 4), kernel="bilinear"),
        input_shape=(2, 3, 4, 5),
        output_shape=(2, 3, 4, 5),
        parameters=3 * 4 * 5,
    )


def test_a_map_of_another_size_gets_the_resampled_table():
    layer, larger = PositionMap((3, 4)), PositionMap((5, 6))
    layer.build((None, 3, 4, 2))
    larger.build((None, 5, 6, 2))
    table = to_numpy(layer.table)
    expected = resample_grid(table[0], (5, 6), "bicubic_antialias")[None]
    found = to_numpy(layer(np.zeros((1, 5, 6, 2), "float32")))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    (method,) = larger.resamplers().values()
    np.testing.assert_array_equal(method(table, source_grid=(3, 4)), expected)
