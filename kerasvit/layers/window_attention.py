"""Window attention with a relative position bias."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError
from kerasvit.ops import reshape, roll
from kerasvit.types import Shape, Tensor

from .dense import dense_in
from .dropout import Dropout
from .layer import Layer, check_table_size
from .resampling import MAX_CELLS, resample_grid


@keras.saving.register_keras_serializable("kerasvit")
class WindowAttention(Layer):
    """Multi-head attention within windows of a map, shifted or not.

    softmax(q kᵀ / √d + b) v in every window of M × M cells, d = D / num_heads. b is
    learned for each head and each of the (2M - 1)² offsets between two cells. The
    windows of a shifted layer are displaced by M / 2 down and to the right. For that
    the map is rolled, and cells from opposite borders do not attend to each other.
    Along a side that is not longer than M, the window is the whole side, without a
    shift.

    Shape: (batch, H, W, D) → same.

    Args:
        num_heads: Number of heads, a divisor of D.
        window_size: M, in cells; H and W must be multiples of it, or not longer.
        shifted: Whether the windows are shifted.
        use_bias: Whether query, key and value have a bias. The output always has one.
        dropout: Dropout rate after the output layer, in [0, 1).

    Raises:
        ValueError: D is not a multiple of `num_heads`, or windows do not fill the map.

    Reference: Liu et al. 2021 (Swin), arXiv 2103.14030, section 3.2; `WindowAttention`
    and `SwinTransformerBlock._attn` in timm/models/swin_transformer.py, which pads the
    maps that windows do not fill.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        window_size: int,
        shifted: bool = False,
        use_bias: bool = True,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.window_size = window_size
        self.shifted = shifted
        self.use_bias = use_bias
        self.dropout = dropout

    def build(self, input_shape: Shape) -> None:
        *_, height, width, channels = input_shape
        self.grid = (height, width)
        self.window = window_in(self.grid, self.window_size)
        if channels % self.num_heads or any(np.mod(self.grid, self.window)):
            raise ArgumentError(
                "The channels must be a multiple of `num_heads`, and each side of the "
                "map a multiple of `window_size`, or not longer. Received: "
                f"{height} × {width} × {channels}, num_heads={self.num_heads}, "
                f"window_size={self.window_size}.",
                "num_heads",
                "window_size",
                "image_size",
            )
        self.shift = tuple(
            self.window_size // 2 if self.shifted and side > window else 0
            for side, window in zip(self.grid, self.window, strict=True)
        )
        self._build_weights(channels)
        check_table_size(4 * np.prod(self.window).item() ** 2, "window_size")
        self._offsets = _offsets(self.window)
        self._regions = _regions(self.grid, self.window, self.shift)

    def _build_weights(self, channels: int) -> None:
        size, bias = (channels, channels), {"use_bias": self.use_bias}
        self.query = dense_in(self, "query", *size, **bias)
        self.key = dense_in(self, "key", *size, **bias)
        self.value = dense_in(self, "value", *size, **bias)
        self.output_dense = dense_in(self, "output", *size)
        self.drop = Dropout(self.dropout, name="drop", dtype=self.dtype_policy)
        self.drop.build((None, channels))
        self.position_bias = self.add_weight(
            name="position_bias",
            shape=(_count(self.window), self.num_heads),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            autocast=False,  # it is added to scores that are float32 at least
        )

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        (height, width), (h, w), channels = self.grid, self.window, x.shape[-1]
        rows = self._rows(x)
        value = ops.transpose(self._heads(self.value(rows)), (0, 1, 3, 2, 4))
        weights = ops.cast(self._weights(rows), value.dtype)
        x = self.operate(ops.matmul, weights=weights, value=value)
        x = reshape(ops.transpose(x, (0, 1, 3, 2, 4)), (-1, channels))
        x = self.drop(self.output_dense(x), training=training)
        x = reshape(x, (-1, height // h, width // w, h, w, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, rows, h, columns, w, D)
        x = reshape(x, (-1, height, width, channels))
        return roll(x, self.shift)

    def attention_weights(self, x: Tensor) -> Tensor:
        """Returns the weights within the windows, (batch, windows, heads, N, N).

        N = h·w cells of a window, in the order of `window_cells`. They are float32 at
        least.
        """
        return self._weights(self._rows(x))

    def window_cells(self, height: int, width: int) -> np.ndarray:
        """Returns the cells of the windows, (windows, N) indices of the map's cells.

        Args:
            height, width: Size of the map for which the layer is built. Its cells are
                counted row by row.
        """
        cells = np.arange(height * width).reshape(height, width)
        cells = np.roll(cells, [-side for side in self.shift], axis=(0, 1))
        return in_windows(cells, self.window)

    def _rows(self, x: Tensor) -> Tensor:
        """Orders cells by window: (B, H, W, D) → (B·windows·N, D)."""
        (height, width), (h, w), channels = self.grid, self.window, x.shape[-1]
        x = roll(x, [-moved for moved in self.shift])
        x = reshape(x, (-1, height // h, h, width // w, w, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, rows, columns, h, w, D)
        return reshape(x, (-1, channels))  # one row per cell; see MLP

    def _heads(self, x: Tensor) -> Tensor:
        """Splits rows: (B·windows·N, D) → (B, windows, N, heads, d)."""
        head = x.shape[-1] // self.num_heads
        return reshape(x, (-1, *self._regions.shape, self.num_heads, head))

    def _weights(self, rows: Tensor) -> Tensor:
        """Returns (B, windows, heads, N, N), N = h·w, for (B·windows·N, D)."""
        query, key = self._heads(self.query(rows)), self._heads(self.key(rows))
        query = ops.transpose(query, (0, 1, 3, 2, 4)) * query.shape[-1] ** -0.5
        key = ops.transpose(key, (0, 1, 3, 4, 2))
        scores = self.operate(ops.matmul, query=query, key=key)
        # bfloat16 has too few bits; see `ops.attention`.
        at_least = keras.backend.result_type(scores.dtype, "float32")
        return ops.softmax(ops.cast(scores, at_least) + self._bias())

    def _bias(self) -> Tensor:
        """Returns (heads, N, N); (windows, heads, N, N) where windows are shifted."""
        windows, cells = self._regions.shape
        # Transposed first: TensorFlow's gradient of rows of a variable is sparse.
        bias = ops.take(ops.transpose(self.position_bias), self._offsets, axis=1)
        bias = ops.reshape(bias, (self.num_heads, cells, cells))
        if windows == 1 or not self._regions.any():
            return bias
        # Computed in each call: the masks of all windows would be a large constant.
        regions = ops.convert_to_tensor(self._regions)
        apart = ops.not_equal(regions[:, :, None], regions[:, None, :])
        return bias + ops.cast(apart, bias.dtype)[:, None] * -100.0  # timm's number

    def resamplers(self) -> dict[str, Callable]:
        """Returns {variable path: method} of the variables that depend on windows."""
        return {self.position_bias.path: self.resample}

    def resample(
        self,
        table: np.ndarray,
        *,
        source_grid: tuple[int, int] | None = None,
        kernel: str = "geometric_linear",
    ) -> np.ndarray:
        """Resamples a table of biases of another window to this layer's window.

        Args:
            table: ((2h - 1) · (2w - 1), heads) array.
            source_grid: (H, W) of the map of `table`, which determines windows that are
                not square; None: this layer's window if the number of rows is the same,
                else a square window.
            kernel: One of `kerasvit.layers.resampling.KERNELS`.

        Returns:
            Array of this layer's shape, of the same dtype.

        Raises:
            ValueError: No such window has this number of rows.
        """
        source = _source_window(len(table), source_grid, self.window)
        size = (2 * self.window[0] - 1, 2 * self.window[1] - 1)
        grid = table.reshape(*(2 * side - 1 for side in source), -1)
        return resample_grid(grid, size, kernel).reshape(-1, table.shape[-1])


def window_in(grid: tuple[int, int], window_size: int) -> tuple[int, int]:
    """Returns (h, w) of a map's windows: `window_size`, or a shorter side."""
    height, width = grid
    return min(height, window_size), min(width, window_size)


def _count(window: tuple[int, int]) -> int:
    """Returns the number of offsets between two cells of a window."""
    return (2 * window[0] - 1) * (2 * window[1] - 1)


@functools.lru_cache(maxsize=8)
def _offsets(window: tuple[int, int]) -> np.ndarray:
    """Returns rows of the table (N · N,), from query to key."""
    cells = np.indices(window, dtype="int32").reshape(2, -1)
    down, right = cells[:, :, None] - cells[:, None, :]
    rows = (down + window[0] - 1) * (2 * window[1] - 1) + right + window[1] - 1
    return rows.reshape(-1)


@functools.lru_cache(maxsize=32)
def _regions(
    grid: tuple[int, int], window: tuple[int, int], shift: tuple[int, ...]
) -> np.ndarray:
    """Returns the number of the region of each cell of a shifted map, (windows, N).

    Along a shifted side the last window contains cells of two regions: the second comes
    from the opposite border.
    """
    down, right = (
        np.arange(side) >= side - moved for side, moved in zip(grid, shift, strict=True)
    )
    return in_windows((2 * down[:, None] + right).astype("int32"), window)


def in_windows(cells: np.ndarray, window: tuple[int, int]) -> np.ndarray:
    """Orders the cells of a map by window: (H, W) → (windows, h · w)."""
    (height, width), (h, w) = cells.shape, window
    cells = cells.reshape(height // h, h, width // w, w)
    return cells.swapaxes(1, 2).reshape(-1, h * w)


def _source_window(
    rows: int, grid: tuple[int, int] | None, own: tuple[int, int]
) -> tuple[int, int]:
    """Returns (h, w) of the window whose table has `rows`."""
    if rows > MAX_CELLS:
        raise ValueError(
            f"The table has {rows:,} rows; models have at most {MAX_CELLS:,}."
        )
    candidates = [own]
    if grid is not None:
        sizes = range(1, max(grid) + 1)
        candidates = [window_in(grid, size) for size in sizes] + candidates
    side = (round(rows**0.5) + 1) // 2
    for window in [*candidates, (side, side)]:
        if _count(window) == rows:
            return window
    raise ValueError(
        f"The table of position biases has {rows} rows, which no window in a map of "
        f"{grid} has, nor this layer's window of {own[0]} × {own[1]}, nor a square "
        "window. Build the model with the `image_size` and `window_size` that the "
        "weights were trained with."
    )
