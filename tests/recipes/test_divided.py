"""States of a model that JAX devices share; test_interrupted.py has two processes."""

import importlib.util
import resource
import signal

import keras
import numpy as np
import pytest
from command import device_request
from command.command_line import BadInput
from devices.devices import ONE, Devices
from training import states

import kerasvit
from tests.once import elsewhere

if keras.backend.backend() != "jax":
    elsewhere("only JAX divides a model")
from devices import jax_devices  # noqa: E402

pytestmark = pytest.mark.slow


class Sharing(Devices):
    divides_model = True


def trainer_of(value):
    """A trainer whose variables, but for seeds and counters, have a value."""
    layers = [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(300)]
    trainer = kerasvit.SAM(keras.Sequential(layers), 0.05)
    trainer.compile(keras.optimizers.AdamW(use_ema=True), loss="mse")
    trainer.optimizer.build(trainer.trainable_variables)
    for variable in [*trainer.variables, *trainer.optimizer.variables]:
        variable.assign(keras.ops.full(variable.shape, value, variable.dtype))
    return trainer


def values(trainer):
    variables = [*trainer.variables, *trainer.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def written(folder, step=3):
    states.write(
        folder, states.State(step, [{"loss": 1.0}]), trainer_of(step), Sharing()
    )
    return folder / f"step_{step:08d}.orbax"


def test_state_is_whole(tmp_path):
    written(tmp_path)
    (tmp_path / "unfinished.orbax.orbax-checkpoint-tmp").mkdir()
    written(tmp_path, 4)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"step_00000004.json", "step_00000004.orbax"}
    trainer = trainer_of(0)
    assert states.load_last(tmp_path, trainer, 10) == states.State(4, [{"loss": 1.0}])
    for found, expected in zip(values(trainer), values(trainer_of(4)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_one_device_continues_with_a_file(tmp_path):
    written(tmp_path)
    states.write(tmp_path, states.State(4), trainer_of(4), ONE)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"step_00000004.json", "step_00000004.weights.h5"}


def truncate(file):
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [truncate, lambda file: file.unlink()])
def test_damaged_state(damage, tmp_path):
    files = sorted(path for path in written(tmp_path).rglob("*") if path.is_file())
    for file in files:
        content = file.read_bytes()
        damage(file)
        with pytest.raises(BadInput, match="orbax, is damaged: its SHA-256 is another"):
            states.load_last(tmp_path, trainer_of(0), 10)
        file.write_bytes(content)
    assert states.load_last(tmp_path, trainer_of(0), 10).step == 3


def test_full_disk_keeps_the_last_state(tmp_path):
    written(tmp_path)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(BadInput, match="step 4 cannot be written.*File too large"):
            written(tmp_path, 4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert states.load_last(tmp_path, trainer_of(0), 10).step == 3


def test_orbax_must_be_installed(tmp_path, monkeypatch):
    written(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="Orbax.* not installed"):
        states.load_last(tmp_path, trainer_of(0), 10)
    with pytest.raises(ValueError, match="Orbax.* not installed"):
        jax_devices.start(device_request.Request(model=2), config=None)
