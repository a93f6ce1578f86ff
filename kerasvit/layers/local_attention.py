"""Multi-head attention within windows of a feature map."""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.ops import reshape
from kerasvit.types import Shape, Tensor

from .conv import TORCH_UNIFORM
from .dense import Dense, dense_in
from .layer import Layer, check_table_size
from .window_attention import in_windows


@keras.saving.register_keras_serializable("kerasvit")
class LocalAttention(Layer):
    """Multi-head attention of each pixel to the pixels of its window.

    softmax(q kᵀ / √d + b) v, then a dense layer over the joined heads. The windows
    cover the map side by side and are never shifted. b depends on how far the key
    lies from the query, down and across; all heads share one table of it. The heads'
    size does not depend on the number of channels.

    Shape: (batch, H, W, C) → (batch, H, W, width).

    Args:
        width: Number of output channels.
        num_heads: Number of attention heads.
        window_size: Side of a window in pixels, a divisor of H and W.
        head_width: d, size of a head.

    Raises:
        ValueError: The windows do not cover the map.

    Reference: Park and Kim 2022, arXiv 2202.06709; `LocalAttention` in
    xxxnell/how-do-vits-work models/alternet.py.
    """

    def __init__(
        self,
        width: int,
        *,
        num_heads: int,
        window_size: int,
        head_width: int = 64,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.width = width
        self.num_heads = num_heads
        self.window_size = window_size
        self.head_width = head_width

    def build(self, input_shape: Shape) -> None:
        _, height, width, channels = input_shape
        edge = self.window_size
        if None in (height, width) or height % edge or width % edge:
            raise ValueError(
                f"The feature map must be a whole number of windows of {edge} × {edge} "
                f"pixels. Received: {height} × {width}. Choose multiples of {edge}."
            )
        inner = self.num_heads * self.head_width

        def dense(name: str, *sizes: int, **options: Any) -> Dense:
            start = keras.initializers.VarianceScaling(**TORCH_UNIFORM)
            return dense_in(self, name, *sizes, kernel_initializer=start, **options)

        self.query = dense("query", channels, inner, use_bias=False)
        self.key = dense("key", channels, inner, use_bias=False)
        self.value = dense("value", channels, inner, use_bias=False)
        bias = keras.initializers.RandomUniform(-(inner**-0.5), inner**-0.5)
        self.output_dense = dense("output", inner, self.width, bias_initializer=bias)
        self.position_bias = self.add_weight(
            name="position_bias",
            shape=(2 * edge - 1, 2 * edge - 1),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )
        check_table_size(4 * edge**4, "window_size")

    def call(self, x: Tensor) -> Tensor:
        _, height, width, _ = x.shape
        edge = self.window_size
        down, across = height // edge, width // edge
        rows = self._rows(x)
        value = self._split(self.value(rows), (0, 2, 1, 3))
        weights = ops.cast(self._weights(rows), value.dtype)
        x = self.operate(ops.matmul, weights=weights, value=value)
        x = ops.transpose(x, (0, 2, 1, 3))
        x = self.output_dense(reshape(x, (-1, self.num_heads * self.head_width)))
        x = reshape(x, (-1, down, across, edge, edge, self.width))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return reshape(x, (-1, height, width, self.width))

    def attention_weights(self, x: Tensor) -> Tensor:
        """Returns the weights within the windows, (batch, windows, heads, N, N).

        N = `window_size`² pixels of a window, in the order of `window_cells`. They are
        float32 at least.
        """
        weights = self._weights(self._rows(x))  # (B·windows, heads, N, N)
        windows = x.shape[1] * x.shape[2] // self.window_size**2
        return reshape(weights, (-1, windows, *weights.shape[1:]))

    def window_cells(self, height: int, width: int) -> np.ndarray:
        """Returns the pixels of the windows, (windows, N) indices of the map's pixels.

        Args:
            height, width: Size of the map, whose pixels are counted row by row.
        """
        cells = np.arange(height * width).reshape(height, width)
        return in_windows(cells, (self.window_size, self.window_size))

    def _rows(self, x: Tensor) -> Tensor:
        """Orders pixels by window: (B, H, W, C) → (B·windows·N, C)."""
        _, height, width, channels = x.shape
        edge = self.window_size
        x = reshape(x, (-1, height // edge, edge, width // edge, edge, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return reshape(x, (-1, channels))  # one row a pixel, window after window

    def _split(self, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        shape = (-1, self.window_size**2, self.num_heads, self.head_width)
        return ops.transpose(reshape(x, shape), axes)

    def _weights(self, rows: Tensor) -> Tensor:
        """Returns (B·windows, heads, N, N) for (B·windows·N, C)."""
        query = self._split(self.query(rows) * self.head_width**-0.5, (0, 2, 1, 3))
        key = self._split(self.key(rows), (0, 2, 3, 1))
        scores = self.operate(ops.matmul, query=query, key=key)
        # bfloat16 keeps 8 bits: too few for a sum over the weights of a window.
        at_least = keras.backend.result_type(scores.dtype, "float32")
        return ops.softmax(
            ops.cast(scores, at_least) + ops.cast(self._bias(), at_least)
        )

    def _bias(self) -> Tensor:
        """Returns the values of the table for every (query, key) of a window."""
        table = ops.reshape(self.position_bias, (-1,))
        return ops.take(table, relative_positions(self.window_size), axis=0)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return *input_shape[:-1], self.width


@functools.lru_cache(maxsize=8)
def relative_positions(edge: int) -> np.ndarray:
    """Returns indices of key minus query positions in the table, (edge², edge²)."""
    cells = np.stack(np.divmod(np.arange(edge * edge), edge), axis=-1)  # (down, across)
    down, across = np.moveaxis(cells[None] - cells[:, None] + edge - 1, -1, 0)
    return (down * (2 * edge - 1) + across).astype("int32")
