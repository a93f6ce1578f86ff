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
from typing import Any

import keras
import numpy as np
import torch

from .copies_torch import queued_copies
from .graphs_torch import in_one_graph
from .keras_private import KeepsValues, current_call, values_of
from .loss_torch import add_to_mean, outputs_and_loss
from .micro_batches import batch_size
from .recorded import is_only_a_pass, only_a_pass
from .step_lists import Kept, keeping, listed, of_step

_like: Any = functools.wraps  # its types would be those of calls of `keras.Model`


class CompiledSteps:
    """Base before `keras.Model`: `jit_compile=True` compiles the passes of its steps.

    A pass is a call by `in_one_graph`: of a model, in training with the loss if that is
    a common one. Other losses, metrics and optimizer run as without compilation.
    """

    jit_compile: bool
    trainable: bool
    train_function: Any
    test_function: Any
    optimizer: Any
    _compile_loss: Any
    _compile_metrics: Any

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """All variables that are trained, in Keras's order."""
        if of_step() is None:
            return super().trainable_variables  # type: ignore[misc]
        variables = listed("variables", self, lambda: self.variables)  # type: ignore[attr-defined]
        return [v for v in variables if v.trainable] if self.trainable else []

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """All metrics, in Keras's order."""
        every: Any = super()
        if of_step() is None:
            return every.metrics
        own = self._get_own_metrics()  # type: ignore[attr-defined]
        # They come first. Keras searches those of each layer in all layers within it.
        others = listed("metrics of layers", self, lambda: every.metrics[len(own) :])
        return [*own, *others]

    @_like(keras.Model.train_on_batch)
    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with _keeping_on(self.train_function):
            return super().train_on_batch(*args, **kwargs)  # type: ignore[misc]

    @_like(keras.Model.test_on_batch)
    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with _keeping_on(self.test_function):
            return super().test_on_batch(*args, **kwargs)  # type: ignore[misc]

    @only_a_pass
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model; in a step, in one graph with Keras's steps around its pass.

        Keras then takes these steps once, and not in each call.
        """
        call = super().__call__  # type: ignore[misc]
        if of_step() is None or not _differs_in_numbers_alone(self, args, kwargs):
            return call(*args, **kwargs)
        return in_one_graph(self, call, args[0], "step", **kwargs)

    def _should_torch_compile(self) -> bool:
        return False  # not the step

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Builds what a step needs, once: Keras's `train_on_batch` does it each time.

        Then nothing is left to build, but Keras would collect all weights again.
        """
        parts = self._compile_loss, self._compile_metrics, self.optimizer
        built = all(part is None or part.built for part in parts)
        if self.train_function is None or not built:
            with keeping(None):
                super()._symbolic_build(iterator, data_batch)  # type: ignore[misc]

    def _compute_loss(self, *arguments: Any, **options: Any) -> Any:
        with queued_copies():
            return super()._compute_loss(*arguments, **options)  # type: ignore[misc]

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
        keras_step = types.MethodType(keras.Model.train_step, self)
        if name == "train_function" and self.train_step == keras_step:  # type: ignore[attr-defined]
            function = functools.partial(_train_step, self)

        def compiled(*arguments: Any) -> Any:
            with _keeping_on(compiled):
                return function(*arguments)

        compiled.kept = Kept()  # type: ignore[attr-defined]
        setattr(self, name, compiled)


class CompiledModel(CompiledSteps, KeepsValues):
    """Base before `keras.Model` of a model whose calls in a step are compiled."""

    @only_a_pass
    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        call = super().call  # type: ignore[misc]
        return in_one_graph(self, call, inputs, training=training, mask=mask)


@contextlib.contextmanager
def _keeping_on(function: Any) -> Iterator[None]:
    """Context of a step that uses what a compiled function of steps kept, if any."""
    kept = getattr(function, "kept", None)
    if kept is None or kept is of_step():
        yield
        return
    kept.renew()
    with keeping(kept):
        yield


def _differs_in_numbers_alone(model: Any, arguments: tuple, options: dict) -> bool:
    """Returns whether a call is one of many that Keras treats alike.

    They come from outside of other layers, with an array without a mask, to a `call`
    that does nothing around its pass.
    """
    x: Any = arguments[0] if len(arguments) == 1 else None
    return (
        is_only_a_pass(model.call)
        and type(x) in (torch.Tensor, np.ndarray)
        and getattr(x, "_keras_mask", None) is None
        and options.keys() == {"training"}
        and current_call() is None
    )


def _train_step(model: Any, batches: list) -> dict[str, Any]:
    """Takes Keras's step on PyTorch, without waiting for a GPU until its end.

    Follows keras/src/backend/torch/trainer.py, whose loss and its mean copy numbers to
    the GPU between the passes, as optimizers do at their end.
    """
    (data,) = batches
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    y_pred, loss = outputs_and_loss(model, x, y, sample_weight)
    if variables := model.trainable_variables:
        values = values_of(variables)
        scaled = model.optimizer.scale_loss(loss)
        gradients = torch.autograd.grad(scaled, values, allow_unused=True)
        with torch.no_grad(), queued_copies():
            model.optimizer.apply(list(gradients), variables)
    else:
        warnings.warn("The model does not have any trainable weights.", stacklevel=2)
    with queued_copies():
        add_to_mean(model._loss_tracker, loss, batch_size(x))
        return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
