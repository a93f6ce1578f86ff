import csv

import keras
import numpy as np
import pytest
import tensorflow as tf
from devices.devices import ONE
from training import step_log
from training.step_log import COLUMNS, StepLog

import kerasvit
from tests.once import on_last_backend

pytestmark = on_last_backend

HEAD = ",".join(COLUMNS)


def log_of(file, **options):
    return StepLog(file, kerasvit.Resume(file.parent), ONE, 8, **options)


def test_rows_after_the_restored_step_are_removed(tmp_path):
    file = tmp_path / "log.csv"
    log = log_of(file)
    log.begin(0)
    for step in (5, 10, 15):
        log.row(step, 2.0 / 3, 1e-3, 123.456789, step)
    with file.open("a") as half:
        half.write("10,0.5,0.0")
    log_of(file).begin(12)
    row = "0.666667,0.001,123.457"
    assert file.read_text().split() == [HEAD, f"5,{row},5", f"10,{row},10"]
    log_of(file).begin(0)
    assert file.read_text().split() == [HEAD]


def test_events_for_tensorboard(tmp_path):
    log = log_of(tmp_path / "log.csv", events=tmp_path / "events")
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


def test_a_row_for_each_time_and_round(tmp_path, monkeypatch):
    monkeypatch.setattr(step_log, "LOG_SECONDS", 0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.125), "mse")

    class Data(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return np.ones((3, 2)), np.full((3, 1), i)

        def start_at(self, number):
            """Does nothing: the batches are all alike."""

    data = Data()
    resume = kerasvit.Resume(tmp_path / "states", data)
    log = StepLog(tmp_path / "log.csv", resume, ONE, 6, parts=2)
    logs = model.fit(data, epochs=2, callbacks=[log, resume], verbose=0)
    head, *rows = csv.reader((tmp_path / "log.csv").open())
    assert head == [*COLUMNS] and [int(row[0]) for row in rows] == [1, 2, 3, 4]
    losses = np.array([float(row[1]) for row in rows]).reshape(2, 2)
    assert losses.mean(1) == pytest.approx(logs.history["loss"], rel=1e-5)
    assert {row[2] for row in rows} == {"0.125"}
    seconds = [float(row[4]) for row in rows]
    assert seconds == sorted(seconds)
