"""What is counted while layers are built."""

import keras
import pytest

from kerasvit.layers import (
    Dense,
    LocalAttention,
    NeighborhoodAttention,
    SinCosPositionEmbedding,
    TooLarge,
    WindowAttention,
    counted,
    values_follow,
)


@pytest.mark.parametrize(
    ("layer", "shape", "size"),
    [
        (lambda: SinCosPositionEmbedding((2, 3)), (6, 8), 6 * 8 * 8),
        (lambda: WindowAttention(1, window_size=3), (6, 6, 4), 4 * 9**2),
        (lambda: LocalAttention(4, num_heads=1, window_size=3), (6, 6, 4), 4 * 3**4),
        (
            lambda: NeighborhoodAttention(1, grid=(2, 3), window=3, prefix=1),
            (7, 4),
            7**2,
        ),
    ],
)
def test_tables_are_counted_before_they_are_made(layer, shape, size):
    with values_follow(table_bytes=size):
        layer().build((None, *shape))
    with values_follow(table_bytes=size - 1), pytest.raises(TooLarge):
        layer().build((None, *shape))


def test_weights_are_counted_before_they_are_made():
    with values_follow(weights=15, tensors=2):
        Dense(3).build((None, 4))
    with values_follow(weights=11), pytest.raises(TooLarge, match="weights"):
        Dense(3).build((None, 4))
    with values_follow(tensors=1), pytest.raises(TooLarge, match="tensors"):
        Dense(3).build((None, 4))


def test_of_all_layers_together():
    with values_follow(weights=5, table_bytes=1):
        counted(weights=2)
        counted(weights=3, table_bytes=1)
        with pytest.raises(TooLarge):
            counted(weights=1)


def test_outside_all_is_allowed():
    with values_follow(weights=0):
        pass
    counted(weights=10**30)
    Dense(3).build((None, 4))
    assert isinstance(Dense(3).kernel_initializer, keras.initializers.GlorotUniform)
