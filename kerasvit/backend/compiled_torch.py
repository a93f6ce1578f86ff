"""Compiles a model's passes on PyTorch, each as one graph.

With `jit_compile=True` Keras passes its whole step to `torch.compile`, which reads
Keras's Python code, breaks the step into dozens of graphs, and compiles parts of it
again at each step. Here `torch.compile` gets one function of tensors, whose operations
it records without reading its code.
"""

import contextlib
import functools
import types
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras
import torch
from keras.src.backend import AutocastScope

from .contexts import contexts, restored
from .copies_torch import queued_copies
from .kept import KeepsValues
from .keras_internals import layers_in
from .random import DrawsInGraphs
from .recorded import recording
from .stateless import batch_size

# Compiled passes of the step that is running, by model and arguments; None without.
_passes: ContextVar[dict | None] = ContextVar("compiled passes", default=None)


class CompiledSteps:
    """Base before `keras.Model`: `jit_compile=True` compiles the passes of its steps.

    A pass is a call of a model by `in_one_graph`. Loss, metrics and optimizer run as
    they do without compilation.
    """

    jit_compile: bool

    def _should_torch_compile(self) -> bool:
        return False  # not the step

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
        passes: dict = {}

        def compiled(*arguments: Any) -> Any:
            token = _passes.set(passes)
            try:
                return function(*arguments)
            finally:
                _passes.reset(token)

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
        ValueError: A layer draws random numbers with a seed of its own.
    """
    passes = _passes.get()
    masks = keras.tree.flatten(options.get("mask"))
    if passes is None or any(mask is not None for mask in masks):
        return call(inputs, **options)
    tensors = [keras.ops.convert_to_tensor(x) for x in keras.tree.flatten(inputs)]
    key = id(model), options["training"]
    if key not in passes:
        _check_seeds(model)
        passes[key] = _Pass(model, call, inputs, options)
    return passes[key](tensors)


class _Pass:
    """A compiled function of the inputs and the variables of a model."""

    def __init__(self, model: Any, call: Callable, inputs: Any, options: dict) -> None:
        self.model = model
        self.variables = list(model.variables)
        self.outputs: Any = None  # structure of the outputs
        self.written: list[int] = []  # numbers of the variables that a pass assigns
        outside = contexts()

        def record(tensors: list, values: list) -> list:
            scope = keras.StatelessScope(
                zip(self.variables, values, strict=True), collect_losses=True
            )
            before = dict(scope.state_mapping)
            with not_compiling(), recording(), restored(outside), scope:
                outputs = call(keras.tree.pack_sequence_as(inputs, tensors), **options)
            after = scope.state_mapping
            self.outputs = outputs
            self.written = [
                i
                for i, v in enumerate(self.variables)
                if after[id(v)] is not before[id(v)]
            ]
            new = (after[id(self.variables[i])] for i in self.written)
            return [*keras.tree.flatten(outputs), *new, *scope.losses]

        torch.compiler.allow_in_graph(record)

        def compiled(tensors: list, values: list) -> list:
            return record(tensors, values)

        # PyTorch counts the compilations of a code object, and stops after a few.
        code, cells = compiled.__code__.replace(), compiled.__closure__
        own = types.FunctionType(code, globals(), "compiled", None, cells)
        self.function = torch.compile(own, fullgraph=True, dynamic=False)

    def __call__(self, tensors: list) -> Any:
        with AutocastScope(None):  # layers cast their variables themselves
            values = [variable.value for variable in self.variables]
        if torch.is_grad_enabled():
            # Another train step drops the gradients of the last one after this pass, at
            # the end of which the memory is full.
            for value in values:
                value.grad = None
        found = self.function(tensors, values)
        count = len(keras.tree.flatten(self.outputs))
        last = count + len(self.written)
        for i, value in zip(self.written, found[count:last], strict=True):
            self.variables[i].assign(value)
        for loss in found[last:]:
            # A functional model has losses of its layers alone, and refuses its own.
            keras.layers.Layer.add_loss(self.model, loss)
        return keras.tree.pack_sequence_as(self.outputs, found[:count])


def _train_step(model: Any, batches: list) -> dict[str, Any]:
    """Takes Keras's step on PyTorch, without waiting for a GPU until its end.

    Follows keras/src/backend/torch/trainer.py, whose loss and its mean copy numbers to
    the GPU between the passes.
    """
    (data,) = batches
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    variables = model.trainable_variables
    y_pred = model(x, training=True)
    with queued_copies():
        loss = model._compute_loss(x, y, y_pred, sample_weight, training=True)
    if variables:
        values = [variable.value for variable in variables]
        scaled = model.optimizer.scale_loss(loss)
        gradients = torch.autograd.grad(scaled, values, allow_unused=True)
        with torch.no_grad():
            model.optimizer.apply(list(gradients), variables)
    else:
        warnings.warn("The model does not have any trainable weights.", stacklevel=2)
    with queued_copies():
        model._loss_tracker.update_state(loss, sample_weight=batch_size(x))
        return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


@contextlib.contextmanager
def not_compiling() -> Iterator[None]:
    """Context in which models are called without compilation."""
    token = _passes.set(None)
    try:
        yield
    finally:
        _passes.reset(token)


def _check_seeds(model: Any) -> None:
    drawing = [layer for layer in layers_in(model) if hasattr(layer, "seed_generator")]
    others = [
        layer.name
        for layer in drawing
        if not isinstance(layer, keras.layers.Dropout | DrawsInGraphs)
        or (layer.seed, getattr(layer, "noise_shape", None)) != (None, None)
    ]
    if others:
        raise ValueError(
            "PyTorch compiles random numbers of keras.layers.Dropout and "
            "StochasticDepth alone, and those without a seed. Pass jit_compile=False "
            "to `compile`. "
            f"Received: jit_compile=True, and other layers, {others}."
        )
