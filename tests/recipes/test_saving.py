import os
import signal
from pathlib import Path

import keras
import numpy as np
import pretrain
import pytest
import tensorflow as tf
from command.command_line import BadInput
from training import step_log

import kerasvit
from kerasvit.data import TrainingBatches
from tests.once import (
    long_elsewhere,
    on_last_backend,
    rest_long_elsewhere,
)

from . import small_training
from .small_training import check_same, interrupted, last_state, settings

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setitem(pretrain.SMALL, "small_vit", small_training.MODEL)
    monkeypatch.setattr(pretrain, "make_optimizer", small_training.optimizer)
    monkeypatch.setattr(step_log, "LOG_SECONDS", 1e9)  # on a slow machine, too
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
        patch.setattr(kerasvit.Resume, "on_train_batch_begin", begin)
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


@pytest.mark.long
def test_training_continues_at_any_step(whole):
    stopped(3, control_c, minutes=0)
    assert last_state("run") == 3
    stopped(15, control_c, minutes=0)
    pretrain.pretrain(settings("run", epochs=2))
    check_same(whole, "run")
    assert rows() == [10, 20]
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
    assert last_state("run") == 7
    stopped(19, sigterm)
    assert last_state("run") == 20
    pretrain.pretrain(settings("run", epochs=2))
    check_same(whole, "run")


def batches_with_nan(number):
    """`TrainingBatches.with_epochs_of` with NaN in the images of a batch."""
    make = TrainingBatches.with_epochs_of

    def batches(self, count):
        def spoilt(i, x, y):
            return tf.where(i == number, np.float32("nan"), x), y

        def made(starts):
            numbered = self._make(starts)
            return numbered.map(lambda x, y, m: (*spoilt(m[0, 1], x, y), m))

        return make(TrainingBatches(made, len(self)), count)

    return batches


@pytest.mark.filterwarnings("ignore:The state after batch")  # it is not saved
@pytest.mark.parametrize(
    ("minutes", "saved"), rest_long_elsewhere([(10, 10), (0, 12)], 0)
)
def test_loss_that_is_not_finite(minutes, saved, monkeypatch):
    monkeypatch.setattr(TrainingBatches, "with_epochs_of", batches_with_nan(12))
    message = r"The loss became .* in step 13 \(batch 12, .*state before it is kept in"
    with pytest.raises(BadInput, match=message):
        pretrain.pretrain(settings("run", minutes, epochs=2))
    assert last_state("run") == saved


@on_last_backend
@pytest.mark.filterwarnings("ignore:The state after batch")
def test_weights_that_are_not_finite_are_not_saved(monkeypatch):
    def infinite(*_):
        return keras.optimizers.SGD(float("inf"))

    monkeypatch.setattr(pretrain, "make_optimizer", infinite)
    message = r"The (loss|weights) became .* in step [12] \(batch [01],"
    with pytest.raises(BadInput, match=message):
        pretrain.pretrain(settings("run", 0, epochs=2))
    assert last_state("run") == 0


@on_last_backend
@pytest.mark.parametrize("state", ["step_00000003.weights.h5", "round_0001.weights.h5"])
def test_a_training_of_an_earlier_version_begins_anew(state):
    stopped(3, control_c)
    for file in Path("run/with_SAM").iterdir():
        file.unlink()
    Path("run/with_SAM", state).write_text("")
    message = "unfinished training of an earlier version.*Give another --out"
    with pytest.raises(BadInput, match=message):
        pretrain.pretrain(settings("run", epochs=2))
    assert Path("run/with_SAM", state).exists()
