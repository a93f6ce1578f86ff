"""Computes outputs, loss and metrics of a trainer with the methods of its model."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras

from kerasvit.backend.keras_private import compute_loss, lend_compiled
from kerasvit.types import Tensor


class ModelWrapper:
    """Base of trainers around a model; a base class before `TrainStep`.

    Attributes:
        model: The inner `keras.Model`.
    """

    model: keras.Model
    called: Callable[..., Any]  # of the train step

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.called(self.model, inputs, training)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Calls the model's `compute_loss`."""
        with lend_compiled(self, self.model) as model:
            return compute_loss(model, x, y, y_pred, sample_weight, training)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Calls the model's `compute_metrics`."""
        with lend_compiled(self, self.model) as model:
            return model.compute_metrics(x, y, y_pred, sample_weight)

    def step_targets(self, x: Any, y: Any) -> Any:
        """Returns the targets of the passes of a step: those of an inner trainer."""
        inner = isinstance(self.model, ModelWrapper)
        return self.model.step_targets(x, y) if inner else y

    def step_constants(self) -> list[keras.Variable]:
        """Returns variables outside `variables` that the model only reads."""
        inner = isinstance(self.model, ModelWrapper)
        return self.model.step_constants() if inner else []

    def step_scope(self) -> AbstractContextManager:
        """Returns the context in which the model has the trainer's loss and metrics."""
        return lend_compiled(self, self.model)

    @property
    def metrics(self) -> list[keras.Metric]:
        """The metrics given to `compile`, and the model's own."""
        with lend_compiled(self, self.model) as model:
            return model.metrics

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, for losses and targets in a dictionary."""
        return self.model.output_names

    def export(self, filepath: Any, *arguments: Any, **options: Any) -> Any:
        """Exports the inner model by its own `export`."""
        return self.model.export(filepath, *arguments, **options)
