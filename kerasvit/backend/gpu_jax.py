"""Whether JAX computes on a GPU, and a barrier for XLA."""

import jax
import keras


def on_gpu() -> bool:
    """Returns whether Keras's first device is a GPU."""
    return keras.distribution.list_devices()[0].startswith("gpu")


def materialized(x: jax.Array) -> jax.Array:
    """Returns an array that XLA computes once, and not again where it is read."""
    return jax.lax.optimization_barrier(x)
