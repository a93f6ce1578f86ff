"""Writes a table of a training's steps: a CSV file, and scalars for TensorBoard."""

import contextlib
import csv
import math
import time
from pathlib import Path

import keras
import tensorflow as tf
from command.command_line import BadInput
from devices.devices import Devices
from training.run_folder import replace_file

import kerasvit

COLUMNS = ("step", "loss", "learning_rate", "images_per_second", "seconds")
LOG_SECONDS = 10  # between two rows inside a round

_Metadata = tf.compat.v1.SummaryMetadata
SCALAR = _Metadata(plugin_data=_Metadata.PluginData(plugin_name="scalars"))


class NotFinite(BadInput):
    """Error of a training whose loss or weights became infinite or NaN."""


class StepLog(keras.callbacks.Callback):
    """Appends rows to a CSV file; ends a training whose loss is not finite.

    The columns of the file are `COLUMNS`. `loss` is the mean since the row before,
    `learning_rate` that of the next step, and `seconds` are those of the training, with
    validation, also before an interruption. It is the first of the callbacks: a state
    after a loss that is not finite is not saved.

    Args:
        file: Path of the CSV file.
        resume: `kerasvit.Resume` of the same `fit`.
        devices: Devices of the training. The first process writes.
        batch_size: Images per step.
        parts: Batches of `fit` per step.
        events: Folder of the events for TensorBoard; None writes none.

    Raises:
        NotFinite: In `fit`: the loss or the weights are not finite.
    """

    # Keras calls `on_train_batch_end` in threads, which wait for the loss of a step,
    # while the next steps begin. (On TensorFlow, Keras waits for each step.)
    async_safe = True

    def __init__(
        self,
        file: Path,
        resume: kerasvit.Resume,
        devices: Devices,
        batch_size: int,
        *,
        parts: int = 1,
        events: Path | None = None,
    ):
        super().__init__()
        self.file, self.resume, self.devices = file, resume, devices
        self.batch_size, self.parts, self.events = batch_size, parts, events
        self._writer, self._began = None, None

    @classmethod
    def of(cls, config, resume: kerasvit.Resume, devices: Devices) -> "StepLog":
        """Returns the log of the settings, beside the folder of the states."""
        states = resume.folder
        events = states.parent / "tensorboard" / states.name
        return cls(
            states.with_name(f"log_{states.name}.csv"),
            resume,
            devices,
            config.batch_size,
            parts=config.accumulate,
            events=events if config.tensorboard else None,
        )

    def begin(self, step: int) -> None:
        """Removes the rows after a step, from which the training continues."""
        rows = [*self._rows_until(step)]
        before = float(rows[-1][COLUMNS.index("seconds")]) if rows else 0.0
        self._began = time.perf_counter() - before
        if not self.devices.is_first:
            return
        unfinished = self.file.with_name(f".{self.file.name}")
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])
        replace_file(unfinished, self.file)
        if self.events:
            self._writer = tf.summary.create_file_writer(str(self.events))

    def row(self, *values: float) -> None:
        """Appends a row with the values of `COLUMNS`."""
        if not self.devices.is_first:
            return
        step, *rest = values
        with self.file.open("a", encoding="utf-8", newline="") as file:
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

    def on_train_begin(self, logs=None):
        """Forgets the rounds of an earlier `fit`."""
        self._began = None

    def on_epoch_begin(self, epoch, logs=None):
        """Begins to measure the steps of a round, or of the rest of one."""
        self.round_steps = len(self.resume.data) // self.parts
        self._first, self._offset = epoch * self.round_steps, self.resume.batch
        self._not_finite = []
        if self._began is None:
            self.begin(self._first + self._offset // self.parts)
        self._logged, self._logged_at = (0, 0.0), time.perf_counter()

    def on_train_batch_begin(self, batch, logs=None):
        """Writes a row if the last one is long ago."""
        done, part = divmod(self._offset + batch, self.parts)
        if self._not_finite:
            self._raise_not_finite("loss", min(self._not_finite))
        if not batch and done:  # the metrics are those of the steps before
            self._logged = done, self._mean()
        elif not part and time.perf_counter() - self._logged_at >= LOG_SECONDS:
            self._write_row(done, self._mean())

    def on_train_batch_end(self, batch, logs=None):
        """Notes a batch after which the mean loss of the round is not finite."""
        if not math.isfinite(logs["loss"]):
            self._not_finite.append((self._offset + batch) // self.parts)

    def on_epoch_end(self, epoch, logs=None):
        """Writes the last steps of the round, before its validation."""
        self._write_row(self.round_steps, logs["loss"])
        if not self.devices.finite(self.model.trainable_variables):
            self._raise_not_finite("weights", self.round_steps - 1)

    def _mean(self):
        """Returns the mean loss of the round so far. Waits for the last step."""
        return float(self.model.get_metrics_result()["loss"])

    def _write_row(self, done, mean):
        """Appends the row of the steps since the last one.

        Args:
            done: Number of finished steps of the round.
            mean: Mean loss of these.
        """
        if not math.isfinite(mean):
            self._raise_not_finite("loss", min(self._not_finite, default=done - 1))
        now, (before, mean_before) = time.perf_counter(), self._logged
        if done == before:
            return
        loss = (done * mean - before * mean_before) / (done - before)
        # A variable of `tf.distribute` has no `float`.
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        speed = (done - before) * self.batch_size / (now - self._logged_at)
        self.row(self._first + done, loss, rate, speed, now - self._began)
        self._logged, self._logged_at = (done, mean), now

    def _raise_not_finite(self, what, step):
        number = self._first + step + 1
        raise NotFinite(
            f"The {what} became infinite or NaN in step {number:,} (batch "
            f"{number - 1:,}, counted from 0). The last state before it is kept in "
            f"{self.resume.folder}. Train in another folder, --out, with a smaller "
            "--learning-rate, more --warmup-steps or, instead of mixed_float16, "
            "--dtype mixed_bfloat16. The same command tries the same steps again, "
            "which helps after a fault of the machine only."
        )

    def _rows_until(self, step):
        if not self.file.exists():
            return
        with self.file.open(encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                with contextlib.suppress(ValueError):  # the header; a half-written row
                    if len(row) == len(COLUMNS) and int(row[0]) <= step:
                        yield row
