"""Operations that JAX computes in other ways than Keras; see `kerasvit.ops`."""

import functools
import math
from typing import Any

import jax
import keras
from jax import numpy as jnp
from keras import ops


def on_gpu() -> bool:
    """Returns whether Keras's first device is a GPU."""
    return keras.distribution.list_devices()[0].startswith("gpu")


def on_cpu() -> bool:
    """Returns whether Keras's first device is a CPU."""
    return keras.distribution.list_devices()[0].startswith("cpu")


# `recipes/scoring/multiply_adds.py` knows the name.
@functools.partial(jax.jit, static_argnames=("strides", "border"))
def grouped_convolution(
    x: jax.Array, kernel: jax.Array, strides: int, border: int
) -> jax.Array:
    """Computes a convolution of groups on a CPU; see `kerasvit.ops.convolution`.

    XLA there computes the gradient of the kernel without its library of convolutions:
    28 s for 8 maps of 56 × 56 × 128 in 32 groups. Here up to eight plain convolutions
    take 0.2 s, each of neighbouring groups, whose kernels lie as blocks on the diagonal
    of one of zeros (2026-11-28). A convolution for each group compiles twice as long.
    """
    size, _, channels, _ = kernel.shape
    groups = x.shape[-1] // channels
    parts = math.gcd(groups, 8)
    joined = groups // parts
    blocks = kernel.reshape(size, size, channels, parts, joined, -1)
    diagonal = jnp.eye(joined, dtype=kernel.dtype)
    kernels = jnp.einsum("hwcpmf,mn->phwncmf", blocks, diagonal)
    maps = [
        jax.lax.conv_general_dilated(
            part,
            filters,
            (strides, strides),
            ((border, border),) * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        for part, filters in zip(
            jnp.split(x, parts, axis=-1),
            kernels.reshape(parts, size, size, joined * channels, -1),
            strict=True,
        )
    ]
    return jnp.concatenate(maps, axis=-1)


def computes_attention(query: jax.Array, key: jax.Array, training: bool | None) -> bool:
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


def attention(
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


# Numerator and denominator, from the highest power of x², and where erf is 1:
# `generic_fast_erf_float` of Eigen, which XLA uses too (xla/hlo/builder/lib/math.cc).
_ODD = (
    0.00022905065861350646,
    0.0034082910107109506,
    0.050955695062380861,
    0.18520832239976145,
    1.128379143519084,
)
_EVEN = (
    -1.1791602954361697e-7,
    0.000023547966471313185,
    0.0010179625278914885,
    0.014070470171167667,
    0.11098505178285362,
    0.49746925110067538,
    1.0,
)
_LARGEST = 3.832506856900711


@jax.custom_jvp
def erf(x: jax.Array) -> jax.Array:
    """Returns the error function of float32, with an absolute error of at most 4e-7."""
    square = x * x
    ratio = x * _polynomial(square, _ODD) / _polynomial(square, _EVEN)
    within = jnp.clip(ratio, -1, 1)  # by rounding it may be 1 + 1e-7
    return jnp.where(jnp.abs(x) < _LARGEST, within, jnp.sign(x))


@erf.defjvp
def _derivative(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (x,), (tangent,) = primals, tangents
    return erf(x), 2 / jnp.pi**0.5 * jnp.exp(-x * x) * tangent


def _polynomial(x: jax.Array, coefficients: tuple[float, ...]) -> jax.Array:
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def gelu(x: jax.Array) -> jax.Array:
    """Returns the exact GELU, computed in float32."""
    single = x.astype("float32")
    return (0.5 * single * (1.0 + erf(single * 0.5**0.5))).astype(x.dtype)
