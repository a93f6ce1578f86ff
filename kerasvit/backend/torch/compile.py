"""Compiles the call of a model on PyTorch: one graph for each shape of a batch.

With `jit_compile=True` Keras passes its whole step to `torch.compile`, which reads
Keras's Python code, breaks the step into dozens of graphs, and compiles parts of it
again at each step. Here `torch.compile` gets `call` alone, as one function of tensors:
it records the operations, and reads no code. Loss, metrics and optimizer are Keras's.
A `torch.compile(model)` of the user's own gets such a function, too, in inference.

The contract is that of Keras on JAX and TensorFlow: a compiled function is made by
`make_train_function` and the like, and who changes layers compiles the model again.

On 2 cores of an AMD EPYC with AVX-512, in batches of 8 images of 224 pixels, a step of
`fit` takes 0.95 of its time without compilation (ViT-S/16, Mixer-S/16), and `predict`
0.84 and 0.92 (CPU time, medians of 5 in turns, 2026-11-28). ViT-S/16 takes 34 s to
compile, as long as 270 of its steps save: `jit_compile="auto"` is Keras's own, never.
"""

import contextlib
import functools
import operator
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras
import torch
from torch._dynamo.exc import TorchDynamoException
from torch._functorch import config as functorch_config

from ..keras_private import (
    contexts_of_call,
    current_training,
    give_losses,
    global_seed_generator,
    has_hooks,
    in_contexts_of_call,
    layers_in,
    masked,
    masks_of,
    metrics_variables_in,
    owners_of_losses,
    set_global_seed_generator,
    values_of,
)
from .kernels import recording

MOST_SHAPES = 8  # of a batch, in training and in inference; each takes time to compile
_FUNCTIONS = ("train_function", "test_function", "predict_function")
_trainable = operator.attrgetter("trainable")
_requires_grad = operator.attrgetter("requires_grad")


class Graphs(dict):
    """The compiled calls in a model's functions: {(id of a model, training): call}.

    Attributes:
        failed: Whether PyTorch could not compile a call; none is compiled since.
    """

    failed = False


_graphs: ContextVar[Graphs | None] = ContextVar("compiled calls", default=None)


@contextlib.contextmanager
def _using(graphs: Graphs | None) -> Iterator[None]:
    """Context of a step whose calls are compiled, or of calls that are not (None)."""
    token = _graphs.set(graphs)
    try:
        yield
    finally:
        _graphs.reset(token)


class CompiledCalls:
    """Base before `keras.Model`: `jit_compile=True` compiles its `call` alone."""

    jit_compile: bool

    def make_train_function(self, force: bool = False) -> None:
        """Makes Keras's train function, whose calls of the model are compiled."""
        self._make("train_function", super().make_train_function, force)  # type: ignore[misc]

    def make_test_function(self, force: bool = False) -> None:
        """Makes Keras's test function, whose calls of the model are compiled."""
        self._make("test_function", super().make_test_function, force)  # type: ignore[misc]

    def make_predict_function(self, force: bool = False) -> None:
        """Makes Keras's predict function, whose calls of the model are compiled."""
        self._make("predict_function", super().make_predict_function, force)  # type: ignore[misc]

    def _make(self, name: str, make: Callable, force: bool) -> None:
        before, compiles = getattr(self, name), self.jit_compile
        # `compile`, and changes of layers, set all to None.
        new = all(getattr(self, each) is None for each in _FUNCTIONS)
        self.jit_compile = False  # not Keras's whole step
        try:
            make(force)
        finally:
            self.jit_compile = compiles
        function = getattr(self, name)
        if function is before or not compiles:
            return
        if new:
            vars(self)["_graphs"] = Graphs()  # Keras would track an attribute
        graphs = vars(self)["_graphs"]

        def compiled(*arguments: Any) -> Any:
            with _using(graphs):
                return function(*arguments)

        setattr(self, name, compiled)


class CompiledModel(CompiledCalls):
    """Base before `keras.Model` of a model whose calls in a step are compiled.

    `torch.compile(model)` reads the code of `__call__`, and would break Keras's into
    dozens of graphs. In inference it finds one function of tensors here instead.
    """

    _recorded: Callable

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        model = super().__new__(cls, *args, **kwargs)
        vars(model)["_recorded"] = _inference(model)  # before the first attribute
        return model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = super().__call__  # type: ignore[misc]
        if not torch.compiler.is_dynamo_compiling():
            return call(*args, **kwargs)
        training = kwargs.get("training")
        if training is None:
            training = current_training()
        plain = len(args) == 1 and isinstance(args[0], torch.Tensor)
        if training or not plain or set(kwargs) - {"training"}:
            return call(*args, **kwargs)
        # What is read here is checked at each call: other variables, another graph.
        return self._recorded(args[0], values_of(self.variables))  # type: ignore[attr-defined]

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        call = super().call  # type: ignore[misc]
        return compiled_call(self, call, inputs, training=training, mask=mask)


def _inference(model: Any) -> Callable:
    """Returns a model's inference as a function of images and values of variables."""
    # PyTorch keeps the function, and would keep the model with it.
    model = weakref.ref(model)

    def record(inputs: torch.Tensor, values: list[torch.Tensor]) -> Any:
        pairs = zip(model().variables, values, strict=True)
        with keras.StatelessScope(pairs):
            return model()(inputs, training=False)

    return torch.compiler.allow_in_graph(record)


