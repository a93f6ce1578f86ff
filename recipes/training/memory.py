"""Measures the peak memory of a function or since the start, on a GPU or a CPU."""

import re
import resource
import sys
from pathlib import Path

import keras

PROCESS = Path("/proc/self")  # Linux


def most_bytes(work) -> int:
    """Returns the peak number of bytes of the GPU or the process while `work()` runs.

    For GPUs on JAX, and for processes on other systems than Linux, it is the peak since
    the start of the process.
    """
    reset, peak = _of_device() or _of_process()
    reset()
    work()
    return peak()


def in_use() -> int | None:
    """Returns the bytes of the GPU that the process uses now.

    None on CPUs and where the peak of `most_bytes` is that since the start.
    """
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.memory_allocated() if torch.cuda.is_available() else None
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if tf.config.list_physical_devices("GPU"):
            return tf.config.experimental.get_memory_info("GPU:0")["current"]
    return None


def peak() -> tuple[int, bool]:
    """Returns the peak number of bytes since the start, and whether it is a GPU's."""
    of_device = _of_device()
    _, peak = of_device or _of_process()
    return peak(), of_device is not None


def _of_device():
    """Returns two functions: one resets the peak, the other returns it in bytes.

    None if the backend does not count the memory of a device.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        if torch.cuda.is_available():
            return torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated
    elif backend == "tensorflow":
        import tensorflow as tf

        if tf.config.list_physical_devices("GPU"):
            gpu = tf.config.experimental
            return (
                lambda: gpu.reset_memory_stats("GPU:0"),
                lambda: gpu.get_memory_info("GPU:0")["peak"],
            )
    elif backend == "jax":
        import jax

        device = jax.local_devices()[0]
        if device.memory_stats():  # None on a CPU
            return lambda: None, lambda: device.memory_stats()["peak_bytes_in_use"]
    return None


def _of_process():
    if PROCESS.exists():
        return _reset_process_peak, _process_peak
    unit = 1 if sys.platform == "darwin" else 1024
    return (
        lambda: None,
        lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    )


def _reset_process_peak():
    (PROCESS / "clear_refs").write_text("5")  # sets the peak to the present value


def _process_peak():
    status = (PROCESS / "status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])
