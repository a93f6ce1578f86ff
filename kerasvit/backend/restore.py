"""Restores all variables of a model after a trial training."""

import contextlib

import keras
from keras.src.backend.common import global_state

from .stateful import StatefulStep


@contextlib.contextmanager
def untouched(trainer):
    """Context that restores all values that training changes.

    They are the variables of the trainer, its model, optimizer and metrics, Keras's own
    seed and the state of PyTorch's generators.
    """
    generator = global_state.get_global_attribute("global_seed_generator")
    variables = [
        *trainer.variables,
        *trainer.metrics_variables,
        *trainer.model.metrics_variables,
        *trainer.optimizer.variables,
    ]
    if generator is not None:
        variables.append(generator.state)
    values = [keras.ops.convert_to_numpy(v).copy() for v in variables]
    drawn = trainer.random_state() if isinstance(trainer, StatefulStep) else None
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        # One that training made would go on from where training left it.
        global_state.set_global_attribute("global_seed_generator", generator)
        if drawn is not None:
            trainer.set_random_state(drawn)
