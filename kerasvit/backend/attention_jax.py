"""Fused attention on JAX, by cuDNN, also of odd numbers of tokens in training."""

from typing import Any

import jax
import keras
from jax import numpy as jnp
from keras import ops

from .gpu_jax import on_gpu


def computes(query: jax.Array, key: jax.Array, training: bool | None) -> bool:
    """Returns whether cuDNN computes attention and, in training, its gradients.

    Args:
        query: (B, N, H, d).
        key: (B, M, H, d).
        training: Whether gradients may follow.
    """
    half = keras.backend.standardize_dtype(query.dtype) in ("bfloat16", "float16")
    fits = query.shape[1] == key.shape[1] and query.shape[-1] in range(8, 129, 8)
    if not (half and fits and on_gpu()):
        return False
    return not (training and _is_odd(query)) or _adds_token()


def fused_attention(
    query: jax.Array, key: jax.Array, value: jax.Array, training: bool | None
) -> jax.Array:
    """Returns what `ops.dot_product_attention` does, also with gradients.

    JAX refuses the gradients of cuDNN's attention for an odd number of tokens. One more
    token, which the others do not attend to, makes it even.
    """
    if not (training and _is_odd(query)):
        return ops.dot_product_attention(query, key, value)
    batch, count = query.shape[:2]
    one_more = ((0, 0), (0, 1), (0, 0), (0, 0))
    even = (jnp.pad(x, one_more) for x in (query, key, value))
    # An array for each sample also under `vmap`, whose rule for cuDNN expects it.
    first = query[:, 0, 0, 0] == 0
    lengths = jnp.where(first, count, jnp.full(batch, count, "int32"))
    attended = jax.nn.dot_product_attention(
        *even,
        query_seq_lengths=lengths,
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return attended[:, :count]


def _is_odd(query: jax.Array) -> bool:
    return query.shape[1] is None or query.shape[1] % 2 == 1


def _adds_token() -> bool:
    """Returns whether a token is added: from Ampere on, without a distribution."""
    device: Any = jax.devices()[0]
    # "8.0"; of AMD "gfx90a".
    generation = str(getattr(device, "compute_capability", "")).partition(".")[0]
    modern = generation.isdigit() and int(generation) >= 8
    return modern and keras.distribution.distribution() is None
