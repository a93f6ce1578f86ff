"""Measures `int8`: exported files of a trained model, quantised by their runtimes.

Each row is the same model, scored on the test images of its training. The calibration
images are of its training images.
"""

import dataclasses
import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from exporting import quantizing, runtime
from exporting.formats import FORMATS
from scoring import candidates, sets

from kerasvit.evaluation import paired_difference

from . import quantization, timing
from .results import Result
from .settings import Config

EXPORT = Path(__file__).parents[1] / "export.py"
KINDS = ("float32", "int8", "int8, calibrated")
COLUMNS = (
    *("MB", "images/s of 1", "/ float32", "images/s of a batch", "/ float32"),
    *("accuracy %", "difference, points", "worst class", "same class %"),
    "slowest operations",
)
PROFILED = 5  # batches


@dataclasses.dataclass(frozen=True)
class Row:
    """A file that is measured.

    Attributes:
        run: Images as the model takes them (count, H, W, C) → logits (count, classes).
        megabytes: Size of the files of the model.
        base: Row that its speed is compared with.
        slowest: The operations that take the longest, with their shares; "" if unknown.
    """

    run: Callable
    megabytes: float
    base: str
    slowest: str = ""


def measure(config: Config, backend: str) -> Result:
    """Exports the model of `config.folder`, quantises the files, times and scores them.

    The columns are the size; the images per second of single images and of batches, the
    median of the rounds, and relative to float32 in the same runtime; the accuracy on
    the test images; its difference from the Keras model in float32 with the paired 95 %
    interval; the largest loss of accuracy of a class; the share of the images with the
    class of the Keras model; and for ONNX the shares of the time of a batch that the
    slowest operations take.
    """
    candidate = candidates.load(config.folder)
    found = training_set(config.folder)
    x, y = arrays(candidate, found.test.images)
    ranges, _ = arrays(candidate, sets.first(found.train, quantizing.MOST))
    batch = np.resize(x, (config.batch_size, *x.shape[1:]))
    with tempfile.TemporaryDirectory() as folder:
        rows = keras_rows(config.folder, backend)
        for name, form in FORMATS.items():
            needed = {**form.modules, **form.quantizer}
            if form.quantizer and all(map(importlib.util.find_spec, needed)):
                rows |= exported(config.folder, name, Path(folder), ranges, batch)
        classes = {
            name: quantization.predicted(row.run, x, config)
            for name, row in rows.items()
        }
        steps = {
            f"{name}, batch {len(images)}": functools.partial(row.run, images)
            for name, row in rows.items()
            for images in (x[:1], batch)
        }
        times = timing.in_turns(steps, config)
    before = next(iter(classes.values()))
    cells = []
    for name, row in rows.items():
        speed = speeds(name, row.base, (1, config.batch_size), times)
        scores = scored(classes[name], before, y)
        cells.append([name, f"{row.megabytes:.1f}", *speed, *scores, row.slowest])
    label = f"{Path(config.folder).name} of {len(y)} images"
    stated = {"model": (label,), "image_size": x.shape[1]}
    stated = dataclasses.replace(config, **stated)
    return Result.of(stated, backend, COLUMNS, cells, times)


def training_set(folder: str) -> sets.TrainingSet:
    """Returns the images of a training, divided as it divided them."""
    training = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    return sets.find_training(training["data"] or training["dataset"], quantizing.MOST)


def arrays(candidate, images) -> tuple[np.ndarray, np.ndarray]:
    """Returns images as a model takes them, float32 (N, H, W, C), and labels (N,)."""
    batches = images.batches(
        candidate.transform, batch_size=64, normalize=candidate.normalize
    )
    pairs = [*batches.as_numpy_iterator()]
    x, y = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return x.astype("float32"), y


def keras_rows(folder: str, backend: str) -> dict[str, Row]:
    """Returns the rows of the Keras model, the first in float32."""
    rows, base = {}, f"Keras, {backend}, float32"
    for policy, name in (("float32", "float32"), ("mixed_bfloat16", "bfloat16")):
        model = quantization.made(folder, policy, None)
        size = model.count_params() * (4 if policy == "float32" else 2) / 1e6
        rows[f"Keras, {backend}, {name}"] = Row(model.predict_on_batch, size, base)
    return rows


def exported(trained, name, folder, ranges, batch) -> dict[str, Row]:
    """Returns the rows of a format: {"onnx, int8": row}, with files below a folder."""
    first, rows = folder / f"{name}-0", {}
    options = ["--format", name, "--inputs", "normalized", "--outputs", "logits"]
    without = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    command = [sys.executable, EXPORT, trained, "--out", first, *options]
    subprocess.run(command, env=without, check=True, stdout=subprocess.DEVNULL)
    for number, kind in enumerate(KINDS):
        path = folder / f"{name}-{number}"
        if number:
            shutil.copytree(first, path)
            quantizing.quantize(name, path, ranges if "calibrated" in kind else None)
        rows[f"{name}, {kind}"] = Row(
            runtime.READERS[name](path),
            sum(each.stat().st_size for each in path.glob("model.*")) / 1e6,
            f"{name}, {KINDS[0]}",
            slowest(path, batch) if name == "onnx" else "",
        )
    return rows


def slowest(folder: Path, batch: np.ndarray, most: int = 3) -> str:
    """Returns the types of operations that take the longest in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = onnxruntime.InferenceSession(folder / FORMATS["onnx"].file, options)
    for _ in range(PROFILED):
        session.run(None, {"image": batch})
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    spent = Counter()
    for event in events:
        if event["name"].endswith("_kernel_time"):
            spent[event["args"]["op_name"]] += event["dur"]
    return ", ".join(
        f"{name} {time / spent.total():.0%}" for name, time in spent.most_common(most)
    )


def speeds(name: str, base: str, counts, times: dict[str, list[float]]) -> list[str]:
    """Returns images per second of each number of images, and beside another row."""
    cells = []
    for count in counts:
        found, other = (times[f"{each}, batch {count}"] for each in (name, base))
        ratio = np.median(timing.ratios(other, found))
        cells += [f"{count / np.median(found):.0f}", f"{ratio:.2f}"]
    return cells


def scored(classes: np.ndarray, before: np.ndarray, y: np.ndarray) -> list[str]:
    """Returns the cells about predicted classes, beside those of the Keras model."""
    hits, earlier = classes == y, before == y
    difference, low, high = paired_difference(earlier, hits)
    worst = min(np.mean(hits[y == i]) - np.mean(earlier[y == i]) for i in np.unique(y))
    return [
        f"{hits.mean():.1%}".rstrip("%"),
        f"{100 * difference:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}]",
        f"{100 * worst:+.1f}",
        f"{np.mean(classes == before):.1%}".rstrip("%"),
    ]
