"""The most memory that a piece of work takes, on a GPU or in this process."""

import re
import resource
import sys
from pathlib import Path

import keras

PROCESS = Path("/proc/self")  # Linux


def most_bytes(work) -> int:
    """The most bytes in use while `work()` runs: of the GPU, or of the whole process.

    Of the GPU under JAX, and of the process where it is not Linux, it is the most since
    the process began.
    """
    forget, peak = _gauge()
    forget()
    work()
    return peak()


def _gauge():
    """Two functions: one forgets the peak until now, one tells that since then."""
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
        if device.platform != "cpu":
            return lambda: None, lambda: device.memory_stats()["peak_bytes_in_use"]
    if PROCESS.exists():
        return _forget_process, _process
    unit = 1 if sys.platform == "darwin" else 1024
    return (
        lambda: None,
        lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    )


def _forget_process():
    (PROCESS / "clear_refs").write_text("5")  # its peak is now what it has now


def _process():
    status = (PROCESS / "status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])
