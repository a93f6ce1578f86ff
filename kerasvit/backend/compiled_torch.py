"""Compiles a model's passes on PyTorch, each as one graph.

With `jit_compile=True` Keras passes its whole step to `torch.compile`, which reads
Keras's Python code, breaks the step into dozens of graphs, and compiles parts of it
again at each step. Here `torch.compile` gets one function of tensors, whose operations
it records without reading its code.
"""

import functools
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
import torch
from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import get_stateless_scope

from .copies_torch import queued_copies
from .graphs_torch import Pass
from .kept import KeepsValues
from .keras_internals import layers_in, values_of
from .masks import masks_of
from .random import DrawsInGraphs
from .recorded import is_recorded
from .stateless import batch_size

# What the running step keeps for the next: graphs, and lists of variables and layers.
_kept: ContextVar[dict | None] = ContextVar("kept from step to step", default=None)


class CompiledSteps:
    """Base before `keras.Model`: `jit_compile=True` compiles the passes of its steps.

    A pass is a call of a model by `in_one_graph`. Loss, metrics and optimizer run as
    they do without compilation.
    """

    jit_compile: bool
    train_function: Any
    optimizer: Any
    dtype_policy: Any
    autocast: Any
    input_dtype: Any
    _compile_loss: Any
    _compile_metrics: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model; in a step, again as Keras did for such arguments before."""
        kept = _of_step()
        key = None if kept is None else _kind_of_call(self, args, kwargs)
        if kept is None or key is None:
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
        if key not in kept:
            outputs = super().__call__(*args, **kwargs)  # type: ignore[misc]
            if not any(mask is not None for mask in masks_of(outputs)):
                kept[key] = layers_in(self)
            return outputs
        for layer in kept[key]:
            if layer._losses or layer._loss_ids:
                layer._clear_losses()
        x = self.dtype_policy.convert_input(*args, self.autocast, self.input_dtype)
        return torch.nn.Module.__call__(self, x, **kwargs)

    @property
    def variables(self) -> list:
        """All variables; those of the first step, in each step."""
        kept, key = _of_step(), (id(self), "variables")
        if kept is None:
            return super().variables  # type: ignore[misc]
        if key not in kept:
            kept[key] = super().variables  # type: ignore[misc]
        return [*kept[key]]

    @property
    def losses(self) -> list:
        """Losses of layers and regularisers; [] sooner if a step has none."""
        if _of_step() is None or _has_losses(self):
            return super().losses  # type: ignore[misc]
        return []

    def _should_torch_compile(self) -> bool:
        return False  # not the step

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Builds what a step needs, once: Keras's `train_on_batch` does it each time.

        Then nothing is left to build, but Keras would collect all weights again.
        """
        parts = self._compile_loss, self._compile_metrics, self.optimizer
        built = all(part is None or part.built for part in parts)
        if self.train_function is None or not built:
            super()._symbolic_build(iterator, data_batch)  # type: ignore[misc]

    def make_train_function(self, force: bool = False) -> None:
        """Makes Keras's train function, with compiled passes of its own."""
        self._make("train_function", super().make_train_function, force)  # type: ignore[misc]

    def make_test_function(self, force: bool = False) -> None:
        """Makes Keras's test function, with compiled passes of its own."""
        self._make("test_function", super().make_test_function, force)  # type: ignore[misc]

    def make_predict_function(self, force: bool = False) -> None:
        """Makes Keras's predict function, with compiled passes of its own."""
        self._make("predict_function", super().make_predict_function, force)  # type: ignore[misc]

    def _make(self, name: str, make: Callable, force: bool) -> None:
        before = getattr(self, name)
        make(force)
        function = getattr(self, name)
        if function is before or not self.jit_compile:
            return
        keras_step = keras.Model.train_step
        if name == "train_function" and type(self).train_step is keras_step:  # type: ignore[attr-defined]
            function = functools.partial(_train_step, self)
        kept: dict = {}

        def compiled(*arguments: Any) -> Any:
            token = _kept.set(kept)
            try:
                return function(*arguments)
            finally:
                _kept.reset(token)

        setattr(self, name, compiled)


