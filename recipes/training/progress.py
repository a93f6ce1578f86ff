"""Prints the progress of a training: a bar, or lines."""

import datetime
import signal
import threading
import time

import keras
import rich.progress
from rich.console import Console
from training.quality import QUALITIES

console = Console(markup=False)  # a path may hold [brackets]
LINE_SECONDS = 30  # between two lines where no terminal shows the bar


class Steps(keras.callbacks.Callback):
    """Shows the progress: a bar on a terminal, else lines, and a line per validation.

    A line has the seconds per step of the round, and the time that is left if the next
    steps, validations and saved states take as long as those of this command. It is the
    last of the callbacks.

    Args:
        resume: `kerasvit.Resume` of the same `fit`; its folder has the title's name.
        parts: Batches of `fit` per step.
        metric: Name in the logs, printed after the loss, if it is there.
    """

    async_safe = True  # Keras calls `on_train_batch_end` in threads: rich has locks

    def __init__(self, resume, parts: int = 1, metric: str = "accuracy"):
        super().__init__()
        self.resume, self.parts, self.metric = resume, parts, metric
        self._lock = threading.Lock()
        self.bar = rich.progress.Progress(
            *rich.progress.Progress.get_default_columns(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    @classmethod
    def of(cls, config, resume) -> "Steps":
        """Returns the callback of the settings."""
        metric = "map" if config.task == "multilabel" else "accuracy"
        return cls(resume, config.accumulate, metric)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.bar.stop()
        if kind is SystemExit and error.code == 128 + signal.SIGTERM:  # of `Resume`
            console.print(
                f"Stopped by SIGTERM. Step {self._done():,} of {self.total:,} is "
                "saved; the same command continues."
            )
            raise SystemExit(0)

    def on_train_begin(self, logs=None):
        """Prints where the training begins."""
        # (time, finished steps) after the first step, which compiles; of the command,
        # and of the round.
        self._began = self._round_began = None
        self._speed, self._printed_at = "", time.monotonic()
        self.round_steps = len(self.resume.data) // self.parts
        self.total = self.params["epochs"] * self.round_steps
        title, done = self.resume.folder.name.replace("_", " "), self._done()
        console.rule(title)
        if done == self.total:
            console.print(f"All {self.total:,} steps are done.")
        elif done:
            console.print(f"Continues after step {done:,} of {self.total:,}.")
        else:
            steps = "1 step" if self.total == 1 else f"{self.total:,} steps"
            console.print(f"{steps}, validated and saved every {self.round_steps:,}.")
        self.task = self.bar.add_task(title, total=self.total, completed=done)
        self.bar.start()

    def on_epoch_begin(self, epoch, logs=None):
        """Begins to measure the steps of the round."""
        self._round_began = None
        self._offset = self.resume.batch  # of a restored state

    def on_train_end(self, logs=None):
        """Says that the training has ended before its last step, if it has."""
        self.bar.stop()
        if (done := self._done()) < self.total:
            console.print(f"Stopped early after step {done:,} of {self.total:,}.")

    def on_train_batch_end(self, batch, logs=None):
        """Advances the bar, or prints a line if the last one is long ago."""
        if (self._offset + batch + 1) % self.parts:
            return
        with self._lock:
            self.bar.advance(self.task)
            now, done = time.monotonic(), int(self.bar.tasks[0].completed)
            self._began = self._began or (now, done)
            self._round_began = self._round_began or (now, done)
            if done > self._round_began[1]:
                each, mean = (
                    (now - before) / (done - first)
                    for before, first in (self._round_began, self._began)
                )
                left = datetime.timedelta(seconds=round((self.total - done) * mean))
                self._speed = f"; {each:.3g} s/step"
                self._speed += f", {left} left" if left else ""
            ends_round = done % self.round_steps == 0
            is_late = now - self._printed_at >= LINE_SECONDS
            if is_late and not ends_round and not console.is_terminal:
                self._print(done, logs, {"training": ""})

    def on_epoch_end(self, epoch, logs=None):
        """Prints the training metrics of the round and the validation metrics."""
        step = (epoch + 1) * self.round_steps
        self._print(step, logs, {"training": "", "validation": "val_"})

    def _done(self):
        """Returns the number of finished steps."""
        return self.resume.epoch * self.round_steps + self.resume.batch // self.parts

    def _print(self, step, logs, parts):
        """Prints a line with the metrics of {name of the images: prefix in logs}."""
        metrics = []
        words = QUALITIES.get(self.metric, self.metric.replace("_", " "))
        for part, key in parts.items():
            metrics.append(f"{part} loss {logs[f'{key}loss']:.4f}")
            if (name := key + self.metric) in logs:
                metrics[-1] += f", {words} {logs[name]:.2%}"
        padded = f"{step:>{len(f'{self.total:,}')},}"
        line = f"step {padded} of {self.total:,}: {'; '.join(metrics)}{self._speed}"
        console.print(line, highlight=False, soft_wrap=True)
        self._printed_at = time.monotonic()


def counted(images: int) -> str:
    """Returns "1 image" or, for example, "1,234 images"."""
    return f"{images:,} image{'s' if images != 1 else ''}"
