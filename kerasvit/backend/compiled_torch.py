"""Compiles a model's passes on PyTorch, each as one graph.

With `jit_compile=True` Keras passes its whole step to `torch.compile`, which reads
Keras's Python code, breaks the step into dozens of graphs, and compiles parts of it
again at each step. Here `torch.compile` gets one function of tensors, whose operations
it records without reading its code.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import torch
from keras.src.backend.common.stateless_scope import get_stateless_scope

from .contexts import current_call
from .copies_torch import queued_copies
from .graphs_torch import Pass, keeping, of_step
from .kept import KeepsValues
from .keras_internals import layers_in, values_of
from .masks import masks_of
from .random import DrawsInGraphs
from .recorded import calls_only_a_pass, only_a_pass
from .stateless import batch_size


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
        """Calls the model; in a step, a repeated call leaves out Keras's steps around.

        These take a third of Python's time of a compiled forward pass.
        """
        kept = of_step()
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
            with keeping(kept):
                return function(*arguments)

        setattr(self, name, compiled)


class CompiledModel(CompiledSteps, KeepsValues):
    """Base before `keras.Model` of a model whose calls in a step are compiled."""

    @only_a_pass
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
    kept = of_step()
    masks = keras.tree.flatten(options.get("mask"))
    if kept is None or any(mask is not None for mask in masks):
        return call(inputs, **options)
    training, outer = options["training"], current_call()
    if training is None and outer is not None:
        training = outer.get_value("training")
    key = id(model), call is model, training
    if key not in kept or kept[key].is_outdated():
        _check_layers(model, training)
        kept[key] = Pass(model, functools.partial(call, **options))
    return kept[key](inputs)


def _kind_of_call(model: Any, arguments: tuple, options: dict) -> tuple | None:
    """Returns what equal calls have in common for Keras, or None.

    They are calls from outside of other layers, which differ in the numbers of an array
    without a mask alone, by a `call` that does nothing around its pass: that would need
    the contexts that Keras sets. A regulariser of the outputs or a distribution would
    be another step of Keras, and losses of an earlier call in the scope are kept.
    """
    x: Any = arguments[0] if len(arguments) == 1 else None
    scope = get_stateless_scope()
    if (
        calls_only_a_pass(model)
        and type(x) in (torch.Tensor, np.ndarray)
        and getattr(x, "_keras_mask", None) is None
        and options.keys() == {"training"}
        and current_call() is None
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
