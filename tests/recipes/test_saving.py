import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pretrain
import pytest
import tensorflow as tf
from command.command_line import BadInput
from devices import devices
from training import saving, stages, states

from kerasvit.data import TrainingBatches
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

from . import small_training
from .small_training import check_same, interrupted, settings, state_files

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setitem(pretrain.SMALL, "small_vit", small_training.MODEL)
    monkeypatch.setattr(pretrain, "make_optimizer", small_training.optimizer)
    monkeypatch.setattr(saving, "LOG_SECONDS", 1e9)  # on a slow machine, too
    monkeypatch.setattr(saving, "AGREE_SECONDS", 1e9)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of an uninterrupted training of two rounds."""
    run = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(pretrain.SMALL, "small_vit", small_training.MODEL)
        patch.setattr(pretrain, "make_optimizer", small_training.optimizer)
        pretrain.pretrain(settings(run, epochs=2))
    return run


def stopped(at, interrupt, **options):
    """Begins or continues a training of two rounds, and interrupts it after a step."""
    with pytest.MonkeyPatch.context() as patch:
        begin = interrupted(at, interrupt)
        patch.setattr(saving.Progress, "on_train_batch_begin", begin)
        with pytest.raises((KeyboardInterrupt, SystemExit)) as caught:
            pretrain.pretrain(settings("run", epochs=2, **options))
    return caught.value


def control_c():
    raise KeyboardInterrupt


def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)


def rows():
    """The steps in the log."""
    lines = Path("run/log_with_SAM.csv").read_text().splitlines()
    return [int(line.split(",")[0]) for line in lines[1:]]


def test_training_continues_at_any_step(whole):
    stopped(3, control_c, minutes=0)
    assert state_files("run") == ["step_00000003.json", "step_00000003.weights.h5"]
    stopped(15, control_c, minutes=0)
    pretrain.pretrain(settings("run", epochs=2))
    check_same(whole, "run")
    assert rows() == [*range(1, 16), 20]
    names = {path.name for path in Path("run").iterdir()}
    assert names == {
        *("config.json", "curves.png", "log_with_SAM.csv", "model", "result.json")
    }


@long_elsewhere
def test_sigterm_saves_and_stops(whole, capsys):
    before = signal.getsignal(signal.SIGTERM)
    stop = stopped(6, sigterm)
    assert stop.code == 0 and signal.getsignal(signal.SIGTERM) == before
    printed = " ".join(capsys.readouterr().out.split())
    assert "Step 7 of 20 is saved; the same command continues." in printed
    assert state_files("run") == ["step_00000007.json", "step_00000007.weights.h5"]
    stopped(19, sigterm)
    assert state_files("run")[0] == "step_00000020.json"
    pretrain.pretrain(settings("run", epochs=2))
    check_same(whole, "run")


@on_last_backend
def test_sigterm_while_a_state_is_written(whole, monkeypatch):
    replace = states.replace_file

    def replace_and_signal(*files):
        sigterm()
        replace(*files)

    with monkeypatch.context() as patch:
        patch.setattr(states, "replace_file", replace_and_signal)
        stopped(4, sigterm)
    pretrain.pretrain(settings("run", epochs=2))
    check_same(whole, "run")


@on_last_backend
def test_processes_agree_on_the_step_that_they_save(whole, monkeypatch):
    make = stages.saved_progress
    two = devices.Devices(processes=2)
    monkeypatch.setattr(stages, "saved_progress", lambda *a: make(*a[:-1], two))
    stopped(4, sigterm)
    # They agree after the steps 1, 3 and 7, and oftener if steps take a second.
    assert state_files("run")[0] == "step_00000007.json"
    pretrain.pretrain(settings("run", epochs=2))
    check_same(whole, "run")


@on_last_backend
def test_only_the_first_process_writes(monkeypatch):
    make = stages.saved_progress
    other = devices.Devices(process=1, processes=2)
    monkeypatch.setattr(stages, "saved_progress", lambda *a: make(*a[:-1], other))
    stopped(11, control_c, minutes=0)
    assert state_files("run") == [] and not list(Path("run").glob("*.csv"))


def batches_with_nan(number):
    """`TrainingBatches.endless` with NaN in the images of a batch."""
    endless = TrainingBatches.endless

    def batches(self, start):
        numbers = tf.data.Dataset.range(start, 1000)

        def spoilt(i, batch):
            images, labels = batch
            return tf.where(i == number, np.float32("nan"), images), labels

        return tf.data.Dataset.zip(numbers, endless(self, start)).map(spoilt)

    return batches


@pytest.mark.parametrize(("minutes", "saved"), mainly_on_last([(10, 10), (0, 12)]))
def test_loss_that_is_not_finite(minutes, saved, monkeypatch):
    monkeypatch.setattr(TrainingBatches, "endless", batches_with_nan(12))
    message = (
        rf"The loss became .* in step 13 of 20 \(batch 12, .* Step {saved} is kept"
    )
    with pytest.raises(BadInput, match=message):
        pretrain.pretrain(settings("run", minutes, epochs=2))
    names = [f"step_000000{saved}.json", f"step_000000{saved}.weights.h5"]
    assert state_files("run") == names


@on_last_backend
def test_weights_that_are_not_finite_are_not_saved(monkeypatch):
    def infinite(*_):
        return keras.optimizers.SGD(float("inf"))

    monkeypatch.setattr(pretrain, "make_optimizer", infinite)
    message = r"The weights became .* in step 1 of 20 .* No step is saved yet"
    with pytest.raises(BadInput, match=message):
        pretrain.pretrain(settings("run", 0, epochs=2))
    assert state_files("run") == []


class Trainer:
    """Stands for a trainer: its file of weights has a number."""

    optimizer = SimpleNamespace(build=lambda variables: None)
    trainable_variables = []

    def __init__(self, number=0):
        self.number = number

    def save_weights(self, file, overwrite):
        file.write(str(self.number).encode())

    def load_weights(self, path):
        self.number = int(path.read_text())


def written(folder, step):
    states.write(folder, states.State(step, [{"loss": 0.1}], [[0.5]]), Trainer(step))


@on_last_backend
def test_half_written_states_are_not_read(tmp_path):
    written(tmp_path, 3)
    first = set(tmp_path.iterdir())
    (tmp_path / "unfinished.weights.h5").write_text("4")
    (tmp_path / "step_00000004.json").write_text('{"step": 4, "his')
    (tmp_path / ".step_00000004.json").write_text('{"st')
    trainer = Trainer()
    state = states.load_last(tmp_path, trainer, 10)
    assert (state.step, trainer.number) == (3, 3)
    assert (state.history, state.metrics) == ([{"loss": 0.1}], [[0.5]])
    written(tmp_path, 4)
    assert not first & set(tmp_path.iterdir())
    assert states.load_last(tmp_path, trainer, 10).step == 4 == trainer.number


@on_last_backend
@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("step_00000003.weights.h5", "33", "its SHA-256 is another"),
        ("step_00000003.json", '{"step": 3', "Expecting"),
        ("step_00000003.json", '{"steps": 3}', "unexpected keyword"),
        ("step_00000003.json", None, "No such file"),
    ],
)
def test_damaged_state(file, content, reason, tmp_path):
    written(tmp_path, 3)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(BadInput, match=f"weights.h5, is damaged: .*{reason}.*elete"):
        states.load_last(tmp_path, Trainer(), 10)


@on_last_backend
def test_full_disk_keeps_the_last_state(tmp_path, monkeypatch):
    written(tmp_path, 3)

    def full(file, content):
        file.touch()
        raise OSError(28, "No space left on device")

    empty = tmp_path / "empty"
    empty.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        message = "step 4 cannot be written.* No space left.*MB are free. "
        with pytest.raises(BadInput, match=f"{message}.*from the state before it"):
            written(tmp_path, 4)
        with pytest.raises(BadInput, match=f"{message}There is no earlier state"):
            written(empty, 4)
    assert not list(empty.iterdir())
    assert states.load_last(tmp_path, Trainer(), 10).step == 3


@on_last_backend
def test_state_of_version_0_1(tmp_path):
    (tmp_path / "round_0002.weights.h5").write_text("20")
    (tmp_path / "round_0002.json").write_text(json.dumps([{"loss": 2.0}] * 2))
    trainer = Trainer()
    state = states.load_last(tmp_path, trainer, 10)
    assert (state.step, len(state.history), trainer.number) == (20, 2, 20)
    written(tmp_path, 23)
    assert not list(tmp_path.glob("round_*"))
