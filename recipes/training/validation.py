"""Evaluates on any number of devices and processes, with equal results.

The processes take the same number of full batches. Images that fill the last batch have
the weight 0.
"""

import contextlib
import time
from collections.abc import Iterator

import keras
from devices.devices import Devices


class Evaluation:
    """Loss and metrics of a trainer on images.

    Args:
        images: `kerasvit.data.Images`.
        here: Devices of the training.
        batch_options: Keyword arguments of `Images.batches`.
    """

    def __init__(self, images, here: Devices, **batch_options):
        self.here = here
        batches = images.batches(shard=here.shard, pad=here.count > 1, **batch_options)
        self.batches = here.distributed(batches)

    def __call__(self, trainer: keras.Model) -> dict[str, float]:
        """Returns {name: number}.

        Args:
            trainer: Compiled model. Its metrics are `weighted_metrics`, since those of
                `metrics` would count images of weight 0.
        """
        metrics = trainer.evaluate(self.batches, verbose=0, return_dict=True)
        return self.here.sum_metrics(trainer) if self.here.count > 1 else metrics


class Validation(keras.callbacks.Callback):
    """Evaluates after each round: adds `val_loss` and others, and `seconds`, to logs.

    It stands before the callbacks that need its results. The seconds are those of the
    round with its validation, since an interruption.

    Args:
        evaluation: Evaluation on the validation images.
    """

    def __init__(self, evaluation: Evaluation):
        super().__init__()
        self.evaluation = evaluation

    def on_epoch_begin(self, epoch, logs=None):
        """Begins to measure the time."""
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        """Replaces the training's metrics by those of all processes, and evaluates."""
        if self.evaluation.here.processes > 1:
            logs.update(self.evaluation.here.sum_metrics(self.model))
        with averaged(self.model):
            found = self.evaluation(self.model)
        logs.update({f"val_{name}": value for name, value in found.items()})
        logs["seconds"] = round(time.perf_counter() - self._began, 2)


@contextlib.contextmanager
def averaged(trainer: keras.Model) -> Iterator[None]:
    """Context in which the weights are their moving averages, if there are any.

    `keras.callbacks.SwapEMAWeights` uses NumPy arrays, which on PyTorch share their
    memory with the weights, so that it loses these.

    Args:
        trainer: Compiled model; all processes enter the context.
    """
    optimizer = trainer.optimizer
    if not getattr(optimizer, "inner_optimizer", optimizer).use_ema:
        yield
        return
    variables = trainer.trainable_variables
    values = [keras.ops.copy(variable) for variable in variables]
    optimizer.finalize_variable_values(variables)
    for variable in variables:  # JAX would give the averages' memory to `evaluate`
        variable.assign(keras.ops.copy(variable))
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
