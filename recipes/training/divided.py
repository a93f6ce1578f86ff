"""Saves a trainer whose JAX arrays are divided among devices, with Orbax.

    divided.save(folder, trainer)    # each process writes the parts of its devices
    divided.load(folder, trainer)    # each reads those of its own, of any division

Only a training with `--devices model=…` uses this module and needs Orbax.
`keras.callbacks.OrbaxCheckpoint` saves at times of its own, and its files have no
history of the training.
"""

from pathlib import Path

import jax
import keras
import orbax.checkpoint as ocp


def save(folder: Path, trainer: keras.Model) -> Path:
    """Writes weights, optimizer and seeds into a new folder, and returns its path.

    All processes call this. The folder exists when all have written.

    Raises:
        OSError: The files cannot be written.
    """
    arrays = [variable.value for variable in _variables(trainer)]
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder.absolute(), arrays)
    except ValueError as error:  # of the storage library, such as for a full disk
        raise OSError(error) from error
    return folder


def load(folder: Path, trainer: keras.Model) -> None:
    """Assigns what `save` wrote to a trainer, on any number of devices.

    Args:
        folder: Folder of `save`, with its files as they were.
        trainer: Compiled model with a built optimizer.
    """
    variables = _variables(trainer)
    arrays = [variable.value for variable in variables]
    targets = [
        jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)
        for array in arrays
    ]
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(folder.absolute(), targets)
    for variable, array in zip(variables, restored, strict=True):
        variable.assign(array)


def _variables(trainer):
    """Returns all variables but those of the metrics, in the order of creation."""
    return [
        *trainer.trainable_variables,
        *trainer.non_trainable_variables,
        *trainer.optimizer.variables,
    ]
