"""Restores all variables of a model after a trial training."""

import contextlib
from collections.abc import Iterator

import keras

from .keras_private import global_seed_generator, set_global_seed_generator
from .stateful import StatefulStep


@contextlib.contextmanager
def restored(trainer: keras.Model) -> Iterator[None]:
    """Context that restores at its end all values that training changes.

    They are the variables of the trainer, its model, optimizer and metrics, Keras's
    global seed and the states of PyTorch's generators.

    Args:
        trainer: A compiled `SAM`.
    """
    generator = global_seed_generator()
    variables = [
        *trainer.variables,
        *trainer.metrics_variables,
        *trainer.model.metrics_variables,
        *trainer.optimizer.variables,
    ]
    if generator is not None:
        variables.append(generator.state)
    values = [keras.ops.convert_to_numpy(v).copy() for v in variables]
    stateful = isinstance(trainer, StatefulStep)
    random_state = trainer.random_state() if stateful else None
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        # A generator that training created is removed: its state has advanced.
        set_global_seed_generator(generator)
        if random_state is not None:
            trainer.set_random_state(random_state)
