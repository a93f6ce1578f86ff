"""The devices and the processes of a training.

    devices = start_devices(config)
    with devices.together(), devices.scope(): ...    # build, compile and train

`device_request.py` reads the option `--devices`; a file for each backend (such as
`jax_devices.py`) divides the batches with the backend's own engine.
"""

import contextlib
import dataclasses
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator

import keras
import rich
from command import device_request, startup
from command.command_line import BadInput
from training import progress

from kerasvit.layers import Block


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices and the processes of a training; as it stands, one of each.

    Attributes:
        count: Number of devices of all processes, among which a batch is divided.
        process: Number of this process, from 0.
        processes: Number of processes.
    """

    count: int = 1
    process: int = 0
    processes: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes files."""
        return self.process == 0

    @property
    def shard(self) -> tuple[int, int]:
        """Argument `shard` of the methods `batches`."""
        return self.process, self.processes

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the context in which the model is built and trained."""
        return contextlib.nullcontext()

    def together(self) -> contextlib.AbstractContextManager:
        """Returns the context in which an error in one process ends all.

        At its end each process waits for the others.
        """
        return _Together(self)

    @contextlib.contextmanager
    def first_goes_first(self) -> Iterator[None]:
        """Returns a context that other processes enter after the first has left it.

        Raises:
            ValueError: The first process left it with an error.
        """
        failed = not self.is_first and self.any(False)
        if failed:
            raise ValueError("Process 0 failed.")
        failed = True
        try:
            yield
            failed = False
        finally:
            if self.is_first:
                self.any(failed)

    def wait(self, name: str) -> None:
        """Waits until all processes have called this with the same name."""

    def any(self, condition: bool) -> bool:
        """Returns whether the condition is true in one of the processes."""
        return condition

    def place(self, model, remat: bool = False):
        """Returns the model on the devices; call it in `scope`.

        Args:
            model: `ImageModel` that was built outside of `scope`.
            remat: Whether a training computes the activations inside blocks again in
                the backward pass, instead of storing them.
        """
        return copy_of(model, remat) if remat else model

    def weights(self, model) -> list:
        """Returns the weights of a model as NumPy arrays; all processes call it."""
        return model.get_weights()

    def whole(self, model):
        """Returns a model that one process can save; all call it, outside of `scope`.

        Args:
            model: `ImageModel` that `place` returned.
        """
        return model

    def finite(self, variables) -> bool:
        """Returns whether variables are finite; all processes call it."""
        each = [keras.ops.all(keras.ops.isfinite(variable)) for variable in variables]
        return not self.any(not bool(keras.ops.all(keras.ops.stack(each))))

    def distributed(self, batches):
        """Returns batches for `fit` and `evaluate`.

        Args:
            batches: `tf.data.Dataset` of the rows of this process.
        """
        return batches

    def sum_metrics(self, trainer) -> dict:
        """Returns the metrics of the samples of all processes, as {name: number}.

        Args:
            trainer: Compiled `keras.Model` whose metrics are sums and means.
        """
        return {k: float(v) for k, v in trainer.get_metrics_result().items()}

    def check_batch(self, batch_size: int, parts: int = 1) -> None:
        """Raises a `ValueError` if a batch cannot be divided equally.

        Args:
            batch_size: Number of images of a step.
            parts: Number of parts in which each device computes its images.
        """
        shares = self.count * parts
        if batch_size % shares:
            below = batch_size // shares * shares
            nearest = [str(size) for size in (below, below + shares) if size]
            devices = "1 device" if self.count == 1 else f"{self.count} devices"
            equally = "equally" if parts == 1 else f"in {parts} equal parts each"
            raise ValueError(
                f"`batch_size`: {devices} cannot share {batch_size} images "
                f"{equally}. Give --batch-size {' or '.join(nearest)}."
            )

    def perturbation(self, given: str, rho: float) -> str:
        """Returns the argument `perturbation` of the trainer.

        Args:
            given: Setting of the recipe, "local" or "global".
            rho: Radius of SAM.

        Raises:
            ValueError: These devices cannot perturb in this way.
        """
        return given


ONE = Devices()


def start_devices(config) -> Devices:
    """Starts the engine of the backend; call it before anything is computed.

    Args:
        config: Dataclass of the settings.

    Raises:
        ValueError: There are fewer devices, the processes were started for another
            backend, or the backend cannot train with these settings on several devices.
    """
    backend = startup.backend()
    device_request.check(config.devices, backend)
    request = device_request.Request.parse(config.devices)
    devices = importlib.import_module(f"devices.{backend}_devices").start(
        request, config
    )
    if not devices.is_first:
        for console in (progress.console, rich.get_console()):
            console.quiet = True
        logging.getLogger("kerasvit").setLevel(logging.ERROR)
    return devices


def copy_of(
    model: keras.Model, remat: bool = False, weights: list | None = None
) -> keras.Model:
    """Returns a copy of a model, in the present scope.

    Args:
        model: `ImageModel`.
        remat: As for `Devices.place`. The configuration of the copy does not state it.
        weights: Weights of the copy as NumPy arrays; None: those of the model.
    """
    blocks = [layer.name for layer in model.layers if isinstance(layer, Block)]
    with keras.RematScope("list_of_layers", layer_names=blocks if remat else []):
        copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights() if weights is None else weights)
    return copy


class _Together(contextlib.AbstractContextManager):
    """Ends the process after an error, and waits for the others otherwise.

    After an error Python would call the functions of `atexit`. There JAX and TensorFlow
    wait for the other processes, which wait for this one in a sum over devices.
    """

    def __init__(self, devices):
        self.devices = devices

    def __exit__(self, kind, error, trace):
        if self.devices.processes == 1:
            return
        if kind is None:
            self.devices.wait("end")
        elif kind is not SystemExit or error.code:
            name = f"process {self.devices.process} of {self.devices.processes}"
            if kind in (BadInput, SystemExit):
                print(f"Error in {name}: {error}", file=sys.stderr)
            else:
                print(f"Error in {name}:", file=sys.stderr)
                traceback.print_exception(error)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
