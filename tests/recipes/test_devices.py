"""Recipes on several devices and processes train and evaluate as on one device.

The trainings of device_cases.py run in processes of their own, which set their devices
at the start.
"""

import json
import os
import signal
import time

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.once import long_elsewhere, once, rest_long
from tests.recipes import device_cases

from .device_processes import (
    BACKEND,
    SECONDS,
    commands,
    running,
    train,
    workers,
    write_images,
)

pytestmark = pytest.mark.slow
not_torch = pytest.mark.not_on("torch", reason="a device is a process")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return once(tmp_path_factory, "images_of_devices", write_images) / "images"


def assert_equal(one, other):
    """Compares weights, loss curves and results of the test."""
    models = [load_file(run / "model/model.safetensors") for run in (one, other)]
    assert models[0].keys() == models[1].keys()
    for name, value in models[0].items():
        np.testing.assert_allclose(models[1][name], value, 1e-5, 1e-5, err_msg=name)
    rounds = []
    for run in (one, other):
        result = json.loads((run / "result.json").read_text())
        tested = {key: result[key] for key in ("loss", "accuracy")}
        rounds.append([*result["history"], tested])
    for expected, logs in zip(*rounds, strict=True):
        for key in expected.keys() - {"seconds"}:
            exact = 1e-7 if "accuracy" in key else 1e-5
            assert logs[key] == pytest.approx(expected[key], abs=exact), key


def check(case, processes, images, tmp_path):
    """Trains on 2 devices and on one, and compares."""
    for folder in (tmp_path / "alone", tmp_path):
        if case in device_cases.TUNED:
            device_cases.run("plain", images, folder, out=str(folder / "weights"))
        if case == "taught":
            save_teacher(folder)
    train(processes, images, tmp_path, case)
    assert_equal(alone(case, images, tmp_path / "alone"), tmp_path / case)


def save_teacher(folder):
    """Writes a teacher of two classes, always the same, into the folder."""
    folder.mkdir(exist_ok=True)
    inputs = keras.Input((14, 14, 3))
    initializer = keras.initializers.RandomNormal(seed=0)
    head = keras.layers.Dense(2, kernel_initializer=initializer)
    outputs = head(keras.layers.Flatten()(inputs))
    keras.Model(inputs, outputs).save(folder / "teacher.keras")


def alone(case, images, folder):
    """The folder of a training on one device."""
    parts = {"local": 2, "remat": 2, "parts": 4}
    changes = {"micro_batches": parts[case]} if case in parts else {}
    if case in parts:
        changes |= {"accumulate": 1, "remat": False}
    device_cases.run(case, images, folder, devices="1", **changes)
    return folder / case


def check_resumed(images, folder, tmp_path):
    """Continues a training of the folder on one device, and compares."""
    states = [path.name for path in (folder / "resumed/with_SAM").iterdir()]
    assert sorted(states)[-1] == "state_00001_00000000.npz"
    resumed = alone("resumed", images, folder)
    assert_equal(alone("global", images, tmp_path), resumed)


@pytest.mark.long
def test_a_training_on_two_devices_continues_on_one(images, tmp_path):
    train(1, images, tmp_path, "resumed", codes=(1, 130, -signal.SIGINT))
    check_resumed(images, tmp_path, tmp_path / "alone")


@pytest.mark.parametrize("case", rest_long(["local", "plain"]))
@long_elsewhere
def test_a_batch_in_parts_is_as_a_whole(case, images, tmp_path):
    """Without SAM; with it, each part is perturbed as a micro-batch is."""
    options = {"devices": "1", "warmup_steps": 4, "optimizer": "adamw"}
    options |= {"learning_rate": 1e-3}
    whole = {"micro_batches": 4} if case == "local" else {}
    device_cases.run(case, images, tmp_path / "whole", **options, **whole)
    device_cases.run(case, images, tmp_path / "parts", **options, accumulate=4)
    assert_equal(tmp_path / "whole" / case, tmp_path / "parts" / case)


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_a_dry_run_on_two_devices_prints_once(processes, images, tmp_path):
    train(processes, images, tmp_path, "dry")
    assert not (tmp_path / "dry").exists()
    logs = [path.read_text() for path in tmp_path.glob("*.log")]
    assert sum(log.count("Dry run") for log in logs) == 1


@pytest.mark.long
@pytest.mark.not_on("tensorflow", reason="Keras cannot accumulate there")
def test_parts_on_two_devices_are_as_four(images, tmp_path):
    check("parts", 1, images, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        *("plain", "local", "global", "head", "remat", "kept"),
        *("stages", "taught", "adapters"),
    ],
)
def test_two_devices_are_as_one(case, images, tmp_path):
    check(case, 1, images, tmp_path)


@pytest.mark.long
@pytest.mark.only_on("jax", reason="only JAX divides a model")
@pytest.mark.parametrize("case", ["model", "mesh", "kept of a mesh"])
def test_a_divided_model_is_as_a_whole_one(case, images, tmp_path):
    check(case, 1, images, tmp_path)


@not_torch
@pytest.mark.long
@pytest.mark.parametrize("case", ["plain", "local", "global", "head", "kept"])
def test_two_processes_are_as_one(case, images, tmp_path):
    check(case, 2, images, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_scores_are_the_same_to_the_image(processes, images, tmp_path):
    device_cases.run("plain", images, tmp_path, out=str(tmp_path / "weights"))
    train(processes, images, tmp_path, "scores")
    expected, frozen, noisy, _ = device_cases.run(
        "scores", images, tmp_path, devices="1", out=str(tmp_path / "alone")
    )
    found, *_ = json.loads((tmp_path / "scores/scores.json").read_text())
    assert found["images"] == 58
    scores = found["parts"]["all"]["scores"]
    for name, value in expected.parts["all"].scores.items():
        np.testing.assert_allclose(scores[name], value, atol=1e-5)
    with np.load(tmp_path / "scores/weights/images.npz") as arrays:
        np.testing.assert_array_equal(arrays["all"], expected.right["all"])
    with np.load(tmp_path / "scores/weights/images_frozen.npz") as arrays:
        assert [*arrays] == [*frozen.right] == ["1-shot", "5-shot", "k-NN"]
        for name, right in frozen.right.items():
            np.testing.assert_array_equal(arrays[name], right)
    with np.load(tmp_path / "scores/weights/images_impulse_noise.npz") as arrays:
        assert arrays.keys() == noisy.right.keys()
        for part, right in noisy.right.items():
            np.testing.assert_array_equal(arrays[part], right)


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
        while max((x.name for x in states.glob("*.npz")), default="") < "state_00001":
            assert time.monotonic() < until
            time.sleep(0.2)
        if BACKEND == "torch":
            os.kill(workers(begun[0])[-1], signal.SIGKILL)
        else:
            begun[1].kill()
        assert begun[0].wait(SECONDS) != 0
