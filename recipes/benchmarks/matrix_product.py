"""Measures the rate of a product of two large matrices."""

import time

import keras
import numpy as np
from devices import device_name

from kerasvit.ops import product

SIDE, SIDE_ON_ACCELERATOR = 2048, 8192
ROUNDS = 7


def operations_per_second(dtype: str) -> float:
    """Returns the most operations per second of products, two per multiply-add.

    Args:
        dtype: "float32" or "mixed_bfloat16", which is that of the matrices.
    """
    side = SIDE_ON_ACCELERATOR if device_name.accelerator() else SIDE
    random = np.random.default_rng(0).normal(size=(side, side)).astype("float32")
    matrix = keras.ops.cast(random, dtype.removeprefix("mixed_"))
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = product(matrix, matrix)
        float(keras.ops.cast(result[0, 0], "float32"))  # waits for the product
        seconds.append(time.perf_counter() - start)
    return 2 * side**3 / min(seconds)
