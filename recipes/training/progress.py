"""Manages a training's folder: settings, saved states, curves and printed results."""

import dataclasses
import datetime
import itertools
import json
import os
import shlex
import threading
import time
from pathlib import Path

import keras
import rich.progress
from command import paths
from command.options import default_settings
from rich.console import Console
from rich.table import Table
from training import folder_lock
from training.card_facts import NOT_TRAINING

console = Console(markup=False)  # a path may hold [brackets]
LINE_SECONDS = 30  # between two lines where no terminal shows the bar
COLORS = {"without SAM": "tab:gray", "with SAM": "tab:orange"}


def claim_folder(folder: str | os.PathLike, config, dataset) -> Path:
    """Creates the folder of a training, or returns that of the same training.

    Args:
        folder: Path of the folder.
        config: Dataclass of all settings; those of `NOT_TRAINING` are ignored.
        dataset: `kerasvit.data.LabelledImages`.

    Raises:
        ValueError: The folder contains a training with other settings or other files,
            or cannot be written.
    """
    settings = dataclasses.asdict(config)
    for name in NOT_TRAINING:
        settings.pop(name, None)
    for name in ("data", "weights", "teacher"):  # independent of the working directory
        if settings.get(name):
            settings[name] = paths.absolute(settings[name])
    settings["backend"] = keras.backend.backend()
    settings["label_names"] = dataset.class_names
    settings["images"] = dataset.counts
    folder = Path(folder).expanduser()
    file = folder / "config.json"
    try:
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            # The temporary file is that of an interrupted first write.
            ours = {f".{file.name}", *folder_lock.FILES}
            if {path.name for path in folder.iterdir()} - ours:
                raise ValueError(
                    f"`out`: {folder} holds other files. Give an empty or a new folder."
                )
            write_json(file, settings)
            return folder
        saved, current = json.loads(file.read_text()), json.loads(json.dumps(settings))
    except OSError as error:
        raise ValueError(f"`out`: {folder} cannot be used: {error}.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is damaged: {error}. Delete {folder}.") from error
    # A run of an earlier version does not state settings that it did not have.
    defaults = json.loads(json.dumps(default_settings(config)))
    saved = {**{key: defaults[key] for key in current.keys() & defaults}, **saved}
    differing = [
        f"  {key}: {saved.get(key)} there, {current.get(key)} now"
        for key in {**saved, **current}
        if saved.get(key) != current.get(key)
    ]
    if differing:
        raise ValueError(
            f"{folder} holds a training with other settings. Use another folder with "
            "--out, or delete this one. The settings differ in\n" + "\n".join(differing)
        )
    return folder