def compiled_call(model: Any, call: Callable, inputs: Any, **options: Any) -> Any:
    """Returns `call(inputs, **options)`; in a step with `jit_compile=True`, compiled.

    It is not compiled with a mask, nor where layers have hooks of PyTorch.

    Args:
        model: Built `keras.Model` with all variables that `call` uses.
        call: Its `call`, or the model itself, by a trainer around it.
        inputs: Tensor, or structure of tensors.
        options: `training` and `mask`.
    """
    graphs = _graphs.get()
    masks = keras.tree.flatten(options.get("mask"))
    if graphs is None or graphs.failed or any(mask is not None for mask in masks):
        return call(inputs, **options)
    training = options["training"]
    if training is None:
        training = current_training()
    key = id(model), training
    if key not in graphs:
        graphs[key] = _Call(model, functools.partial(call, **options))
    found = graphs[key]
    if not any(map(has_hooks, found.layers)):
        try:
            return found(inputs)
        except _TooManyShapesError:
            pass
        except TorchDynamoException as error:
            # An error of a layer, which PyTorch has wrapped, is raised here again.
            with _using(None):
                outputs = call(inputs, **options)
            graphs.failed = True
            warnings.warn(
                f"PyTorch could not compile {model.name}, which runs as with "
                f"jit_compile=False: {_first_line(error)}",
                stacklevel=2,
            )
            return outputs
    with _using(None):
        return call(inputs, **options)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


class _TooManyShapesError(Exception):
    """A call has as many graphs as it may have."""


class _Call:
    """A model's call as a graph for each shape of a batch, `MOST_SHAPES` at most."""

    def __init__(self, model: Any, call: Callable) -> None:
        self.model = model
        self.call = call
        self.layers = layers_in(model)
        counts = metrics_variables_in(self.layers)
        # Each once: layers may share a metric.
        self.variables = [*{id(v): v for v in [*model.variables, *counts]}.values()]
        self.held = _held_tensors(self.layers)
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
            if len(self.graphs) == MOST_SHAPES:
                self._warn_of_shapes()
                raise _TooManyShapesError
            graph = _Graph(self, given)
        outputs = graph(tensors, values)
        self.graphs[key] = graph  # it works
        return outputs

    warned = False

    def _warn_of_shapes(self) -> None:
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{self.model.name} was compiled for {MOST_SHAPES} shapes of a batch, "
                "and runs uncompiled with others. Give it batches of one size.",
                stacklevel=5,
            )

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
    """A call as a compiled function of inputs, variables and held tensors."""

    def __init__(self, of: _Call, given: Any) -> None:
        """Takes the structure of the inputs, True where there is a tensor."""
        self.of = of
        self.given = given
        self.outputs: Any = None  # structure of the outputs
        self.masks: list[bool] = []  # whether an output has a mask
        self.written: list[int] = []  # numbers of the variables that a call assigns
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
        before, generator = dict(scope.state_mapping), global_seed_generator()
        try:
            with _using(None), in_contexts_of_call(of.contexts), of.holding(held):
                with scope:
                    outputs = of.call(inputs)
        finally:
            # One that the call has made holds a tensor of the compiler's.
            set_global_seed_generator(generator)
        if foreign := len(scope.state_mapping) - len(before):
            raise RuntimeError(
                f"{foreign} variables change that are not the model's, as do seeds of "
                "random numbers."
            )
        return self._flat(outputs, scope, before)

    def _flat(self, outputs: Any, scope: keras.StatelessScope, before: dict) -> list:
        """Returns outputs, masks, assigned values and losses; keeps what they are."""
        masks = masks_of(outputs)
        self.outputs = keras.tree.map_structure(lambda _: True, outputs)
        self.masks = [mask is not None for mask in masks]
        keys = [id(variable) for variable in self.of.variables]
        after = scope.state_mapping
        self.written = [i for i, k in enumerate(keys) if after[k] is not before[k]]
        self.of_losses = owners_of_losses(self.of.layers, scope.losses)
        present = (mask for mask in masks if mask is not None)
        new = (after[keys[i]] for i in self.written)
        return [*keras.tree.flatten(outputs), *present, *new, *scope.losses]

    def __call__(self, tensors: list, values: list) -> Any:
        held = [attributes[name] for attributes, name in self.of.held]
        with contextlib.ExitStack() as stack:
            if self.outputs is None:
                stack.enter_context(recording())
                # The first call divides the graph into both passes. Unless the backward
                # pass makes views again, PyTorch keeps, instead of a ReLU's outputs,
                # their view as rows for a matrix product, and beside it a mask.
                patch = functorch_config.patch(recompute_views=True)
                stack.enter_context(patch)
            found = iter(self.function(tensors, values, held))
        outputs = [next(found) for _ in self.masks]
        masks = [next(found) if each else None for each in self.masks]
        for i in self.written:
            self.of.variables[i].assign(next(found))
        give_losses(self.of_losses, found)
        return masked(keras.tree.pack_sequence_as(self.outputs, outputs), masks)


def _held_tensors(layers: list) -> list[tuple[dict, str]]:
    """Returns attributes that hold a tensor, as the mean of a Normalization layer."""
    return [
        (vars(each), name)
        for layer in layers
        for each in (layer, getattr(layer, "activity_regularizer", None))
        if hasattr(each, "__dict__")
        for name, value in vars(each).items()
        if isinstance(value, torch.Tensor)
    ]
