"""A training pass that writes no variable, shared by the three train steps."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from kerasvit.typing import Tensor

# Attributes that `compile` sets in a Keras model for its loss and its metrics.
_COMPILED = (
    *("compiled", "loss", "optimizer"),
    *("_compile_loss", "_compile_metrics", "_loss_tracker"),
)


@contextlib.contextmanager
def lend_compiled(trainer: keras.Model, model: keras.Model) -> Iterator[keras.Model]:
    """Context in which `model` has the loss and metrics of the compiled `trainer`.

    The model's `compute_loss`, `compute_metrics` and `metrics`, and calls of `super` in
    them, then use the trainer's loss, metrics and optimizer. Afterwards the model is
    compiled as before. Contexts may be nested; only the outermost one has an effect.
    """
    # `__dict__` is changed, because Keras tracks a metric that is set as an attribute.
    lender, borrower = vars(trainer), vars(model)
    depth = lender.get("_lending_depth", 0)
    if depth == 0:
        lender["_compiled_of_model"] = _popped(borrower)
        borrower.update({name: lender[name] for name in _COMPILED if name in lender})
    lender["_lending_depth"] = depth + 1
    try:
        yield model
    finally:
        # A counter, because replicas of TensorFlow enter and leave in turns.
        lender["_lending_depth"] -= 1
        if lender["_lending_depth"] == 0:
            _popped(borrower)
            borrower.update(lender.pop("_compiled_of_model"))


def _popped(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: attributes.pop(name) for name in _COMPILED if name in attributes}


@contextlib.contextmanager
def training_pass(
    trainer: keras.Model,
    scope: keras.StatelessScope,
    x: Any,
    y: Any,
    sample_weight: Any,
    training: bool = True,
) -> Iterator[tuple[Any, Tensor]]:
    """Computes the outputs and the loss at given values of the variables.

    Take gradients before the context ends: a rematerialised layer runs again for them.

    Args:
        trainer: Compiled `keras.Model`.
        scope: New `keras.StatelessScope` that collects losses. It maps variables to the
            values to compute with; other variables have their present values.
        x: Inputs of one batch, as `fit` passes them to a train step.
        y: Targets, or None.
        sample_weight: Weights of the samples, or None.
        training: Whether layers behave as in training.

    Yields:
        Outputs and loss. The scope then contains the values that the pass assigned:
        moving statistics, seeds, metrics.
    """
    # One scope around call and loss, because it holds the losses of `add_loss`.
    with scope:
        y_pred = trainer(x, training=training)
        loss = trainer._compute_loss(x, y, y_pred, sample_weight, training=training)
        yield y_pred, loss


def batch_size(x: Any) -> Any:
    """Returns the number of samples in a batch of inputs, an int or a scalar tensor."""
    first = next(value for value in keras.tree.flatten(x) if value is not None)
    return keras.ops.shape(first)[0]