class Steps(keras.callbacks.Callback):
    """Shows the progress: a bar on a terminal, else lines, and a line per validation.

    A line has the seconds per step of the round, and the time that is left if the next
    steps, validations and saved states take as long as those of this command.

    Args:
        name: Name of the training.
        done: Number of finished steps.
        rounds: Number of rounds.
        round_steps: Steps per round; the training is validated and saved after each.
        parts: Batches of `fit` per step.
    """

    async_safe = True  # Keras calls `on_train_batch_end` in threads: rich has locks
    metric = "accuracy"  # in the logs, printed after the loss
    stopped_early = False  # before this command

    def __init__(self, name, done, rounds, round_steps, parts=1):
        super().__init__()
        self.name, self.done, self.round_steps = name, done, round_steps
        self.parts = parts
        self.total = rounds * round_steps
        self._lock = threading.Lock()
        # (time, finished steps) after the first step, which compiles; of the command,
        # and of the round.
        self._began = self._round_began = None
        self._speed, self._printed_at = "", time.monotonic()
        self.bar = rich.progress.Progress(
            *rich.progress.Progress.get_default_columns(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    @classmethod
    def of(cls, progress) -> "Steps":
        """Returns the callback for a training that `saving.Progress` saves."""
        name = progress.folder.name.replace("_", " ")
        numbers = progress.rounds, progress.round_steps, progress.parts_of_step
        steps = cls(name, progress.step, *numbers)
        steps.stopped_early = progress.stopped_early
        return steps

    def __enter__(self):
        console.rule(self.name)
        if self.stopped_early:
            console.print(f"Stopped early after step {self.done:,} of {self.total:,}.")
        elif self.done == self.total:
            console.print(f"All {self.total:,} steps are done.")
        elif self.done:
            console.print(f"Continues after step {self.done:,} of {self.total:,}.")
        else:
            steps = "1 step" if self.total == 1 else f"{self.total:,} steps"
            console.print(f"{steps}, validated and saved every {self.round_steps:,}.")
        self.task = self.bar.add_task(self.name, total=self.total, completed=self.done)
        self.bar.start()
        return self

    def __exit__(self, *_):
        self.bar.stop()

    def on_epoch_begin(self, epoch, logs=None):
        """Begins to measure the steps of the round."""
        self._round_began = None

    def on_train_batch_end(self, batch, logs=None):
        """Advances the bar, or prints a line if the last one is long ago."""
        if (batch + 1) % self.parts:
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

    def _print(self, step, logs, parts):
        """Prints a line with the metrics of {name of the images: prefix in logs}."""
        metrics = (
            f"{part} loss {logs[f'{key}loss']:.4f}, "
            f"{self.metric.replace('_', ' ')} {logs[key + self.metric]:.2%}"
            for part, key in parts.items()
        )
        padded = f"{step:>{len(f'{self.total:,}')},}"
        line = f"step {padded} of {self.total:,}: {'; '.join(metrics)}{self._speed}"
        console.print(line, highlight=False, soft_wrap=True)
        self._printed_at = time.monotonic()


def counted(images: int) -> str:
    """Returns "1 image" or, for example, "1,234 images"."""
    return f"{images:,} image{'s' if images != 1 else ''}"


def write_json(path: Path, content) -> None:
    """Writes a JSON file atomically."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(content, indent=1))
    replace_file(unfinished, path)


def replace_file(unfinished: Path, path: Path) -> None:
    """Gives a finished file or folder its name, also if the machine then fails.

    It does so atomically. A folder must have a new name.
    """
    for each in [unfinished, *unfinished.rglob("*")]:
        if each.is_file():
            with each.open("r+b") as file:
                os.fsync(file.fileno())
    os.replace(unfinished, path)


def draw_curves(result: dict, path: Path) -> None:
    """Plots loss and accuracy of a training over the steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    rounds = result["history"]
    steps, color = _steps_of_rounds(result), COLORS[result["training"]]
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, quantity in zip(axes, ("loss", "accuracy"), strict=True):
        for key, line, part in (("", "o:", "training"), ("val_", "s-", "validation")):
            values = [logs[key + quantity] for logs in rounds]
            # Markers, because a line with one point is not visible.
            size = 4 if len(rounds) < 10 else 2
            axis.plot(steps, values, line, markersize=size, label=part, color=color)
        if kept := result.get("kept_round"):
            options = {"label": "kept", "color": color, "linestyle": "--"}
            axis.axvline(steps[kept - 1], linewidth=1, **options)
        first = 0
        for stage in result.get("stages", [])[:-1]:
            first += stage["rounds"] * stage["steps_between_validations"]
            axis.axvline(first, color="black", linewidth=0.8, linestyle=":")
        axis.set(xlabel="step", ylabel=quantity)
        axis.set_xlim(left=0)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    if result.get("start"):
        options = {"label": "validation, before", "color": "black", "linestyle": "--"}
        axes[1].axhline(result["start"]["accuracy"], linewidth=1, **options)
    _logarithmic(axes[0])
    axes[1].yaxis.set_major_formatter(PercentFormatter(1.0))
    labels = axes[1].get_legend_handles_labels()
    figure.legend(*labels, loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, path)


def _steps_of_rounds(result):
    """Returns the number of finished steps after each round of all stages."""
    one = {"rounds": len(result["history"]), **result}
    stages = result.get("stages", [one])
    lengths = [
        stage["steps_between_validations"]
        for stage in stages
        for _ in range(stage["rounds"])
    ]
    return [*itertools.accumulate(lengths)]


def _logarithmic(axis):
    """Sets a logarithmic scale with labels such as 0.25 instead of 2.5e-01."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, value, position=None):
            return f"{value:g}" if super().__call__(value, position) else ""

    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(Plain())
    axis.yaxis.set_minor_formatter(Plain())


def save_figure(figure, path: Path) -> None:
    """Writes a figure atomically and closes it."""
    from matplotlib import pyplot

    unfinished = path.with_name(f".{path.name}")
    figure.savefig(unfinished, dpi=120, format="png")
    pyplot.close(figure)
    replace_file(unfinished, path)


def report(*results: dict) -> None:
    """Prints the results of one or more trainings, and the paths of the models."""
    images, start = results[0]["images"], results[0].get("start")
    same = results[0].get("test_is_validation")  # there are no test images
    kind = "Validation" if same else "Test"
    table = Table(title=f"{kind}: {images['test']:,} images ({results[0]['test']})")
    for column in ("", "accuracy", "loss", "training"):
        table.add_column(column, justify="right")
    if start and "linear_test" in start:
        of = f" of {start['test_images']:,}"
        of = of if start["test_images"] < images["test"] else ""
        table.add_row("linear classifier", f"{start['linear_test']:.2%}{of}", "", "")
    for result in results:
        seconds = sum(logs["seconds"] for logs in result["history"])
        row = (
            f"{result['accuracy']:.2%}",
            f"{result['loss']:.4f}",
            f"{seconds:.0f} s",
        )
        table.add_row(result["training"], *row)
        before = result.get("after_stages", [])[:-1]
        for stage, found in zip(result.get("stages", []), before, strict=False):
            row = f"{found['accuracy']:.2%}", f"{found['loss']:.4f}", ""
            table.add_row(f"after {stage['text'].split(',')[0]}", *row)
    console.print(table)
    for result in results:
        _print_paths(result, of=f" {result['training']}" if len(results) > 1 else "")


def _print_paths(result, of):
    folder = result["folder"]
    console.print(
        f"Curves{of}: {folder}/curves.png. The model, to use as\n"
        f'    model = kerasvit.from_pretrained("{folder}/model")\n'
        '    kerasvit.classify(model, "image.png")\n'
        "and to publish with its card as\n"
        f"    hf upload USER/NAME {shlex.quote(folder)}/model",
        soft_wrap=True,
        highlight=False,
    )
    if not result["license"]:
        console.print(
            "Its card states no licence. Before you publish it, add one to the head "
            f"of {folder}/model/README.md, such as `license: apache-2.0`; --license "
            "gives one to a new training.",
            soft_wrap=True,
            highlight=False,
        )
