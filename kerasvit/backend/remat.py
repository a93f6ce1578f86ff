"""Recomputes a layer in the backward pass, whatever it draws and writes."""

from collections.abc import Callable
from typing import Any

import keras

from .keras_private import AutocastScope, contexts_of_call, in_contexts_of_call
from .update import is_float


def rematerialized(layer: keras.layers.Layer, call: Callable) -> Callable:
    """Returns a method of a layer whose activations are recomputed, not stored.

    `keras.remat(call)` fails for some layers: PyTorch draws other random masks in the
    second run, JAX makes a tensor of the argument `training`, and both runs write the
    same variables. Here the variables' values are arguments and results of a function
    that reads nothing else. (On a GPU, PyTorch runs it again in another thread, where
    Keras has no scopes.)

    Args:
        layer: Built layer.
        call: A method of it. Its positional arguments are tensors.
    """

    def rematerialized_call(*args: Any, **kwargs: Any) -> Any:
        variables, outside = layer.variables, contexts_of_call()

        def function(values: list, *args: Any) -> tuple[Any, dict]:
            scope = keras.StatelessScope(zip(variables, values, strict=True))
            before = dict(scope.state_mapping)
            with in_contexts_of_call(outside), scope:
                outputs = call(*args, **kwargs)
            after = scope.state_mapping
            written = (
                i for i, v in enumerate(variables) if after[id(v)] is not before[id(v)]
            )
            return outputs, {i: after[id(variables[i])] for i in written}

        with AutocastScope(None):  # sublayers cast their variables themselves
            values = [variable.value for variable in variables]
        # PyTorch assigns seeds in place, but the second run needs those of the first.
        values = [v if is_float(v) else keras.ops.copy(v) for v in values]
        outputs, written = keras.remat(function)(values, *args)
        for i, value in written.items():
            variables[i].assign(value)
        return outputs

    return rematerialized_call
