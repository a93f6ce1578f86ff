"""Second derivatives of a loss on JAX."""

import jax
import keras

from .jax import traced_anew


def loss_derivatives(model, variables, loss):
    """As in `hessian_torch.py`; compiles the loss once per shape."""
    chosen = {id(variable) for variable in variables}
    others = [v for v in model.variables if id(v) not in chosen]

    @jax.jit
    def derivatives(weights, state, vector, x, y):
        # All variables are arguments: as constants, they would be compiled in.
        def at(weights):
            values = [*weights, *state]
            mapping = zip([*variables, *others], values, strict=True)
            with (
                traced_anew(),
                keras.StatelessScope(mapping, collect_losses=True),
            ):
                return loss(x, y)

        # GPUs and TPUs round the factors of a product more than one may think.
        with jax.default_matmul_precision("highest"):
            (value, gradients), (_, products) = jax.jvp(
                jax.value_and_grad(at), (weights,), (vector,)
            )
        return value, gradients, products

    def compute(vector, x, y):
        weights, state = ([v.value for v in group] for group in (variables, others))
        return derivatives(weights, state, vector, x, y)

    return compute
