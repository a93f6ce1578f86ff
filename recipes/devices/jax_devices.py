"""Trains on several JAX devices and processes with `keras.distribution`."""

import contextlib
import dataclasses
import os

import jax
import keras
import numpy as np
from command import device_request
from devices.devices import ONE, Devices, copy_of
from jax.experimental import multihost_utils

import kerasvit

# Seconds after which the other processes end if one is silent.
HEARTBEAT_SECONDS = 30


@dataclasses.dataclass(frozen=True)
class JaxDevices(Devices):
    """Devices of a `keras.distribution`.

    Attributes:
        distribution: `DataParallel`, or `ModelParallel` with `kerasvit.layout_map`.
        model: Number of devices that share a copy of the model.
    """

    distribution: keras.distribution.DataParallel | keras.distribution.ModelParallel = (
        None
    )
    model: int = 1

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the scope of the distribution."""
        return self.distribution.scope()

    def wait(self, name: str) -> None:
        """Waits until all processes have called this with the same name."""
        if self.processes > 1:
            multihost_utils.sync_global_devices(name)

    def any(self, condition: bool) -> bool:
        """Returns whether the condition is true in one of the processes."""
        if self.processes == 1:
            return condition
        return bool(multihost_utils.process_allgather(np.array(condition)).any())

    def place(self, model, remat: bool = False):
        """Returns a copy of the model whose variables are on the devices."""
        return copy_of(model, remat)

    def weights(self, model) -> list:
        """Returns the weights of a model as NumPy arrays; all processes call it."""
        if self.processes == 1 or self.model == 1:
            return model.get_weights()
        values = [variable.value for variable in model.weights]
        return multihost_utils.process_allgather(values, tiled=True)

    def whole(self, model):
        """Returns the model, or a copy of one that is divided among processes."""
        if self.processes == 1 or self.model == 1:
            return model
        return copy_of(model, weights=self.weights(model))

    def finite(self, variables) -> bool:
        """Returns whether variables are finite; all processes call it.

        Each process looks at its own parts. Operations on whole arrays would exchange
        values, and those that run at the same time may wait for each other for ever.
        """
        parts = [
            jax.numpy.isfinite(part.data).all()
            for variable in variables
            for part in variable.value.addressable_shards
            if part.replica_id == 0
        ]
        return not self.any(not all(map(bool, parts)))

    def perturbation(self, given: str, rho: float) -> str:
        """Returns the argument of the trainer: "global" where a model is shared.

        Raises:
            ValueError: Devices that share a model and its batches cannot perturb
                separately.
        """
        if self.model == 1:
            return given
        if rho and given == "local" and self.count > 1:
            raise ValueError(
                "`perturbation`: devices that share a model cannot perturb their parts "
                "of a batch separately. Give --perturbation global, or data=1."
            )
        return "global"


def start(request: device_request.Request, config) -> Devices:
    """Returns the devices of a request, after JAX has connected the processes.

    Args:
        request: Number of devices, or the axes of their mesh.
        config: Dataclass of the settings.

    Raises:
        ValueError: There are fewer devices, or the processes cannot share the model.
    """
    connect()
    names = keras.distribution.list_devices()
    data, model = request.sizes(len(names))
    processes = jax.process_count()
    if data * model == 1 and processes == 1:
        return ONE
    if processes > 1 and data * model < len(names):
        raise ValueError(
            f"`devices`: {processes} processes train on all their {len(names)} "
            f"devices. Received: {config.devices}."
        )
    if jax.local_device_count() % model:
        raise ValueError(
            f"`devices`: model={model} devices that share a model must belong to one "
            f"process, and a process has {jax.local_device_count()}."
        )
    return JaxDevices(
        count=data,
        process=jax.process_index(),
        processes=processes,
        distribution=distribution(data, model, names[: data * model]),
        model=model,
    )


def connect() -> None:
    """Connects the processes, if several were started or on a TPU VM.

    `keras.distribution.initialize` reads the same variables, but waits 100 seconds for
    the heartbeat of a process that has died.
    """
    if jax.distributed.is_initialized():
        return
    options = {"heartbeat_timeout_seconds": HEARTBEAT_SECONDS}
    if device_request.is_started_by("jax"):
        process, processes = device_request.process_of("jax")
        addresses = os.environ.get("KERAS_DISTRIBUTION_JOB_ADDRESSES")
        jax.distributed.initialize(
            addresses and addresses.split(",")[0], processes, process, **options
        )
    elif device_request.on_tpu_vm():
        jax.distributed.initialize(**options)  # the VM knows its slice


def distribution(data: int, model: int, names: list[str]):
    """Returns the distribution over devices: `data` parts of a batch, each on `model`.

    Batches are those of a process: `auto_shard_dataset` would make each process read
    and decode all of them.
    """
    if model == 1:
        return keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)
    mesh = keras.distribution.DeviceMesh((data, model), ["batch", "model"], names)
    return keras.distribution.ModelParallel(
        layout_map=kerasvit.layout_map(mesh), auto_shard_dataset=False
    )
