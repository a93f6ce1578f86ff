"""The error function in float32, of operations that every runtime has.

JAX writes its own into exported programs as one that TensorFlow 2.21 does not load.
"""

import jax
from jax import numpy as jnp

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
