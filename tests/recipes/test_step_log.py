import importlib.util
import re

import pytest
import startup
from command_line import BadInput, check, checking_input
from pretrain_settings import Config
from step_log import COLUMNS, StepLog

from tests.once import on_last_backend

pytestmark = on_last_backend

HEAD = ",".join(COLUMNS)


def test_rows_after_the_restored_step_are_removed(tmp_path):
    file = tmp_path / "log.csv"
    log = StepLog(file)
    log.begin(0)
    for step in (5, 10, 15):
        log.row(step, 2.0 / 3, 1e-3, 123.456789, step)
    with file.open("a") as half:
        half.write("10,0.5,0.0")
    StepLog(file).begin(12)
    row = "0.666667,0.001,123.457"
    assert file.read_text().split() == [HEAD, f"5,{row},5", f"10,{row},10"]
    StepLog(file).begin(0)
    assert file.read_text().split() == [HEAD]


def test_events_for_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    log = StepLog(tmp_path / "log.csv", tmp_path / "events")
    log.begin(0)
    log.row(5, 2.0, 1e-3, 100.0, 1.0)
    log.scalars(10, {"val_loss": 3.0})
    [file] = (tmp_path / "events").iterdir()
    found = {
        (event.step, value.tag)
        for event in EventFileLoader(str(file)).Load()
        for value in event.summary.value
    }
    assert found == {(5, name) for name in COLUMNS[1:]} | {(10, "val_loss")}


def test_tensorboard_must_be_installed(monkeypatch):
    find = importlib.util.find_spec

    def without(name):
        return None if name == "tensorboard" else find(name)

    monkeypatch.setattr(startup.importlib.util, "find_spec", without)
    with pytest.raises(BadInput, match=re.escape("pip install tensorboard")):
        with checking_input():
            check(Config(tensorboard=True))
    check(Config())
