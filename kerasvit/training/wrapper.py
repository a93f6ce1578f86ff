"""A trainer around a model: which models, and their outputs, loss and metrics."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np

from kerasvit.arguments import check_built
from kerasvit.backend.keras_private import compute_loss, layers_in, lend_compiled
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


def check_model(model: Any) -> None:
    """Checks that SAM can train a model.

    Raises:
        ValueError: `model` is not a built `keras.Model` with Keras's own train, test
            and predict steps, or wraps torch modules, or is wrapped itself.
    """
    received = f"Received: model={model!r}."
    sharded = any(base.__name__ == "FSDPModule" for base in type(model).__mro__)
    if sharded or isinstance(getattr(model, "module", None), keras.Model):
        raise ValueError(
            "`model` must be the keras.Model itself, neither wrapped (take "
            "`model.module`) nor sharded: DistributedDataParallel and FSDP average the "
            "gradients of parameters, and SAM takes gradients at perturbed copies. The "
            "trainer itself averages over the processes of torchrun. " + received
        )
    check_built(model)
    torch_modules = [
        layer.name
        for layer in layers_in(model)
        if isinstance(layer, keras.layers.TorchModuleWrapper)
    ]
    if torch_modules:
        raise ValueError(
            f"`model` wraps torch modules, {torch_modules}, which always compute with "
            "their own parameters, so that SAM cannot run them at perturbed weights. "
            "Write these layers in Keras. " + received
        )
    steps = ("train_step", "test_step", "predict_step")
    overridden = [
        step
        for step in steps
        if getattr(getattr(model, step), "__func__", None)
        is not getattr(keras.Model, step)
    ]
    if overridden:
        raise ValueError(
            f"`model` has its own {', '.join(overridden)}, which SAM would replace. "
            "Move the custom code into `compute_loss`, or pass "
            "`keras.Model(model.inputs, model.outputs)`, which has Keras's own step "
            "and the same variables. " + received
        )


def head_of_zeros(model: keras.Model, trained: list[keras.Variable]) -> str | None:
    """Returns a warning if loaded weights have a new head, which is zeros, else None.

    The first gradient is then 0 in all weights but the head, and SAM's whole step goes
    into it: the gradients at w' change pretrained weights to suit a wrong head. For
    fresh weights a head of zeros is the papers' start.

    Args:
        model: Built `keras.Model`. One of kerasvit knows whether its weights were
            loaded.
        trained: Variables that the trainer trains.
    """
    record = getattr(model, "record", None)
    kernels = [v for v in model.weights if len(v.shape) > 1]
    if not isinstance(record, dict) or not record.get("origin") or not kernels:
        return None
    head, ids = kernels[-1], {id(variable) for variable in trained}
    first = next((v for v in kernels if id(v) in ids), head)
    alone = first is head
    if alone or id(head) not in ids or np.any(keras.ops.convert_to_numpy(head)):
        return None
    return (
        "The head of the model is zeros, beside weights that were loaded, and SAM "
        "would train these to suit a random head. Fit the head first, by "
        "`kerasvit.fit_head(model, data)`, or begin with epochs of `rho=0`."
    )
