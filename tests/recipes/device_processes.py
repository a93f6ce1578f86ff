"""Starts trainings of device_cases.py on two devices, in one or two processes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
from PIL import Image

from tests.recipes import device_cases

BACKEND = keras.backend.backend()
SCRIPT = str(Path(device_cases.__file__))
SECONDS = 300  # for the trainings of a process


def write_images(folder):
    """58 images: batches of 8 neither divide the validation nor the test images."""
    for name in ("cat", "dog"):
        (folder / "images" / name).mkdir(parents=True)
        for i in range(29):
            random = np.random.default_rng([i, ord(name[0])])
            pixels = random.integers(256, size=(20, 24, 3), dtype="uint8")
            Image.fromarray(pixels).save(folder / "images" / name / f"{i}.png")


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    common = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    return {**kept, **common, **variables}


def commands(processes, images, folder, *cases, **variables):
    """[(command, environment)] of the programs that train on 2 devices, or 4 a mesh.

    Args:
        variables: Further variables of the environment.
    """
    arguments = [SCRIPT, str(images), str(folder), *cases]
    devices = 4 if "mesh" in cases else 2
    return programs(processes, arguments, devices, **variables)


def programs(processes, arguments, devices=2, torchrun=(), **variables):
    """[(command, environment)] that run a script on devices in 1 or 2 processes.

    Args:
        arguments: Path of the script, and its arguments.
        torchrun: Further options of torchrun.
        variables: As for `commands`.
    """
    if BACKEND == "torch":
        options = ["--nproc-per-node", "2", "--master-port", str(free_port())]
        start = [sys.executable, "-m", "torch.distributed.run", *options, *torchrun]
        return [([*start, *arguments], environment(**variables))]
    command = [sys.executable, *arguments]
    flags = (  # most of the time is compilation
        "--xla_backend_optimization_level=0",
        f"--xla_force_host_platform_device_count={devices // processes}",
    )
    variables |= {"XLA_FLAGS": " ".join(flags)}
    if processes == 1:
        return [(command, environment(LOGICAL_CPUS=str(devices), **variables))]
    ports = [free_port(), free_port()]
    return [(command, environment(**started(i, ports), **variables)) for i in range(2)]


def started(number, ports):
    """Variables of one of two processes of JAX or TensorFlow."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    if BACKEND == "jax":
        return {
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": addresses[0],
            "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
            "KERAS_DISTRIBUTION_PROCESS_ID": str(number),
        }
    task = {"type": "worker", "index": number}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def running(programs, folder):
    """Starts the programs; ends them and their own processes at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = []
    try:
        for i, (command, variables) in enumerate(programs):
            with open(folder / f"{i}.log", "w") as log:
                options = {"stdout": log, "stderr": log, "start_new_session": True}
                begun.append(subprocess.Popen(command, env=variables, **options))
        yield begun
    finally:
        for each in begun:
            for pid in [each.pid, *workers(each)]:  # those of torchrun are sessions
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # JAX ignores SIGTERM if it hangs
            each.wait()


def workers(process):
    """The process ids of the children of a process."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]
    except FileNotFoundError:  # it has ended
        return []


def train(processes, images, folder, *cases, codes=(0,), **variables):
    """Runs the cases on 2 devices in 1 or 2 processes; returns what they printed."""
    programs = commands(processes, images, folder, *cases, **variables)
    with running(programs, folder) as begun:
        for each in begun:
            each.wait(SECONDS)
        logs = "\n".join((folder / f"{i}.log").read_text() for i in range(len(begun)))
        assert all(each.returncode in codes for each in begun), logs
    return logs
