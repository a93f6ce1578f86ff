"""Writes a table of a training's steps: a CSV file, and scalars for TensorBoard."""

import contextlib
import csv
from pathlib import Path

import tensorflow as tf
from training.run_folder import replace_file

COLUMNS = ("step", "loss", "learning_rate", "images_per_second", "seconds")

_Metadata = tf.compat.v1.SummaryMetadata
SCALAR = _Metadata(plugin_data=_Metadata.PluginData(plugin_name="scalars"))


class StepLog:
    """Appends rows to a CSV file, and events to a folder of TensorBoard.

    Args:
        file: Path of the CSV file; its columns are `COLUMNS`. `loss` is the mean since
            the row before, `learning_rate` that of the next step, and `seconds` are
            those of the training, with validation.
        events: Folder of the events; None writes none.
    """

    def __init__(self, file: Path, events: Path | None = None):
        self.file, self.events, self._writer = file, events, None

    def begin(self, step: int) -> None:
        """Removes the rows after a step, from which the training continues."""
        unfinished = self.file.with_name(f".{self.file.name}")
        with unfinished.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *self._rows_until(step)])
        replace_file(unfinished, self.file)
        if self.events:
            self._writer = tf.summary.create_file_writer(str(self.events))

    def row(self, *values: float) -> None:
        """Appends a row with the values of `COLUMNS`."""
        step, *rest = values
        with self.file.open("a", newline="") as file:
            csv.writer(file).writerow([step, *(f"{value:.6g}" for value in rest)])
        self.scalars(step, dict(zip(COLUMNS[1:], rest, strict=True)))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Writes values for TensorBoard."""
        if self._writer:
            with self._writer.as_default(step):
                for name, value in values.items():
                    # As tf.summary.scalar, which needs the package tensorboard.
                    tf.summary.write(name, tf.constant(value, tf.float32), None, SCALAR)
            self._writer.flush()

    def _rows_until(self, step):
        if not self.file.exists():
            return
        with self.file.open(newline="") as file:
            for row in csv.reader(file):
                with contextlib.suppress(ValueError):  # the header; a half-written row
                    if len(row) == len(COLUMNS) and int(row[0]) <= step:
                        yield row
