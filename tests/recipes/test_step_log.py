import pytest
import tensorflow as tf
from training.step_log import COLUMNS, StepLog

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
    log = StepLog(tmp_path / "log.csv", tmp_path / "events")
    log.begin(0)
    log.row(5, 2.0, 1e-3, 100.0, 1.0)
    log.scalars(10, {"val_loss": 3.0})
    [file] = (tmp_path / "events").iterdir()
    found = {
        (event.step, value.tag): float(tf.make_ndarray(value.tensor))
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "scalars"
    }
    logged = dict(zip(COLUMNS[1:], (2.0, 1e-3, 100.0, 1.0), strict=True))
    expected = {(5, name): value for name, value in logged.items()}
    assert found == pytest.approx(expected | {(10, "val_loss"): 3.0})
