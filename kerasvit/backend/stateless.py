"""A training pass that writes no variable, shared by the three train steps."""

import contextlib

import keras

# What `compile` leaves in a Keras trainer for its loss and its metrics.
_COMPILED = (
    *("compiled", "loss", "optimizer"),
    *("_compile_loss", "_compile_metrics", "_loss_tracker"),
)


@contextlib.contextmanager
def lend_compiled(trainer, model):
    """Context in which `model` has the loss and metrics of the compiled `trainer`.

    So a model's own `compute_loss`, `compute_metrics` and `metrics` count, with `super`
    in them, and `self.optimizer` is the trainer's, while the model's own compilation
    stays as it was. Inside another such context nothing happens.
    """
    # Through `__dict__`, because Keras would keep a metric that it sees assigned.
    lender, borrower = vars(trainer), vars(model)
    times = lender.get("_times_lent", 0)
    if times == 0:
        lender["_own_of_model"] = _taken(borrower)
        borrower.update({name: lender[name] for name in _COMPILED if name in lender})
    lender["_times_lent"] = times + 1
    try:
        yield model
    finally:
        # Counted, as replicas of TensorFlow take turns within a step.
        lender["_times_lent"] -= 1
        if lender["_times_lent"] == 0:
            _taken(borrower)
            borrower.update(lender.pop("_own_of_model"))


def _taken(attributes):
    return {name: attributes.pop(name) for name in _COMPILED if name in attributes}


@contextlib.contextmanager
def training_pass(trainer, scope, x, y, sample_weight, training=True):
    """Returns the outputs and the loss at given values of the variables.

    Take gradients before it closes: a rematerialised layer runs again for them.

    Args:
        trainer: The compiled `keras.Model`.
        scope: A fresh `keras.StatelessScope` that collects losses, of pairs of a
            variable and the value to compute with; a variable that is not named has
            its own.
        x: Inputs of one batch, as `fit` hands them to a train step; `y` and
            `sample_weight` likewise.
        y: Targets, or None.
        sample_weight: Weights of the samples, or None.
        training: Whether layers behave as in training.

    Yields:
        Outputs and loss. The scope then holds what the pass would have written: moving
        statistics, seeds, metrics.
    """
    # One scope around call and loss: what `add_loss` recorded lives as long as it.
    with scope:
        y_pred = trainer(x, training=training)
        loss = trainer._compute_loss(x, y, y_pred, sample_weight, training=training)
        yield y_pred, loss


def batch_size(x):
    """Returns the number of samples in a batch of inputs."""
    first = next(value for value in keras.tree.flatten(x) if value is not None)
    return keras.ops.shape(first)[0]
