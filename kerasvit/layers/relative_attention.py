"""Multi-head attention with scores of relative positions."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.ops import reshape
from kerasvit.types import Shape, Tensor

from .dense import Dense, dense_in
from .layer import Layer


def shifts(grid: tuple[int, int], padding: int) -> np.ndarray:
    """Returns shifts between cells of a map and of the padded map: (N, M, 2)."""
    cells, padded = (
        np.moveaxis(np.mgrid[tuple(slice(-p, side + p) for side in grid)], 0, -1)
        for p in (0, padding)
    )
    return padded.reshape(1, -1, 2) - cells.reshape(-1, 1, 2)


@keras.saving.register_keras_serializable("kerasvit")
class RelativeAttention(Layer):
    """Multi-head attention with scores that depend on relative positions only.

    From cell i, head h attends to cell j with the weight
    softmax_j(q_i · k_j / √key_dim + b_h[j − i]). `table` contains b_h for every shift
    that the map allows. The map is padded with zeros, `padding` cells wide, so that a
    head can attend to positions outside it.

    `set_convolution` sets the weights to equal a convolution.

    Shape: (batch, H, W, C) → (batch, H, W, filters).

    Args:
        num_heads: Number of heads.
        head_dim: Size of a head's value.
        filters: Number of output channels.
        padding: Number of rows and columns of zeros on each side.
        key_dim: Size of a head's query and key; 0 for scores of positions alone,
            q = k = 0.

    Raises:
        ValueError: The height or width of the map is not known.

    Reference: Cordonnier et al. 2020, arXiv 1911.03584, section 2.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        head_dim: int,
        filters: int,
        padding: int = 0,
        key_dim: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.filters = filters
        self.padding = padding
        self.key_dim = key_dim

    def build(self, input_shape: Shape) -> None:
        _, height, width, channels = input_shape
        if None in (height, width):
            raise ValueError(
                "The height and width of the map must be known. Received: "
                f"{height} × {width}."
            )
        self.build_positions(shifts((height, width), self.padding))
        values = self.num_heads * self.head_dim
        self.value = dense_in(self, "value", channels, values, use_bias=False)
        self.output_dense = dense_in(self, "output", values, self.filters)
        if self.key_dim:
            keys = self.num_heads * self.key_dim
            self.query = dense_in(self, "query", channels, keys, use_bias=False)
            self.key = dense_in(self, "key", channels, keys, use_bias=False)

    def build_positions(self, shifts: np.ndarray) -> None:
        """Creates the table, and the index of each shift (N, M, 2) in it."""
        reach = shifts.max(axis=(0, 1))  # largest shifts, down and across
        sides = 2 * reach + 1
        self.table = self.add_weight(
            name="table",
            shape=(self.num_heads, *sides.tolist()),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            autocast=False,  # the scores are summed and compared in full precision
        )
        self._indices = (shifts + reach) @ [sides[1], 1]  # (N, M)

    def position_scores(self) -> Tensor:
        """Returns b_h[j − i] for cells and cells of the padded map, (heads, N, M)."""
        table = ops.reshape(self.table, (self.num_heads, -1))
        return ops.take(table, self._indices, axis=1)

    def look_at(self, shifts: Any, sharpness: float) -> None:
        """Sets the score of head h at `shifts[h]` to `sharpness` and others to 0.

        Args:
            shifts: (heads, 2) integers, down and across.
            sharpness: Difference between that score and all others.
        """
        table = np.zeros(self.table.shape)
        middle = np.array(table.shape[1:]) // 2
        rows, columns = np.transpose(np.array(shifts) + middle)
        table[np.arange(self.num_heads), rows, columns] = sharpness
        self.table.assign(table)

    def call(self, x: Tensor) -> Tensor:
        _, height, width, _ = x.shape
        seen = self._padded(x)
        weights = ops.cast(self._weights(x, seen), x.dtype)
        value = self._heads(self.value, seen)
        x = self.operate(ops.matmul, weights=weights, value=value)  # (B, heads, N, d)
        x = reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, self.value.units))
        return reshape(self.output_dense(x), (-1, height, width, self.filters))

    def attention_weights(self, x: Tensor) -> Tensor:
        """Returns the weights of cells to cells, (batch, heads, N, N), N = H·W.

        Weights of the zeros around the map are left out: with a padding, a row sums to
        less than 1.
        """
        batch, (height, width) = ops.shape(x)[0], x.shape[1:3]
        weights = self._weights(x, self._padded(x))
        p = self.padding
        weights = reshape(weights, (*weights.shape[:3], height + 2 * p, width + 2 * p))[
            ..., p : p + height, p : p + width
        ]
        cells = height * width
        weights = reshape(weights, (-1, self.num_heads, cells, cells))
        return ops.broadcast_to(weights, (batch, self.num_heads, cells, cells))

    def _padded(self, x: Tensor) -> Tensor:
        border = (self.padding, self.padding)
        return ops.pad(x, ((0, 0), border, border, (0, 0)))

    def _weights(self, x: Tensor, seen: Tensor) -> Tensor:
        """Returns the weights (B, heads, N, M); B is 1 if they are of positions alone.

        `seen` is the padded map of M cells.
        """
        scores = self.position_scores()[None]  # (1, heads, N, M)
        if self.key_dim:
            query = self._heads(self.query, x)
            key = ops.transpose(self._heads(self.key, seen), (0, 1, 3, 2))
            query = query * self.key_dim**-0.5
            content = self.operate(ops.matmul, query=query, key=key)
            scores = scores + ops.cast(content, scores.dtype)
        return ops.softmax(scores)

    def _heads(self, dense: Dense, x: Tensor) -> Tensor:
        _, height, width, channels = x.shape
        x = dense(reshape(x, (-1, channels)))  # one row per cell; see MLP
        size = dense.units // self.num_heads
        x = reshape(x, (-1, height * width, self.num_heads, size))
        return ops.transpose(x, (0, 2, 1, 3))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return *input_shape[:-1], self.filters
