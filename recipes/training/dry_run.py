"""Runs three steps of a training, and prints the seconds and the memory that it takes.

dry_run.measure(devices, plan, model, dataset, compiled)
"""

import contextlib
import importlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
from command.command_line import BadInput
from rich.table import Table
from training import stages, training_data
from training.progress import console, counted

PROCESS = Path("/proc/self")  # Linux
STEPS = 2  # after the one that includes the compilation
UNITS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


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
    if sys.platform == "win32":
        import psutil  # of TensorFlow Datasets

        return lambda: None, lambda: psutil.Process().memory_info().peak_wset
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return (
        lambda: None,
        lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    )


def _reset_process_peak():
    (PROCESS / "clear_refs").write_bytes(b"5")  # sets the peak to the present value


def _process_peak():
    status = (PROCESS / "status").read_text("utf-8")
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


class Clock(keras.callbacks.Callback):
    """Notes when each batch ends. Reading the loss waits for the device."""

    def on_train_begin(self, logs=None):
        """Starts the clock."""
        self.times = [time.perf_counter()]

    def on_train_batch_end(self, batch, logs=None):
        """Adds the time."""
        float(logs["loss"])
        self.times.append(time.perf_counter())


def measure(devices, plan: list, model, dataset, compiled: Callable) -> None:
    """Trains each stage for three steps and prints a table. Nothing is written.

    Args:
        devices: `Devices`.
        plan: Result of `stages.of`.
        model: `ImageModel`.
        dataset: `kerasvit.data.LabelledImages`.
        compiled: Function of the devices, a stage and its model on them, which returns
            the compiled trainer.
    """
    for stage, staged in stages.each(devices, model, plan):
        with devices.scope():
            trainer = compiled(devices, stage, staged)
            options = training_data.fit_options(stage.config, staged)
            batches = stage.batches(devices, dataset, options)
            title = stage.text if len(plan) > 1 else "of this training"
            run(devices, stage.config, trainer, batches, stage.steps, title)


def run(devices, config, trainer, batches, steps: int, title: str) -> None:
    """Trains for three steps and prints a table.

    Args:
        devices: `Devices`.
        config: Dataclass of the settings.
        trainer: Compiled `kerasvit.SAM` on the devices.
        batches: `TrainingBatches`, `config.accumulate` per step.
        steps: Steps of a training.
        title: What is measured.
    """
    clock, parts = Clock(), config.accumulate
    with explained_out_of_memory(devices, config):
        trainer.fit(
            devices.distributed(batches.with_epochs_of((1 + STEPS) * parts)),
            shuffle=False,
            callbacks=[clock],
            verbose=0,
        )
    began, first, *_, last = clock.times[::parts]
    seconds = (last - first) / STEPS
    compiling = max(0.0, first - began - seconds)
    most, of_device = peak()
    whose = "of a device" if of_device else "resident, of the whole process"
    where = "1 device" if devices.count == 1 else f"{devices.count} devices"
    table = Table(title, "", title="Dry run", title_justify="left")
    table.add_row("parameters", f"{trainer.model.count_params():,}")
    table.add_row("a step", f"{_images(config)} on {where}")
    table.add_row("compilation, first step", f"{compiling:.1f} s more")
    table.add_row("seconds per step", f"{seconds:.3g}, mean of {STEPS}")
    table.add_row("images per second", f"{config.batch_size / seconds:,.3g}")
    table.add_row("peak memory", f"{most / 2**30:.2f} GiB, {whose}")
    table.add_row("steps", f"{steps:,}")
    duration = _duration(steps * seconds)
    table.add_row("all steps", f"{duration}, without validation and saving")
    table.add_row("for less memory", ", ".join(suggestions(devices, config)))
    console.print(table)


@contextlib.contextmanager
def explained_out_of_memory(devices, config) -> Iterator[None]:
    """Context that says what to change if the memory of the device is too small.

    JAX has no class for this error, only a word in its text: it is not changed.

    Args:
        devices: `Devices`.
        config: Dataclass of the settings.

    Raises:
        BadInput: The memory of the device is too small.
    """
    try:
        yield
    except _errors() as error:
        raise BadInput(
            f"The memory of the device is too small for a step of {_images(config)}. "
            f"Give one of these: {', '.join(suggestions(devices, config))}."
        ) from error


def suggestions(devices, config) -> list[str]:
    """Returns options with which a training takes less memory.

    First those with which it has the same results, then those that change it more.

    Args:
        devices: `Devices`.
        config: Dataclass of the settings.
    """
    found = []
    backend = keras.backend.backend()
    if config.rho == 0 or config.perturbation == "local":
        option = "accumulate"
        if backend == "tensorflow" and devices.count > 1:  # see tensorflow_devices.py
            option = "micro_batches"
        each = config.batch_size // devices.count
        least = getattr(config, "micro_batches", 1) if option == "accumulate" else 1
        more = range(getattr(config, option, each) + 1, each + 1)
        parts = next((n for n in more if each % (n * least) == 0), None)
        if parts:
            found.append(f"--{option.replace('_', '-')} {parts}")
    if not config.remat:
        found.append("--remat")
    if config.dtype == "float32":
        found.append("--dtype mixed_bfloat16")
    shares = devices.count * config.accumulate
    if smaller := config.batch_size // 2 // shares * shares:
        found.append(f"--batch-size {smaller}")
    return found or ["a smaller --model or --image-size"]


def _errors() -> tuple[type[Exception], ...]:
    """Returns the classes of the backend's errors for too little memory."""
    backend = keras.backend.backend()
    if backend == "jax":
        return ()
    module = importlib.import_module(backend)
    if backend == "torch":
        return (module.OutOfMemoryError,)
    return (module.errors.ResourceExhaustedError,)


def _images(config):
    parts = f" in {config.accumulate} parts" if config.accumulate > 1 else ""
    return f"{counted(config.batch_size)}{parts}"


def _duration(seconds):
    unit = next(name for name, each in UNITS.items() if seconds >= each or each == 1)
    return f"{seconds / UNITS[unit]:.3g} {unit}"
