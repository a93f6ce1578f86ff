"""Access to private attributes of Keras, which only `backend` may use."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src.backend import AutocastScope
from keras.src.backend.common.stateless_scope import get_stateless_scope

from kerasvit.typing import Tensor

from .threads import seen_here, using


def layers_in(
    layer: keras.layers.Layer, include_self: bool = True
) -> list[keras.layers.Layer]:
    """Returns all layers inside a layer or model, at any depth."""
    return list(layer._flatten_layers(include_self=include_self))


def owners(model: keras.Model) -> dict[int, keras.layers.Layer]:
    """Returns {id of a variable: layer that created it} of a model's weights."""
    return {
        id(variable): layer
        for layer in layers_in(model)
        for variable in (*layer._trainable_variables, *layer._non_trainable_variables)
    }


def layer_calls(
    model: keras.Model,
) -> list[tuple[keras.layers.Layer, list[Tensor], list[Tensor]]]:
    """Returns the layers of a functional or Sequential model, from input to output.

    Each is given with the inputs and outputs of its call in this model's graph. A layer
    that is called several times is listed several times.
    """
    by_depth = getattr(model, "_functional", model)._nodes_by_depth
    nodes = [node for depth in sorted(by_depth)[::-1] for node in by_depth[depth]]
    return [
        (node.operation, node.input_tensors, node.outputs)
        for node in nodes
        if isinstance(node.operation, keras.layers.Layer)
    ]


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """Returns the arguments of `compile` as the objects that were passed.

    `get_compile_config` serialises them, which fails for lambdas and local classes.
    """
    return model._compile_config.config


def compute_loss(
    model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool
) -> Tensor:
    """Calls `model.compute_loss`, with `training` if its signature has it."""
    return model._compute_loss(x, y, y_pred, sample_weight, training=training)


def added_losses(model: keras.Model) -> Tensor | float:
    """Returns the sum of `add_loss` and regularisers in the loss of `compute_loss`."""
    return sum(model._aggregate_additional_loss(loss) for loss in model.losses)


def in_variable_dtype(model: keras.Model) -> contextlib.AbstractContextManager:
    """Context in which a model computes in the dtype of its variables."""
    return in_dtype(model, None)


@contextlib.contextmanager
def in_dtype(model: keras.Model, dtype: str | None) -> Iterator[None]:
    """Context in which a model's layers compute in a dtype for the calling thread.

    Other threads compute in the dtypes of the layers, and wait before they change the
    model's variables.

    Args:
        model: Built `keras.Model`.
        dtype: Name of a floating dtype; None: that of each layer's variables. All
            variables must then have values of this dtype, by a `keras.StatelessScope`
            that is made in the context.
    """
    policy = functools.cache(keras.DTypePolicy)
    wanted = [(layer, dtype or layer.variable_dtype) for layer in layers_in(model)]
    changes = [
        (layer, "_dtype_policy", lambda _, name=name: policy(name))
        for layer, name in wanted
        if layer.compute_dtype != name and layer.quantization_mode is None
    ]
    # A sum with a variable, and a scope, cast to the dtype that the variable declares.
    declared = AutocastScope(dtype) if dtype else contextlib.nullcontext()
    with using(model.variables), seen_here(changes), declared:
        yield


def values_of(variables: list[keras.Variable]) -> list[Tensor]:
    """Returns the tensors of variables in their own dtypes, or those of a scope.

    Outside of symbolic calls and without mixed precision it does what `value` does, in
    a twentieth of its time.
    """
    scope = get_stateless_scope()
    mapped = {} if scope is None else scope.state_mapping
    values = [mapped.get(id(variable), variable._value) for variable in variables]
    return [
        variable.value if value is None else value  # None: not yet initialised
        for variable, value in zip(variables, values, strict=True)
    ]


def remove_variable(layer: keras.layers.Layer, name: str) -> None:
    """Removes a variable of a layer.

    `del` of Keras also collects garbage, which takes up to a second each time.
    """
    layer._untrack_variable(getattr(layer, name))
    super(keras.layers.Layer, layer).__delattr__(name)


def variables_changed(model: keras.Model) -> None:
    """Makes a model use variables that were added, removed, frozen or unfrozen.

    A function that was traced before would use the old ones.
    """
    model.train_function = model.test_function = model.predict_function = None
    for layer in layers_in(model):
        layer._post_build()  # PyTorch collects the parameters of modules here


def without_flash_attention(call: Callable) -> Callable:
    """Returns the `call` of one of Keras's attention layers without flash attention."""
    layer: Any = getattr(call, "__self__", None)
    if not getattr(layer, "_flash_attention", False):
        return call
    again = object.__new__(type(layer))  # shares all but this attribute
    vars(again).update(vars(layer), _flash_attention=False)
    return types.MethodType(call.__func__, again)  # type: ignore[attr-defined]
