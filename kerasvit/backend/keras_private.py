"""Every private name of Keras that kerasvit uses stands in this file.

Checked with Keras 3.15.1 and with 3.16.0.dev2026102704, a preview, on TensorFlow, JAX
and PyTorch. Beside it, a few classes override private methods of Keras's optimizers and
layers; tests/test_house.py lists them.
"""

import contextlib
import copy
import functools
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src.backend.common import global_state, masking, stateless_scope
from keras.src.backend.common.variables import AutocastScope as AutocastScope
from keras.src.trainers.data_adapters import data_adapter_utils

from kerasvit.types import Tensor

from . import threads
from .garbage import living
from .threads import seen_here, using

get_stateless_scope = stateless_scope.get_stateless_scope
if keras.backend.backend() == "torch":
    from keras.src.backend.torch.optimizers import torch_adamw

    TorchAdamW: Any = torch_adamw.AdamW
    try:
        from keras.src.backend.torch.ops.core import get_device as get_device
    except ModuleNotFoundError:  # before Keras 3.16
        from keras.src.backend.torch.core import get_device as get_device


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


def present_values(variables: list[keras.Variable]) -> list[Any]:
    """Returns what stands in variables: None where a step of JAX has taken the value.

    A `keras.StatelessScope` does not change it.
    """
    return [variable._value for variable in variables]


def masks_of(outputs: Any) -> list[Tensor | None]:
    """Returns the masks of tensors, attributes that new tensors lack, or None."""
    return [masking.get_keras_mask(value) for value in keras.tree.flatten(outputs)]


def masked(outputs: Any, masks: list[Tensor | None]) -> Any:
    """Attaches the masks that `masks_of` returned to tensors, and returns these."""
    for value, mask in zip(keras.tree.flatten(outputs), masks, strict=True):
        if mask is not None:
            masking.set_keras_mask(value, mask)
    return outputs


def remove_variable(layer: keras.layers.Layer, name: str) -> None:
    """Removes a variable of a layer.

    `del` of Keras also collects garbage, which takes up to a second each time.
    """
    layer._untrack_variable(getattr(layer, name))
    super(keras.layers.Layer, layer).__delattr__(name)


def variables_changed(model: keras.Model) -> None:
    """Makes models use variables that were added, removed, frozen or unfrozen.

    Functions that were compiled before would use the old ones: those of the model, and
    of every model and trainer around it or with one of its layers.
    """
    layers = layers_in(model)
    for layer in layers:
        layer._post_build()  # PyTorch collects the parameters of modules here
    changed = {*map(id, layers)}
    # Nothing in a layer names the models around it.
    for other in living(keras.Model):
        if not changed.isdisjoint(map(id, _computed_by(other))):
            other.train_function = other.test_function = other.predict_function = None


def _computed_by(model: Any) -> list[keras.layers.Layer]:
    """Returns the layers of a model, and those of the teacher of a trainer."""
    beside: list = getattr(model, "models_beside", list)()
    return [layer for each in (model, *beside) for layer in layers_in(each)]


def build_metrics(model: keras.Model, batch: Any) -> None:
    """Creates the variables of a model's metrics, as `fit` does at its first batch.

    On TensorFlow `fit` has not done so before `on_train_begin`.

    Args:
        model: Built and compiled model.
        batch: What its train step gets.
    """
    model._symbolic_build(data_batch=batch)


def set_first_epoch(model: keras.Model, epoch: int | None) -> None:
    """Sets the epoch with which `fit` begins; for callbacks, in `on_train_begin`.

    Args:
        model: The model that is fitted.
        epoch: Number of the epoch, from 0; 0 or None: the argument `initial_epoch`.
    """
    model._initial_epoch = epoch


def without_flash_attention(call: Callable) -> Callable:
    """Returns the `call` of one of Keras's attention layers without flash attention."""
    layer: Any = getattr(call, "__self__", None)
    if not getattr(layer, "_flash_attention", False):
        return call
    again = object.__new__(type(layer))  # shares all but this attribute
    vars(again).update(vars(layer), _flash_attention=False)
    return types.MethodType(call.__func__, again)  # type: ignore[attr-defined]


