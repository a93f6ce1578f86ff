"""Outputs and loss of a training pass on PyTorch, in one graph where possible.

Keras's loss and its gradient are two dozen small operations between both passes. A GPU
waits for Python there.
"""

import functools
from typing import Any

import keras
import torch

from kerasvit.typing import Tensor

from .graphs_torch import in_one_graph, of_step
from .masks import masked, masks_of
from .recorded import is_only_a_pass


def outputs_and_loss(
    model: Any, x: Any, y: Any, sample_weight: Any
) -> tuple[Any, Tensor]:
    """Returns the outputs of a training pass, without a gradient, and its loss.

    In a step with `jit_compile=True` one graph computes both, if the model has Keras's
    `compute_loss` with one loss of Keras. Other losses may do what cannot be recorded.

    Args:
        model: Compiled `keras.Model`.
        x: Inputs of a batch.
        y: Targets, or None.
        sample_weight: Weights of the samples, or None.

    Raises:
        ValueError: Integer targets are no classes of the model.
    """
    kept = of_step()
    plain = y is not None and not any(map(keras.tree.is_nested, (y, sample_weight)))
    if kept is None or not plain or not _is_recordable(model, kept):
        return _computed(model, (x, y, sample_weight))
    batch = (x, y) if sample_weight is None else (x, y, sample_weight)
    call = functools.partial(_computed, model)
    try:
        return in_one_graph(model, call, batch, kind=len(batch), training=True)
    except RuntimeError:  # PyTorch's, for a label, does not say which one
        _check_labels(model, y)
        raise


def _computed(model: Any, batch: tuple, training: bool = True) -> tuple[Any, Tensor]:
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    y_pred = model(x, training=training)
    loss = model._compute_loss(x, y, y_pred, sample_weight, training=training)
    masks = masks_of(y_pred)
    return masked(keras.tree.map_structure(detached, y_pred), masks), loss


def detached(value: Any) -> Any:
    """Returns a tensor without its gradient's graph, or another value as it is."""
    return value.detach() if torch.is_tensor(value) else value


def _is_recordable(model: Any, kept: dict) -> bool:
    """Returns whether nothing but a pass and one loss of Keras is computed."""
    losses = model._compile_loss
    if losses is None or not losses.built:
        return False
    key = id(model), "loss"
    if key not in kept:
        # The losses of several outputs have metrics, which they update.
        single = not losses.metrics and _is_of_keras(losses._user_loss)
        kept[key] = single and is_only_a_pass(model.call) and _has_loss(model)
    return kept[key]


def _has_loss(model: Any) -> bool:
    """Returns whether a model, or the one in a trainer, has Keras's `compute_loss`."""
    return type(_innermost(model)).compute_loss is keras.Model.compute_loss


def _innermost(model: Any) -> Any:
    """Returns the model whose `compute_loss` those of the trainers around it call."""
    while is_only_a_pass(model.compute_loss):
        model = model.model
    return model


def _is_of_keras(loss: Any) -> bool:
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    parts = loss, getattr(loss, "fn", loss)
    return all(getattr(part, "__module__", "").startswith("keras.") for part in parts)


def _check_labels(model: Any, y: Any) -> None:
    loss = model._compile_loss._user_loss
    name = loss if isinstance(loss, str) else getattr(loss, "fn", loss).__name__
    classes = _innermost(model).output_shape[-1]
    labels = keras.ops.convert_to_numpy(y)
    labels = labels[labels != getattr(loss, "ignore_class", None)]
    wrong = labels[(labels < 0) | (labels >= classes)]
    if name == "sparse_categorical_crossentropy" and wrong.size:
        raise ValueError(
            f"Labels of {classes} classes must be from 0 to {classes - 1}. Received: "
            f"{wrong[0]}. Correct the labels, or build the model with more classes."
        )
