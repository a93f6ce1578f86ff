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
from .masks import masked, masks_of
from .random import DrawsInGraphs
from .recorded import recording
from .stateless import batch_size

MOST_SIZES = 8  # of a batch, in training and in inference; each takes time to compile
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
        ValueError: A layer draws random numbers with a seed of its own, or calls a
            module of PyTorch.
    """
    passes = _passes.get()
    masks = keras.tree.flatten(options.get("mask"))
    if passes is None or any(mask is not None for mask in masks):
        return call(inputs, **options)
    key = id(model), options["training"]
    if key not in passes:
        _check_layers(model, options["training"])
        passes[key] = _Pass(model, functools.partial(call, **options))
    return passes[key](inputs)


class _Pass:
    """A model's call, with a graph for each of the first `MOST_SIZES` batch sizes."""

    def __init__(self, model: Any, call: Callable) -> None:
        self.model = model
        self.call = call
        self.variables = list(model.variables)
        self.held = _held_tensors(model)
        self.contexts = contexts()
        self.graphs: dict[tuple, _Graph] = {}

    def __call__(self, inputs: Any) -> Any:
        tensors = [keras.ops.convert_to_tensor(x) for x in keras.tree.flatten(inputs)]
        with AutocastScope(None):  # layers cast their variables themselves
            values = [variable.value for variable in self.variables]
        key = (
            torch.is_grad_enabled(),
            tuple((tensor.shape, tensor.dtype) for tensor in tensors),
            tuple(value.requires_grad for value in values),
        )
        if key not in self.graphs:
            if len(self.graphs) == MOST_SIZES:
                return self.call(inputs)
            self.graphs[key] = _Graph(self, inputs)
        return self.graphs[key](tensors, values)

    @contextlib.contextmanager
    def holding(self, tensors: list) -> Iterator[None]:
        """Context in which attributes of layers hold other tensors."""
        before = [attributes[name] for attributes, name in self.held]
        for (attributes, name), tensor in zip(self.held, tensors, strict=True):
            attributes[name] = tensor
        try:
            yield
        finally:
            for (attributes, name), tensor in zip(self.held, before, strict=True):
                attributes[name] = tensor


class _Graph:
    """A pass as a compiled function of inputs, variables and held tensors."""

    def __init__(self, of: _Pass, inputs: Any) -> None:
        self.of = of
        self.outputs: Any = None  # structure of the outputs
        self.masks: list[bool] = []  # whether an output has a mask
        self.written: list[int] = []  # numbers of the variables that a pass assigns

        def record(tensors: list, values: list, held: list) -> list:
            scope = keras.StatelessScope(
                zip(of.variables, values, strict=True), collect_losses=True
            )
            before = dict(scope.state_mapping)
            packed = keras.tree.pack_sequence_as(inputs, tensors)
            with not_compiling(), recording(), restored(of.contexts), of.holding(held):
                with scope:
                    outputs = of.call(packed)
            return self._flat(outputs, scope, before)

        torch.compiler.allow_in_graph(record)

        def compiled(tensors: list, values: list, held: list) -> list:
            return record(tensors, values, held)

        # PyTorch counts the compilations of a code object, and stops after a few.
        code, cells = compiled.__code__.replace(), compiled.__closure__
        own = types.FunctionType(code, globals(), "compiled", None, cells)
        self.function = torch.compile(own, fullgraph=True, dynamic=False)

    def _flat(self, outputs: Any, scope: keras.StatelessScope, before: dict) -> list:
        """Returns outputs, masks, assigned values and losses; keeps what they are."""
        masks = masks_of(outputs)
        self.outputs, self.masks = outputs, [mask is not None for mask in masks]
        keys = [id(variable) for variable in self.of.variables]
        after = scope.state_mapping
        self.written = [i for i, k in enumerate(keys) if after[k] is not before[k]]
        present = (mask for mask in masks if mask is not None)
        new = (after[keys[i]] for i in self.written)
        return [*keras.tree.flatten(outputs), *present, *new, *scope.losses]

    def __call__(self, tensors: list, values: list) -> Any:
        held = [attributes[name] for attributes, name in self.of.held]
        found = iter(self.function(tensors, values, held))
        outputs = [next(found) for _ in self.masks]
        masks = [next(found) if each else None for each in self.masks]
        for i in self.written:
            self.of.variables[i].assign(next(found))
        for loss in found:
            # A functional model has losses of its layers alone, and refuses its own.
            keras.layers.Layer.add_loss(self.of.model, loss)
        return masked(keras.tree.pack_sequence_as(self.outputs, outputs), masks)


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


def _held_tensors(model: Any) -> list[tuple[dict, str]]:
    """Returns attributes that hold a tensor, as the mean of a Normalization layer."""
    return [
        (vars(each), name)
        for layer in layers_in(model)
        for each in (layer, getattr(layer, "activity_regularizer", None))
        if hasattr(each, "__dict__")
        for name, value in vars(each).items()
        if isinstance(value, torch.Tensor)
    ]


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
