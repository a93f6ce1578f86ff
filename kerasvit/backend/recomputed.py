"""Activations whose gradients store their arguments alone."""

from collections.abc import Callable

import keras

from kerasvit.typing import Tensor


def recomputed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns an activation that JAX computes again for its gradient.

    JAX would store what its operations need, also in float32 where a model computes in
    bfloat16: for the exact GELU of ViT-B/16 and 128 images 310 MB per block beside the
    argument's 155. On a CPU, a step takes less time, too. A call outside of a compiled
    function takes up to 0.4 ms longer. The other backends have operations for the
    common activations, which store the argument.

    Args:
        function: Function of arrays, and not of `keras.Variable` or `KerasTensor`.
    """
    return keras.remat(function) if keras.backend.backend() == "jax" else function