# What a layer's call sets for the layers inside it: the `training` argument, and the
# dtype that variables are cast to.
_CALL, _AUTOCAST = "current_call_ctx", "autocast_scope"
_SEED = "global_seed_generator"


def current_call() -> Any:
    """Returns the context of the layer's call that is running, or None."""
    return global_state.get_global_attribute(_CALL)


def current_training() -> Any:
    """Returns `training` of the layer's call that is running, or None.

    In `keras.RematScope` it is a traced boolean on JAX.
    """
    call = current_call()
    return None if call is None else call.get_value("training")


def current_autocast() -> Any:
    """Returns the `AutocastScope` that is open, or None."""
    return global_state.get_global_attribute(_AUTOCAST)


def contexts_of_call() -> list:
    """Returns copies, because the layers that are called next change the contexts."""
    return [copy.copy(each) for each in _contexts()]


def _contexts() -> list:
    return [current_call(), current_autocast(), threads.substitutes()]


def _set_contexts(contexts: list) -> None:
    call, autocast, substitutes = contexts
    global_state.set_global_attribute(_CALL, call)
    global_state.set_global_attribute(_AUTOCAST, autocast)
    threads.set_substitutes(substitutes)


@contextlib.contextmanager
def in_contexts_of_call(contexts: list) -> Iterator[None]:
    """Restores the surrounding contexts for a function that runs again."""
    others = _contexts()
    _set_contexts([copy.copy(each) for each in contexts])
    try:
        yield
    finally:
        _set_contexts(others)


def global_seed_generator() -> Any:
    """Returns the generator of random layers without a seed, or None before its use."""
    return global_state.get_global_attribute(_SEED)


def set_global_seed_generator(generator: Any) -> None:
    """Sets the generator; None: the next use makes a new one."""
    global_state.set_global_attribute(_SEED, generator)


_PENDING = "uninitialized_variables"  # Keras's name of the list


class TooLargeError(ValueError):
    """A model has more weights or variables than it may have.

    Args:
        what: "weights" or "variables".
    """

    def __init__(self, what: str):
        super().__init__(f"The model has more {what} than were expected.")
        self.what = what


class _Pending(list):
    """Replacement for Keras's list of variables without values.

    `append` counts the variables, raises beyond the limits, and makes zeros the initial
    value of weights.
    """

    def __init__(self, limits: dict[str, float]) -> None:
        super().__init__()
        self._left = dict(limits)

    def append(self, variable: Any) -> None:
        for what, amount in (("variables", 1), ("weights", math.prod(variable.shape))):
            self._left[what] -= amount
            if self._left[what] < 0:
                raise TooLargeError(what)
        if keras.backend.is_float_dtype(variable.dtype):  # no state of seed generators
            variable._initializer = keras.initializers.Zeros()
        super().append(variable)


def built_with_zeros(
    build: Callable[[], keras.Model],
    *,
    max_weights: float = math.inf,
    max_variables: float = math.inf,
) -> keras.Model:
    """Builds a model whose weights are zeros, whatever their initializers are.

    For a model whose weights are all assigned afterwards. Nothing is drawn at random,
    and no memory is taken before the whole model is known to be small enough.

    Args:
        build: Function that builds the model.
        max_weights: Number of weights that the model may have.
        max_variables: Number of variables that it may have.

    Raises:
        TooLargeError: The model would have more.
    """
    before = global_state.get_global_attribute(_PENDING)
    pending = _Pending({"weights": max_weights, "variables": max_variables})
    global_state.set_global_attribute(_PENDING, pending)
    try:
        with keras.StatelessScope(initialize_variables=False):
            model = build()
    finally:
        global_state.set_global_attribute(_PENDING, before or [])
    for variable in pending:
        variable._deferred_initialize()
    for layer in layers_in(model):
        layer._post_build()  # PyTorch takes the values for its parameters here
    return model


