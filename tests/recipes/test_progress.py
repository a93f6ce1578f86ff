import io
import types
from pathlib import Path

import pytest
from rich.console import Console
from training import progress

from tests.once import on_last_backend

pytestmark = on_last_backend


@pytest.fixture
def printed(monkeypatch):
    """What the module prints without a terminal."""
    file = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=file, markup=False))
    return file


@pytest.mark.parametrize("parts", [1, 3])
def test_lines_without_a_terminal(monkeypatch, printed, parts):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    logs = {"loss": 0.5, "accuracy": 0.25, "val_loss": 1.0, "val_accuracy": 0.75}
    resume = types.SimpleNamespace(
        folder=Path("runs/with_[b]SAM"), data=range(4 * parts), epoch=0, batch=0
    )
    with progress.Steps(resume, parts) as steps:
        steps.set_params({"epochs": 2})
        steps.on_train_begin()
        for epoch in range(2):
            steps.on_epoch_begin(epoch)
            for batch in range(4 * parts):  # the first step compiles for 100 s
                clock[0] += (100 if epoch == batch == 0 else 20) / parts
                steps.on_train_batch_end(batch, logs)
            clock[0] += 10  # a validation
            steps.on_epoch_end(epoch, logs)
        resume.epoch = 2
        steps.on_train_end()
    title, begin, *lines = printed.getvalue().splitlines()
    assert "with [b]SAM" in title and begin == "8 steps, validated and saved every 4."
    training = "training loss 0.5000, accuracy 25.00%"
    validation = "validation loss 1.0000, accuracy 75.00%"
    if parts == 1:
        assert lines == [
            f"step 1 of 8: {training}",
            f"step 3 of 8: {training}; 20 s/step, 0:01:40 left",
            f"step 4 of 8: {training}; {validation}; 20 s/step, 0:01:20 left",
            f"step 6 of 8: {training}; 20 s/step, 0:00:44 left",
            f"step 8 of 8: {training}; {validation}; 20 s/step",
        ]
    assert lines[-1] == f"step 8 of 8: {training}; {validation}; 20 s/step"
