"""Trains on several TensorFlow devices and processes with `tf.distribute`."""

import contextlib
import dataclasses
import functools

import tensorflow as tf
from command import device_request
from devices.devices import ONE, Devices, copy_of


@dataclasses.dataclass(frozen=True)
class TensorflowDevices(Devices):
    """Replicas of a `tf.distribute.Strategy`.

    Attributes:
        strategy: Strategy with a replica on each device.
    """

    strategy: tf.distribute.Strategy = None

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the scope of the strategy."""
        return self.strategy.scope()

    def wait(self, name: str) -> None:
        """Waits until all processes have called this."""
        self.any(False)

    def any(self, condition: bool) -> bool:
        """Returns whether the condition is true in one of the processes."""
        if self.processes == 1:
            return condition

        return bool(self._sum(tf.constant(float(condition))) > 0)

    @functools.cached_property
    def _sum(self):
        """Function of a number that returns its sum over the devices, traced once."""

        @tf.function  # faster than eager collectives
        def total(number):
            each = self.strategy.run(lambda: tf.identity(number))
            return self.strategy.reduce("SUM", each, axis=None)

        return total

    def place(self, model, remat: bool = False):
        """Returns a copy of the model whose variables are on the devices."""
        return copy_of(model, remat)

    def distributed(self, batches):
        """Returns batches for `fit` and `evaluate`.

        With one process, Keras divides a batch among the replicas. With several, it
        would do so with the rows of this process as if they were those of all.
        """
        if self.processes == 1:
            return batches
        local = self.count // self.processes

        def parts(context):
            rows = batches.element_spec[0].shape[0]
            return batches if local == 1 else batches.rebatch(rows // local)

        return self.strategy.distribute_datasets_from_function(parts)


class MultiWorkerStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """`MultiWorkerMirroredStrategy` under which Keras 3 can fit.

    `fit` reduces a batch, a tuple, to build the model from its shapes and types, and
    the logs, which are numbers, along an axis. Other strategies allow both.
    """

    def reduce(self, reduce_op, value, axis):
        if isinstance(value, tuple):
            return tuple(self.experimental_local_results(part)[0] for part in value)
        if self.experimental_local_results(value)[0].shape.rank == 0:
            axis = None
        return super().reduce(reduce_op, value, axis)


def start(request: device_request.Request, config) -> Devices:
    """Returns the devices of a request, after TensorFlow has connected the processes.

    Args:
        request: Number of devices.
        config: Dataclass of the settings.

    Raises:
        ValueError: There are fewer devices, or Keras cannot train on several of them
            with these settings.
    """
    process, processes = device_request.process_of("tensorflow")
    strategy = _strategy(request, processes)
    if strategy is None:
        return ONE
    count = strategy.num_replicas_in_sync
    if processes > 1 and request.sizes(count)[0] < count:
        raise ValueError(
            f"`devices`: {processes} processes train on all their {count} devices. "
            f"Received: {config.devices}."
        )
    if getattr(config, "accumulate", 1) > 1:
        raise ValueError(
            "`accumulate`: Keras cannot accumulate gradients on several devices of "
            "TensorFlow. Give --remat, --devices 1, or in pretrain.py --micro-batches."
        )
    return TensorflowDevices(count, process, processes, strategy)


def _strategy(request, processes) -> tf.distribute.Strategy | None:
    """Returns the strategy of this machine, or None for one device."""
    if processes > 1:
        return MultiWorkerStrategy()
    if device_request.on_tpu_vm():
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect("local")
        strategy = tf.distribute.TPUStrategy(resolver)
        count = strategy.num_replicas_in_sync
        if request.sizes(count)[0] < count:
            raise ValueError(
                f"`devices`: TensorFlow trains on all {count} TPU cores of a machine. "
                f"Received: {request.data}."
            )
        return strategy
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    names = [device.name for device in tf.config.list_logical_devices(kind)]
    count, _ = request.sizes(len(names))
    return None if count == 1 else tf.distribute.MirroredStrategy(names[:count])
