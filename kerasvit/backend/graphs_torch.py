"""Calls of a model on PyTorch as graphs, for `compiled_torch.py`."""

import contextlib
import functools
import operator
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import keras
import torch
from torch._functorch import config as functorch_config

from .keras_private import (
    contexts_of_call,
    current_call,
    current_training,
    in_contexts_of_call,
    layers_in,
    values_of,
)
from .masks import masked, masks_of
from .random import DrawsInGraphs
from .recorded import recording
from .step_lists import keeping, of_step

MOST_SIZES = 8  # of a batch, in training and in inference; each takes time to compile
_trainable = operator.attrgetter("_trainable")
_requires_grad = operator.attrgetter("requires_grad")


def in_one_graph(
    model: Any, call: Callable, inputs: Any, kind: str = "call", **options: Any
) -> Any:
    """Returns `call(inputs, **options)`; in a step with `jit_compile=True`, compiled.

    Args:
        model: Built `keras.Model` with all variables that `call` uses.
        call: Its `call`, the model, or a function of it.
        inputs: Tensor, or structure of tensors.
        kind: "call", "step" (Keras's whole call), "model" (the same, by a trainer
            around it) or "loss" (with the loss): functions of one model.
        options: `training` and `mask`.

    Raises:
        ValueError: A layer draws random numbers with a seed of its own, or calls a
            module of PyTorch.
    """
    kept = of_step()
    masks = keras.tree.flatten(options.get("mask"))
    if kept is None or any(mask is not None for mask in masks):
        return call(inputs, **options)
    training = options["training"]
    if training is None:
        training = current_training()
    key = id(model), kind, training
    if key not in kept:
        _check_layers(model, training)
        call = functools.partial(call, **options)
        kept[key] = Pass(model, call, kept.watched(model))
    if current_call() is None:  # Keras forgets the losses of the call before, too
        for layer in kept[key].layers:
            if layer._losses or layer._loss_ids:
                layer._clear_losses()
    return kept[key](inputs)


