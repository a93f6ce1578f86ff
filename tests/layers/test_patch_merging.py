import numpy as np
import pytest

from kerasvit.layers import PatchMerging
from tests.contract import check_layer, to_numpy


@pytest.mark.slow
def test_contract():
    check_layer(
        PatchMerging(),
        input_shape=(2, 4, 6, 3),
        output_shape=(2, 2, 3, 6),
        parameters=2 * 12 + 12 * 6,
    )


def test_joins_neighbours_column_by_column():
    x = np.random.default_rng(0).normal(size=(2, 4, 6, 3)).astype("float32")
    layer = PatchMerging(epsilon=1e-3)
    y = to_numpy(layer(x))
    four = [x[:, down::2, right::2] for right in (0, 1) for down in (0, 1)]
    joined = np.concatenate(four, -1)
    centred = joined - joined.mean(-1, keepdims=True)
    normal = centred / np.sqrt(joined.var(-1, keepdims=True) + 1e-3)
    kernel = to_numpy(layer.reduction.kernel)
    np.testing.assert_allclose(y, normal @ kernel, atol=1e-5)


def test_sides_must_be_even():
    with pytest.raises(ValueError, match="even.*Received: 4 × 5"):
        PatchMerging().build((None, 4, 5, 3))
