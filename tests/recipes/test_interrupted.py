"""Trainings on several devices continue after signals as if they had not ended."""

import signal

import pytest

from tests.once import once

from .device_processes import train, write_images
from .small_training import check_same, last_state
from .test_devices import alone, assert_equal

pytestmark = pytest.mark.slow
not_torch = pytest.mark.not_on("torch", reason="a device is a process")
only_jax = pytest.mark.only_on("jax", reason="only JAX divides a model")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return once(tmp_path_factory, "images_of_devices", write_images) / "images"


def killed(processes, images, folder, *cases):
    """Kills the last process three steps after the first round, which is saved."""
    # A process whose other is killed ends with an error, or an abort of JAX.
    codes = (1, -signal.SIGKILL, -signal.SIGABRT)
    interrupt = f"SIGKILL 13 {processes - 1}"
    train(processes, images, folder, *cases, codes=codes, INTERRUPT=interrupt)
    return last_state(folder / cases[-1])


def terminated(processes, images, folder, at, target, code=0):
    """Sends SIGTERM after a step; returns the saved step."""
    options = {"codes": (code,), "INTERRUPT": f"SIGTERM {at} {target}"}
    printed = train(processes, images, folder, "continued", **options)
    step = last_state(folder / "continued")
    assert printed.count(f"Stopped by SIGTERM. Step {step} of 20 is saved") == 1
    return step


def check(processes, images, folder):
    """Kills a training, and ends it by SIGTERM before its first step and later."""
    assert killed(processes, images, folder, "whole", "continued") == 10
    last = processes - 1
    assert 10 < terminated(processes, images, folder, 10, target=last) < 15
    assert 15 < terminated(processes, images, folder, 15, target="all") < 20
    train(processes, images, folder, "continued")
    check_same(folder / "whole", folder / "continued")


@not_torch
@pytest.mark.long
def test_two_devices(images, tmp_path):
    check(1, images, tmp_path)


@pytest.mark.long
def test_two_processes(images, tmp_path):
    check(2, images, tmp_path)


@pytest.mark.long
@pytest.mark.only_on("torch", reason="torchrun starts processes of PyTorch")
def test_sigterm_to_torchrun(images, tmp_path):
    """It passes the signal on, but counts it as an error."""
    assert 5 < terminated(2, images, tmp_path, 5, target="torchrun", code=1) < 10


@only_jax
@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_a_divided_model_continues_on_one_device(processes, images, tmp_path):
    assert killed(processes, images, tmp_path, "mesh") == 10
    resumed = alone("mesh", images, tmp_path)
    assert_equal(alone("global", images, tmp_path / "alone"), resumed)
