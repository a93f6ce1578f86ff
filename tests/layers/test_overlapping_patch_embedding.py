import numpy as np
import pytest

from kerasvit.layers import OverlappingPatchEmbedding
from tests.contract import check_layer, to_numpy


def test_contract():
    check_layer(
        OverlappingPatchEmbedding(4, stride=3, width=5),
        input_shape=(2, 11, 8, 2),
        output_shape=(2, 3, 2, 5),
        parameters=4 * 4 * 2 * 5 + 5,
    )


def test_each_cell_is_the_product_of_a_patch():
    x = np.random.default_rng(0).normal(size=(2, 9, 12, 3)).astype("float32")
    layer = OverlappingPatchEmbedding(4, stride=2, width=5)
    y = to_numpy(layer(x))
    assert y.shape == (2, 3, 5, 5)
    layer.bias.assign(np.arange(5.0))
    y = to_numpy(layer(x))
    patch = x[:, 4:8, 2:6]  # the third down, the second across
    expected = np.einsum("bijc,ijcd->bd", patch, to_numpy(layer.kernel))
    np.testing.assert_allclose(y[:, 2, 1], expected + np.arange(5.0), atol=1e-5)


def test_an_image_has_a_patch():
    layer = OverlappingPatchEmbedding(4, stride=2, width=5)
    with pytest.raises(ValueError, match="at least one patch.*Received: 3 × 8"):
        layer(np.zeros((1, 3, 8, 3), "float32"))
