"""The processes that train one model together, the seeds of each, and its devices."""

from typing import Any

import keras
import numpy as np


class Processes:
    """The processes of a training; as it stands, one.

    Attributes:
        number: Number of this process, from 0.
        count: Number of processes.
    """

    number = 0
    count = 1

    def values(self, value: int) -> list[int]:
        """Returns the values of all processes; each waits here for the others.

        Args:
            value: Whole number of less than 32 bits.
        """
        return [value]

    def any(self, condition: bool) -> bool:
        """Returns whether a condition is true in one of the processes."""
        return any(self.values(int(condition)))

    def preempted(self, signalled: bool) -> bool:
        """Returns whether one of the processes is to end; all call it equally often.

        Args:
            signalled: Whether this process has caught SIGTERM.
        """
        return self.any(signalled)

    def arrays(self, variables: list[keras.Variable]) -> list[np.ndarray]:
        """Returns the values of variables; all processes call it."""
        return [keras.ops.convert_to_numpy(variable) for variable in variables]

    def metrics(self, variables: list[keras.Variable]) -> list[np.ndarray]:
        """Returns the values of the variables of metrics, (parts, ...).

        Their sum over the parts is that of all samples. All processes call it.
        """
        return [array[None] for array in self.arrays(variables)]

    def own_metric(self, parts: np.ndarray) -> np.ndarray:
        """Returns what this process has of a value of `metrics`.

        The number of processes may be another one now.
        """
        return parts.sum(0, dtype=parts.dtype)


class JaxProcesses(Processes):
    """Processes of `jax.distributed`."""

    def __init__(self) -> None:
        import jax

        self.number, self.count = jax.process_index(), jax.process_count()
        self._calls = 0

    def values(self, value: int) -> list[int]:
        """Returns the values of all processes; each waits here for the others."""
        from jax.experimental import multihost_utils

        every = multihost_utils.process_allgather(np.array(value, "int32"))
        return [int(each) for each in every]

    def preempted(self, signalled: bool) -> bool:
        """Returns whether one of the processes is to end.

        JAX notes SIGTERM itself, and the processes agree on the next call that none of
        them has made. Calls are counted, not steps: before the first call JAX counts 0,
        and would agree on step 1, which a continued training does not reach.
        """
        from jax.experimental import multihost_utils

        self._calls += 1
        noted = multihost_utils.reached_preemption_sync_point(self._calls)
        return noted or self.any(signalled)

    def arrays(self, variables: list[keras.Variable]) -> list[np.ndarray]:
        """Returns the values of variables, also of those divided among processes."""
        from jax.experimental import multihost_utils

        def whole(value: Any) -> np.ndarray:
            if value.is_fully_addressable or value.is_fully_replicated:
                return np.asarray(value)
            return multihost_utils.process_allgather(value, tiled=True)

        return [whole(variable.value) for variable in variables]


class TorchProcesses(Processes):
    """Processes of `torch.distributed`."""

    def __init__(self) -> None:
        from torch import distributed

        self.number = distributed.get_rank()
        self.count = distributed.get_world_size()

    def values(self, value: int) -> list[int]:
        """Returns the values of all processes; each waits here for the others."""
        import torch

        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        mine = torch.tensor([value], device=device)
        every = [torch.empty_like(mine) for _ in range(self.count)]
        torch.distributed.all_gather(every, mine)
        return [int(each) for each in every]

    def metrics(self, variables: list[keras.Variable]) -> list[np.ndarray]:
        """Returns the values of the variables of metrics, each process's own."""
        import torch

        def gathered(value: Any) -> np.ndarray:
            every = [torch.empty_like(value) for _ in range(self.count)]
            torch.distributed.all_gather(every, value)
            return torch.stack(every).cpu().numpy()

        return [gathered(variable.value.detach()) for variable in variables]

    def own_metric(self, parts: np.ndarray) -> np.ndarray:
        """Returns what this process has of a value of `metrics`."""
        if len(parts) == self.count:
            return parts[self.number]
        total = super().own_metric(parts)
        return total if self.number == 0 else np.zeros_like(total)


class TensorflowProcesses(Processes):
    """Workers of a `tf.distribute.Strategy`.

    Args:
        strategy: The strategy.
        tasks: (type, index) of each worker; the first one is the chief.
    """

    def __init__(self, strategy: Any, tasks: list[tuple[str, int]]) -> None:
        import tensorflow as tf

        resolver = strategy.cluster_resolver
        self.number = tasks.index((resolver.task_type, resolver.task_id))
        self.count = len(tasks)

        def gather(value: Any) -> Any:
            context = tf.distribute.get_replica_context()
            return context.all_gather(value[None], axis=0)

        @tf.function  # traced once
        def values(value: Any) -> Any:
            every = strategy.run(gather, [value])
            # Each of a worker's replicas has the values of all replicas.
            return strategy.experimental_local_results(every)[0]

        self._values = values

    def values(self, value: int) -> list[int]:
        """Returns the values of all replicas; each waits here for the others."""
        import tensorflow as tf

        return [int(each) for each in self._values(tf.constant(value))]


def processes_of(model: keras.Model) -> Processes:
    """Returns the processes that train a model."""
    name = keras.backend.backend()
    if name == "jax":
        found = JaxProcesses()
        return found if found.count > 1 else Processes()
    if name == "torch":
        from torch import distributed

        several = distributed.is_available() and distributed.is_initialized()
        return TorchProcesses() if several else Processes()
    resolver = getattr(model.distribute_strategy, "cluster_resolver", None)
    jobs = resolver.cluster_spec().as_dict() if resolver else {}
    tasks = [
        (job, i) for job in ("chief", "worker") for i in range(len(jobs.get(job, [])))
    ]
    several = len(tasks) > 1
    return (
        TensorflowProcesses(model.distribute_strategy, tasks)
        if several
        else Processes()
    )


def seed_torch(*numbers: int) -> None:
    """Seeds PyTorch's own generators, which Keras's `Dropout` without a seed uses.

    Does nothing on the other backends, where the seeds are variables.

    Args:
        numbers: Whole numbers ≥ 0, of which all determine the seed.
    """
    if keras.backend.backend() != "torch":
        return
    import torch

    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # a hundred times faster: it looks for no accelerator
        torch.default_generator.manual_seed(seed)


def device_names() -> list[str]:
    """Returns the name of each device of this process, such as "NVIDIA H200".

    Without an accelerator it is one name, that of the processor's kind.
    """
    name = keras.backend.backend()
    if name == "jax":
        import jax

        return [device.device_kind for device in jax.local_devices()]
    if name == "tensorflow":
        import tensorflow as tf

        config = tf.config
        devices = config.list_physical_devices("GPU")
        details = map(config.experimental.get_device_details, devices)
        return [each.get("device_name", "GPU") for each in details] or ["cpu"]
    if name == "torch":
        import torch

        from .keras_private import get_device

        count = torch.cuda.device_count()
        return [*map(torch.cuda.get_device_name, range(count))] or [get_device()]
    return ["cpu"]  # OpenVINO's by Keras