class CompiledModel(CompiledSteps, KeepsValues):
    """Base before `keras.Model` of a model whose calls in a step are compiled."""

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        call = super().call  # type: ignore[misc]
        return in_one_graph(self, call, inputs, training=training, mask=mask)


def in_one_graph(model: Any, call: Callable, inputs: Any, **options: Any) -> Any:
    """Returns `call(inputs, **options)`; in a step with `jit_compile=True`, compiled.

    Args:
        model: Built `keras.Model` with all variables that `call` uses.
        call: Its `call`, or the model.
        inputs: Tensor, or structure of tensors.
        options: `training` and `mask`.

    Raises:
        ValueError: A layer draws random numbers with a seed of its own, or calls a
            module of PyTorch.
    """
    kept = _of_step()
    masks = keras.tree.flatten(options.get("mask"))
    if kept is None or any(mask is not None for mask in masks):
        return call(inputs, **options)
    key = id(model), options["training"]
    if key not in kept:
        _check_layers(model, options["training"])
        kept[key] = Pass(model, functools.partial(call, **options))
    return kept[key](inputs)


def _of_step() -> dict | None:
    """Returns what a compiled step keeps; None in others, and in recorded passes."""
    return None if is_recorded() else _kept.get()


def _has_losses(model: Any) -> bool:
    """Returns whether `model.losses` may be more than []."""
    scope = get_stateless_scope()
    return (
        (scope is not None and bool(scope.losses))
        or any(variable.regularizer is not None for variable in model.variables)
        or any(layer._losses for layer in layers_in(model))
    )


def _kind_of_call(model: Any, arguments: tuple, options: dict) -> tuple | None:
    """Returns a key of the calls that Keras treats as this one, or None.

    They differ in the values of an array alone. `keras.Layer.__call__` takes a third of
    the time that Python needs for a compiled forward pass.
    """
    x: Any = arguments[0] if len(arguments) == 1 else None
    scope = get_stateless_scope()
    if (
        type(x) in (torch.Tensor, np.ndarray)
        and getattr(x, "_keras_mask", None) is None
        and options.keys() == {"training"}
        and global_state.get_global_attribute("current_call_ctx") is None
        and (scope is None or not scope.losses)
        and model.activity_regularizer is None
        and keras.distribution.distribution() is None
    ):
        return id(model), "call", options["training"], type(x), x.shape, x.dtype
    return None


def _train_step(model: Any, batches: list) -> dict[str, Any]:
    """Takes Keras's step on PyTorch, without waiting for a GPU until its end.

    Follows keras/src/backend/torch/trainer.py, whose loss and its mean copy numbers to
    the GPU between the passes.
    """
    (data,) = batches
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    y_pred = model(x, training=True)
    with queued_copies():
        loss = model._compute_loss(x, y, y_pred, sample_weight, training=True)
    if variables := model.trainable_variables:
        values = values_of(variables)
        scaled = model.optimizer.scale_loss(loss)
        gradients = torch.autograd.grad(scaled, values, allow_unused=True)
        with torch.no_grad():
            model.optimizer.apply(list(gradients), variables)
    else:
        warnings.warn("The model does not have any trainable weights.", stacklevel=2)
    with queued_copies():
        model._loss_tracker.update_state(loss, sample_weight=batch_size(x))
        return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def _check_layers(model: Any, training: bool | None) -> None:
    layers = layers_in(model)
    modules = [
        layer.name
        for layer in layers
        if isinstance(layer, keras.layers.TorchModuleWrapper)
    ]
    if modules:
        raise ValueError(
            "PyTorch compiles no weights that a module of its own reads. Pass "
            "jit_compile=False to `compile`. "
            f"Received: jit_compile=True, and modules in {modules}."
        )
    drawing = [layer for layer in layers if hasattr(layer, "seed_generator")]
    others = [
        layer.name
        for layer in drawing
        if not isinstance(layer, keras.layers.Dropout | DrawsInGraphs)
        or (layer.seed, getattr(layer, "noise_shape", None)) != (None, None)
    ]
    if training and others:
        raise ValueError(
            "PyTorch compiles random numbers of keras.layers.Dropout and "
            "StochasticDepth alone, and those without a seed. Pass jit_compile=False "
            "to `compile`. "
            f"Received: jit_compile=True, and other layers, {others}."
        )