class Pass:
    """A model's call, or one with its loss, as a graph for each size of a batch.

    There are `MOST_SIZES` graphs at most.
    """

    def __init__(self, model: Any, call: Callable, layers: list) -> None:
        self.model = model
        self.call = call
        self.layers = layers
        counts = [v for x in layers for each in x._metrics for v in each.variables]
        # Each once: layers may share a metric.
        self.variables = [*{id(v): v for v in [*model.variables, *counts]}.values()]
        self.held = _held_tensors(model)
        self.contexts = contexts_of_call()
        self.graphs: dict[tuple, _Graph] = {}

    def __call__(self, inputs: Any) -> Any:
        # PyTorch would compile again for another order in memory.
        tensors = [
            keras.ops.convert_to_tensor(x).contiguous()
            for x in keras.tree.flatten(inputs)
            if x is not None
        ]
        given = keras.tree.map_structure(lambda x: x is not None, inputs)
        values = values_of(self.variables)  # layers cast them themselves
        key = (
            torch.is_grad_enabled(),
            tuple(map(_trainable, self.layers)),
            tuple((tensor.shape, tensor.dtype) for tensor in tensors),
            repr(given),
            tuple(map(_requires_grad, values)),
        )
        graph = self.graphs.get(key)
        if graph is None:
            if len(self.graphs) == MOST_SIZES:
                return self.uncompiled(inputs)
            graph = _Graph(self, given)
        try:
            outputs = graph(tensors, values)
            self.graphs[key] = graph  # it works
            return outputs
        except RuntimeError as raised:
            error = raised
        # PyTorch's error has that of a layer or a loss in its text, or does not say
        # which number was wrong. Raises their own, if it is one of theirs.
        try:
            with keras.StatelessScope(collect_losses=True):
                self.uncompiled(inputs)
            raise error
        finally:
            del error  # it holds this frame

    def uncompiled(self, inputs: Any) -> Any:
        """Returns the outputs without a graph."""
        with keeping(None), in_contexts_of_call(self.contexts):
            return self.call(inputs)

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

    def __init__(self, of: Pass, given: Any) -> None:
        """Takes the structure of the inputs, True where there is a tensor."""
        self.of = of
        self.given = given
        self.outputs: Any = None  # structure of the outputs
        self.masks: list[bool] = []  # whether an output has a mask
        self.written: list[int] = []  # numbers of the variables that a pass assigns
        self.of_losses: list = []  # layers that add them

        # PyTorch keeps the function, and would keep the model with it.
        graph = weakref.ref(self)

        def record(*arguments: list) -> list:
            return graph()._record(*arguments)  # type: ignore[union-attr]

        torch.compiler.allow_in_graph(record)

        def compiled(tensors: list, values: list, held: list) -> list:
            return record(tensors, values, held)

        # PyTorch counts the compilations of a code object, and stops after a few.
        code, cells = compiled.__code__.replace(), compiled.__closure__
        own = types.FunctionType(code, globals(), "compiled", None, cells)
        # Maps have channels last. PyTorch would take (batch, H, W, C) before or after a
        # convolution for (batch, C, H, W), order it as W, C, H, and copy it back.
        options: Any = {"layout_optimization": False}
        self.function = torch.compile(
            own, fullgraph=True, dynamic=False, options=options
        )

    def _record(self, tensors: list, values: list, held: list) -> list:
        of, left = self.of, iter(tensors)
        flat = [next(left) if x else None for x in keras.tree.flatten(self.given)]
        inputs = keras.tree.pack_sequence_as(self.given, flat)
        scope = keras.StatelessScope(
            zip(of.variables, values, strict=True), collect_losses=True
        )
        before = dict(scope.state_mapping)
        with (
            keeping(None),
            recording(),
            in_contexts_of_call(of.contexts),
            of.holding(held),
        ):
            with scope:
                outputs = of.call(inputs)
        return self._flat(outputs, scope, before)

    def _flat(self, outputs: Any, scope: keras.StatelessScope, before: dict) -> list:
        """Returns outputs, masks, assigned values and losses; keeps what they are."""
        masks = masks_of(outputs)
        self.outputs = keras.tree.map_structure(lambda _: True, outputs)
        self.masks = [mask is not None for mask in masks]
        keys = [id(variable) for variable in self.of.variables]
        after = scope.state_mapping
        self.written = [i for i, k in enumerate(keys) if after[k] is not before[k]]
        model, layers = self.of.model, self.of.layers
        self.of_losses = [
            next((each for each in layers if id(loss) in each._loss_ids), model)
            for loss in scope.losses
        ]
        present = (mask for mask in masks if mask is not None)
        new = (after[keys[i]] for i in self.written)
        return [*keras.tree.flatten(outputs), *present, *new, *scope.losses]

    def __call__(self, tensors: list, values: list) -> Any:
        held = [attributes[name] for attributes, name in self.of.held]
        # The first call divides the graph into both passes. Unless the backward pass
        # makes views again, PyTorch keeps, instead of a ReLU's outputs, their view as
        # rows for a matrix product, and beside it a mask for the gradient.
        first = self.outputs is None
        views = functorch_config.patch(recompute_views=True) if first else nullcontext()
        with views:
            found = iter(self.function(tensors, values, held))
        outputs = [next(found) for _ in self.masks]
        masks = [next(found) if each else None for each in self.masks]
        for i in self.written:
            self.of.variables[i].assign(next(found))
        for layer, loss in zip(self.of_losses, found, strict=True):
            # A functional model refuses losses of its own.
            keras.layers.Layer.add_loss(layer, loss)
        return masked(keras.tree.pack_sequence_as(self.outputs, outputs), masks)


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
            f"Received: jit_compile=True, and other layers, {sorted(others)}."
        )
