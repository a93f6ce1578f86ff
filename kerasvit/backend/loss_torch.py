"""Outputs and loss of a training pass on PyTorch, in one graph where possible.

Keras's loss and its gradient are two dozen small operations between both passes. A GPU
waits for Python there.
"""

import functools
from typing import Any

import keras
import torch

from kerasvit.typing import Tensor

from .graphs_torch import in_one_graph
from .masks import masked, masks_of
from .recorded import is_only_a_pass
from .step_lists import Kept, of_step

_RECORDED = (  # others have branches on numbers, or operations without a graph
    *(keras.losses.binary_crossentropy, keras.losses.categorical_crossentropy),
    *(keras.losses.sparse_categorical_crossentropy, keras.losses.huber),
    *(keras.losses.mean_absolute_error, keras.losses.mean_squared_error),
)
_CONSTANTS = (bool, int, float, str, type(None))


def outputs_and_loss(
    model: Any, x: Any, y: Any, sample_weight: Any
) -> tuple[Any, Tensor]:
    """Returns the outputs of a training pass, without a gradient, and its loss.

    In a step with `jit_compile=True` one graph computes both, if the model has Keras's
    `compute_loss` with one loss of `_RECORDED`, the settings of the first step, and no
    regulariser of weights: users may change these between steps.

    Args:
        model: Compiled `keras.Model`.
        x: Inputs of a batch.
        y: Targets, or None.
        sample_weight: Weights of the samples, or None.
    """
    kept = of_step()
    batch = (x, y) if sample_weight is None else (x, y, sample_weight)
    if kept is None or not _is_plain(*batch) or not _is_recordable(model, kept):
        return _computed(model, batch)
    call = functools.partial(_computed, model)
    return in_one_graph(model, call, batch, "loss", training=True)


def _computed(model: Any, batch: tuple, training: bool = True) -> tuple[Any, Tensor]:
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    y_pred = model(x, training=training)
    loss = model._compute_loss(x, y, y_pred, sample_weight, training=training)
    masks = masks_of(y_pred)
    return masked(keras.tree.map_structure(detached, y_pred), masks), loss


@torch.no_grad()
def add_to_mean(mean: Any, loss: Tensor, samples: int) -> None:
    """Adds the loss of a batch to Keras's mean of losses.

    `update_state` takes ten operations for it, and copies the number to the GPU twice.

    Args:
        mean: The metric.
        loss: Scalar.
        samples: Size of the batch, the weight of the loss.
    """
    quick = type(mean) is keras.metrics.Mean and mean.dtype == "float32"
    if not quick or loss.dtype != torch.float32 or loss.ndim:
        mean.update_state(loss, sample_weight=samples)
        return
    for variable, added in ((mean.total, loss * samples), (mean.count, samples)):
        variable.assign(variable.value + added)


def detached(value: Any) -> Any:
    """Returns a tensor without its gradient's graph, or another value as it is."""
    return value.detach() if torch.is_tensor(value) else value


def _is_plain(x: Any, y: Any, sample_weight: Any = None) -> bool:
    """Returns whether a batch has one array of targets, and inputs without masks."""
    single = y is not None and not any(map(keras.tree.is_nested, (y, sample_weight)))
    return single and all(mask is None for mask in masks_of(x))


def _is_recordable(model: Any, kept: Kept) -> bool:
    """Returns whether a model has nothing of a user's around its pass and its loss."""
    settings = _settings_of(model._compile_loss)
    variables = kept.listed("variables", model, lambda: model.variables)
    own = getattr(_innermost(model).compute_loss, "__func__", None)
    return (
        settings is not None
        and kept.setdefault("settings", settings) == settings
        and own is keras.Model.compute_loss
        and all(map(is_only_a_pass, (model.__call__, model.call)))
        and all(variable.regularizer is None for variable in variables)
    )


def _innermost(model: Any) -> Any:
    """Returns the model whose `compute_loss` those of the trainers around it call."""
    while is_only_a_pass(model.compute_loss):
        model = model.model
    return model


def _settings_of(losses: Any) -> tuple | None:
    """Returns the settings of a `CompileLoss` that can be recorded; None for others."""
    if losses is None or not losses.built or len(losses._flat_losses) != 1:
        return None
    (single,) = losses._flat_losses
    loss = single.loss
    numbers = *getattr(loss, "_fn_kwargs", {}).values(), single.loss_weights
    # A subclass, or an attribute, may compute something else.
    known = (
        getattr(loss, "fn", None) in _RECORDED
        and type(loss).__module__.startswith("keras.")
        and "call" not in vars(loss)
        and all(type(each) in _CONSTANTS for each in numbers)
    )
    return (loss.fn, loss.reduction, loss.dtype, *numbers) if known else None
