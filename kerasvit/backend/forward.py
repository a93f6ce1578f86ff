"""Outputs and values of a model that other threads may call meanwhile.

`predict` and `fit` of Keras on JAX take the values out of the variables while they run,
and let JAX write over them. Here the variables are only read.
"""

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from kerasvit.types import Tensor

from .keras_private import present_values
from .threads import used_here, using

if keras.backend.backend() == "openvino":
    from .openvino import outputs as outputs_on_openvino

PATIENCE = 10.0  # seconds


def outputs_of(model: keras.Model, x: Any) -> Any:
    """Returns the outputs of a model for a batch, as `predict_on_batch` does.

    Args:
        model: Built `keras.Model`.
        x: Inputs of one batch, arrays.

    Raises:
        ValueError: On JAX, another thread has the values of the variables for more than
            ten seconds.
    """
    variables = [model.trainable_variables, model.non_trainable_variables]
    both = [*variables[0], *variables[1]]
    with using(both):
        if keras.backend.backend() == "openvino":
            return outputs_on_openvino(model, x)
        if keras.backend.backend() != "jax":
            return model.predict_on_batch(x)
        step, count = _step(model), len(variables[0])
        outputs = at_values(both, lambda v: step((v[:count], v[count:]), x))
    return keras.tree.map_structure(np.array, outputs)


def _step(model: Any) -> Callable[[Any, Any], Any]:
    """Returns a model's predict step on JAX without the new state, compiled once."""
    import jax

    # Keras makes a new predict function wherever this one would be out of date.
    model.make_predict_function()
    kept = vars(model.predict_function)
    if "step" not in kept:

        def step(state: Any, x: Any) -> Any:
            return model.predict_step(state, (x,))[0]

        compiled = model.jit_compile and not model.run_eagerly
        kept["step"] = jax.jit(step) if compiled else step
    return kept["step"]


def constants(variables: list[keras.Variable]) -> list[Tensor]:
    """Returns the values of variables in their own dtypes, as constant tensors.

    On JAX they are copies: the steps of other threads write over the values.
    """
    if keras.backend.backend() == "jax":
        return at_values(variables, lambda values: [value.copy() for value in values])
    # PyTorch would record what is computed of parameters.
    convert = keras.ops.convert_to_tensor
    return [keras.ops.stop_gradient(convert(each)) for each in variables]


def array_of(variable: keras.Variable) -> np.ndarray:
    """Returns the value of a variable."""
    if keras.backend.backend() == "jax":
        return at_values([variable], lambda values: np.array(values[0]))
    return keras.ops.convert_to_numpy(variable)


def at_values(variables: list[keras.Variable], function: Callable[[list], Any]) -> Any:
    """Returns a function of the values of variables on JAX, once all have one.

    Raises:
        ValueError: They have none for more than ten seconds.
    """
    end = time.monotonic() + PATIENCE
    while True:
        values = present_values(variables)
        if all(value is not None and not value.is_deleted() for value in values):
            try:
                return function(values)
            except (RuntimeError, ValueError):
                if not any(value.is_deleted() for value in values):
                    raise
        if used_here(variables):
            raise ValueError(
                "The model must have its weights. Received: a model inside a call of "
                "`fit`, `evaluate` or `predict`, which Keras on JAX takes its weights "
                "out of. Call this in the callback's `on_epoch_end`, or after the call."
            )
        if time.monotonic() > end:
            raise ValueError(
                "The model must have its weights. Received: a model whose weights "
                "another thread has taken, or a failed call has lost: Keras on JAX "
                "takes them out of the model in `fit`, `evaluate` and `predict`. Call "
                "this when the other call has ended."
            )
        time.sleep(0.01)
