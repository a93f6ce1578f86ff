"""Tables that layers compute have a limit, and equal ones are computed once."""

import pytest

from kerasvit.arguments import ArgumentError
from kerasvit.layers import (
    LocalAttention,
    NeighborhoodAttention,
    SinCosPositionEmbedding,
    WindowAttention,
)
from kerasvit.layers import (
    layer as layer_module,
)


@pytest.mark.parametrize(
    ("layer", "shape", "size", "argument"),
    [
        (lambda: SinCosPositionEmbedding((2, 3)), (6, 8), 6 * 8 * 8, "width"),
        (
            lambda: WindowAttention(1, window_size=3),
            (6, 6, 4),
            4 * 9**2,
            "window_size",
        ),
        (
            lambda: LocalAttention(4, num_heads=1, window_size=3),
            (6, 6, 4),
            4 * 3**4,
            "window_size",
        ),
        (
            lambda: NeighborhoodAttention(1, grid=(2, 3), window=3, prefix=1),
            (7, 4),
            7**2,
            "image_size",
        ),
    ],
)
def test_a_table_above_the_limit_raises(monkeypatch, layer, shape, size, argument):
    monkeypatch.setattr(layer_module, "MAX_BYTES", size)
    layer().build((None, *shape))
    monkeypatch.setattr(layer_module, "MAX_BYTES", size - 1)
    with pytest.raises(ArgumentError, match=f"`{argument}`.*table of {size} bytes"):
        layer().build((None, *shape))


def test_layers_with_the_same_window_share_their_tables():
    one, other = (WindowAttention(1, window_size=3) for _ in range(2))
    for layer in (one, other):
        layer.build((None, 6, 6, 4))
    assert one._offsets is other._offsets and one._regions is other._regions