# Attributes that `compile` sets in a Keras model for its loss and its metrics.
_COMPILED = (
    *("compiled", "loss", "optimizer"),
    *("_compile_loss", "_compile_metrics", "_loss_tracker"),
)


@contextlib.contextmanager
def lend_compiled(trainer: keras.Model, model: keras.Model) -> Iterator[keras.Model]:
    """Context in which `model` has the loss and metrics of the compiled `trainer`.

    The model's `compute_loss`, `compute_metrics` and `metrics`, and calls of `super` in
    them, then use the trainer's loss, metrics and optimizer. Afterwards the model is
    compiled as before. Contexts may be nested; only the outermost one has an effect.
    """
    # `__dict__` is changed, because Keras tracks a metric that is set as an attribute.
    lender, borrower = vars(trainer), vars(model)
    depth = lender.get("_lending_depth", 0)
    if depth == 0:
        lender["_compiled_of_model"] = _popped(borrower)
        borrower.update({name: lender[name] for name in _COMPILED if name in lender})
    lender["_lending_depth"] = depth + 1
    try:
        yield model
    finally:
        # A counter, because replicas of TensorFlow enter and leave in turns.
        lender["_lending_depth"] -= 1
        if lender["_lending_depth"] == 0:
            _popped(borrower)
            borrower.update(lender.pop("_compiled_of_model"))


def _popped(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: attributes.pop(name) for name in _COMPILED if name in attributes}


def track_loss(trainer: keras.Model, loss: Tensor, samples: int) -> None:
    """Adds the loss of a batch to the mean that Keras reports."""
    trainer._loss_tracker.update_state(loss, sample_weight=samples)


def iterators_of_execution(iterator: Any, count: int) -> list:
    """Returns for each step of one execution on JAX the iterator of its batch.

    For several steps Keras 3.16 stacks their batches, but the last of an epoch.
    """
    partial: Any = getattr(data_adapter_utils, "PartialBatchList", None)
    if count == 1 or partial is None:
        return [iterator] * count
    batches = next(iterator)
    if not isinstance(batches, partial):
        present = (x for x in keras.tree.flatten(batches) if x is not None)
        batches = [
            keras.tree.map_structure(lambda x, i=i: x if x is None else x[i], batches)
            for i in range(len(next(present)))
        ]
    return [iter([batch]) for batch in batches]


def updated_metrics(trainer: keras.Model, *arguments: Any) -> tuple[dict, list]:
    """Returns (logs, new values of the metrics' variables) of a step on JAX."""
    return trainer._update_metrics_variables(*arguments)


def batches_counted(optimizer: keras.Optimizer) -> keras.Variable:
    """Returns the variable that counts batches; `iterations` counts updates."""
    return optimizer._iterations


def clipped(optimizer: keras.Optimizer, gradients: list) -> list:
    """Returns gradients as the optimizer clips them."""
    return optimizer._clip_gradients(gradients)


def has_hooks(layer: Any) -> bool:
    """Returns whether PyTorch calls functions around a layer's pass."""
    before = layer._forward_pre_hooks or layer._backward_pre_hooks
    return bool(before or layer._forward_hooks or layer._backward_hooks)


def metrics_variables_in(layers: list) -> list[keras.Variable]:
    """Returns the variables of metrics that layers hold themselves."""
    return [v for layer in layers for each in layer._metrics for v in each.variables]


def owners_of_losses(layers: list, losses: list[Tensor]) -> list[keras.layers.Layer]:
    """Returns for each loss of a scope the layer that added it."""
    return [
        next((each for each in layers if id(loss) in each._loss_ids), layers[0])
        for loss in losses
    ]


def give_losses(layers: list, losses: Iterator[Tensor]) -> None:
    """Adds losses to layers; a functional model refuses losses of its own."""
    for layer, loss in zip(layers, losses, strict=True):
        keras.layers.Layer.add_loss(layer, loss)
