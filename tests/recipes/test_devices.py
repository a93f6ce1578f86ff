"""Recipes on several devices and processes train and evaluate as on one device.

The trainings of device_cases.py run in processes of their own, which set their devices
at the start.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from tests.once import once
from tests.recipes import device_cases

BACKEND = keras.backend.backend()
SCRIPT = str(Path(device_cases.__file__))
SECONDS = 300  # for the trainings of a process
pytestmark = pytest.mark.slow
not_torch = pytest.mark.skipif(BACKEND == "torch", reason="a device is a process")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """58 images: batches of 8 neither divide the validation nor the test images."""

    def write(folder):
        for name in ("cat", "dog"):
            (folder / "images" / name).mkdir(parents=True)
            for i in range(29):
                random = np.random.default_rng([i, ord(name[0])])
                pixels = random.integers(256, size=(20, 24, 3), dtype="uint8")
                Image.fromarray(pixels).save(folder / "images" / name / f"{i}.png")

    return once(tmp_path_factory, "images_of_devices", write) / "images"


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    common = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    return {**kept, **common, **variables}


def commands(processes, images, folder, *cases):
    """[(command, environment)] of the programs that train on 2 devices."""
    arguments = [SCRIPT, str(images), str(folder), *cases]
    if BACKEND == "torch":
        count = ["--nproc-per-node", "2", "--master-port", str(free_port())]
        torchrun = [sys.executable, "-m", "torch.distributed.run", *count]
        return [([*torchrun, *arguments], environment())]
    command = [sys.executable, *arguments]
    if processes == 1:
        devices = "4" if "mesh" in cases else "2"
        flags = (  # most of the time is compilation
            "--xla_backend_optimization_level=0",
            f"--xla_force_host_platform_device_count={devices}",
        )
        variables = {"XLA_FLAGS": " ".join(flags), "LOGICAL_CPUS": devices}
        return [(command, environment(**variables))]
    ports = [free_port(), free_port()]
    return [(command, environment(**started(i, ports))) for i in range(2)]


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
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)  # JAX ignores SIGTERM if it hangs
            each.wait()


def train(processes, images, folder, *cases, codes=(0,)):
    """Runs the cases on 2 devices in 1 or 2 processes."""
    with running(commands(processes, images, folder, *cases), folder) as begun:
        for each in begun:
            each.wait(SECONDS)
        logs = [(folder / f"{i}.log").read_text() for i in range(len(begun))]
        assert all(each.returncode in codes for each in begun), "\n".join(logs)


def assert_equal(one, other):
    """Compares weights, loss curves and results of the test."""
    models = [load_file(run / "model/model.safetensors") for run in (one, other)]
    assert models[0].keys() == models[1].keys()
    for name, value in models[0].items():
        np.testing.assert_allclose(models[1][name], value, 1e-5, 1e-5, err_msg=name)
    results = [
        json.loads((run / "result.json").read_text())["results"] for run in (one, other)
    ]
    for name, expected in results[0].items():
        found = results[1][name]
        assert len(found["history"]) == len(expected["history"])
        rounds = zip(
            [*found["history"], found], [*expected["history"], expected], strict=True
        )
        for logs, expected_logs in rounds:
            for key in expected_logs.keys() - {"seconds", "history"}:
                exact = 1e-7 if "accuracy" in key else 1e-5
                assert logs[key] == pytest.approx(expected_logs[key], abs=exact), key


def check(case, processes, images, tmp_path):
    """Trains on 2 devices and on one, and compares."""
    if case == "head":
        for folder in (tmp_path / "alone", tmp_path):
            device_cases.run("plain", images, folder, out=str(folder / "weights"))
    train(processes, images, tmp_path, case)
    assert_equal(alone(case, images, tmp_path / "alone"), tmp_path / case)


def alone(case, images, folder):
    """The folder of a training on one device."""
    changes = {"micro_batches": 2} if case == "local" else {}
    device_cases.run(case, images, folder, devices="1", **changes)
    return folder / case


def check_resumed(images, folder, tmp_path):
    """Continues a training of the folder on one device, and compares."""
    states = [path.name for path in (folder / "resumed/with_SAM").iterdir()]
    assert sorted(states) == ["step_00000010.json", "step_00000010.weights.h5"]
    resumed = alone("resumed", images, folder)
    assert_equal(alone("global", images, tmp_path), resumed)


def test_a_training_on_two_devices_continues_on_one(images, tmp_path):
    train(1, images, tmp_path, "resumed", codes=(1, 130, -signal.SIGINT))
    check_resumed(images, tmp_path, tmp_path / "alone")


@pytest.mark.long
@pytest.mark.parametrize("case", ["plain", "local", "global", "head"])
def test_two_devices_are_as_one(case, images, tmp_path):
    check(case, 1, images, tmp_path)


@pytest.mark.long
@pytest.mark.skipif(BACKEND != "jax", reason="only JAX divides a model")
@pytest.mark.parametrize("case", ["model", "mesh"])
def test_a_divided_model_is_as_a_whole_one(case, images, tmp_path):
    check(case, 1, images, tmp_path)


@not_torch
@pytest.mark.long
@pytest.mark.parametrize("case", ["plain", "local", "global", "head"])
def test_two_processes_are_as_one(case, images, tmp_path):
    check(case, 2, images, tmp_path)


@not_torch
@pytest.mark.long
def test_two_processes_continue_on_one(images, tmp_path):
    train(2, images, tmp_path, "resumed", codes=(1,))
    check_resumed(images, tmp_path, tmp_path / "alone")


@pytest.mark.long
def test_an_error_in_one_process_ends_all(images, tmp_path):
    train(2, images, tmp_path, "failing", codes=(1, -signal.SIGABRT))


@pytest.mark.long
def test_a_process_that_dies_ends_all(images, tmp_path):
    with running(commands(2, images, tmp_path, "killed"), tmp_path) as begun:
        states = tmp_path / "killed/without_SAM"
        until = time.monotonic() + SECONDS
        while not list(states.glob("step_*.h5")):
            assert time.monotonic() < until
            time.sleep(0.2)
        if BACKEND == "torch":
            children = Path(f"/proc/{begun[0].pid}/task/{begun[0].pid}/children")
            os.kill(int(children.read_text().split()[-1]), signal.SIGKILL)
        else:
            begun[1].kill()
        assert begun[0].wait(SECONDS) != 0
