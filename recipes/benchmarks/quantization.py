"""Measures `quantization`: size, speed and accuracy of a trained model with few bits.

Each row is the same model, loaded from the folder of a training and scored on the test
images of that training.
"""

import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
from reporting import settings as inspection_settings
from reporting import subjects
from scoring.candidates import weights_of

import kerasvit

from . import timing
from .results import Result
from .settings import Config

FORMATS = {  # row: policy, argument of `quantize`, dtype of the other weights in a file
    "float32": ("float32", None, None),
    "bfloat16": ("mixed_bfloat16", None, "bfloat16"),
    "int8": ("float32", "int8", None),
    "int8, bfloat16": ("mixed_bfloat16", "int8", "bfloat16"),
    "int4": ("float32", "int4", None),
}
COLUMNS = ("MB", "of them quantised", "images/s", "/ float32", "accuracy %", "agree %")


def measure(config: Config, backend: str) -> Result:
    """Saves, times and scores the model of `config.folder` in each format.

    The columns are the size of the file of tensors; the share of its bytes that are of
    quantised layers; images per second in the fastest round, and relative to float32;
    the accuracy on the test images; and the share of them with the class of float32.
    """
    subject = load(config.folder)
    models = {name: made(config.folder, *of[:2]) for name, of in FORMATS.items()}
    sizes = {name: size(models[name], of[2]) for name, of in FORMATS.items()}
    classes = {
        name: predicted(model.predict_on_batch, subject.x, config)
        for name, model in models.items()
    }
    batch = np.resize(subject.x, (config.batch_size, *subject.x.shape[1:]))
    steps = {name: lambda m=m: m.predict_on_batch(batch) for name, m in models.items()}
    times = timing.in_turns(steps, config)
    rows = []
    for name, seconds in times.items():
        rows.append(
            [
                name,
                f"{sizes[name] / 1e6:.2f}",
                f"{quantized_share(models[name]):.0%}",
                f"{config.batch_size / min(seconds):.0f}",
                f"{min(times['float32']) / min(seconds):.2f}",
                f"{100 * np.mean(classes[name] == subject.y):.1f}",
                f"{100 * np.mean(classes[name] == classes['float32']):.1f}",
            ]
        )
    label = f"{subject.builder} {Path(config.folder).name} of {len(subject.y)} images,"
    stated = {"model": (label,), "image_size": subject.x.shape[1]}
    stated = dataclasses.replace(config, **stated)
    return Result.of(stated, backend, COLUMNS, rows, times)


def load(folder: str) -> subjects.Subject:
    """Returns the model of a training and its test images."""
    training = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    images = training["data"] or training["dataset"]
    every = inspection_settings.Config((folder,), images, images=None, batch_size=64)
    return subjects.load(every)[0]


def made(folder: str, policy: str, mode: str | None) -> keras.Model:
    """Returns the model of a training with a dtype policy, quantised or not."""
    model = kerasvit.from_pretrained(weights_of(folder), dtype=policy)
    if mode:
        model.quantize(mode)
    return model


def predicted(run: Callable, x: np.ndarray, config: Config) -> np.ndarray:
    """Returns the classes of images, computed in the batches that are timed."""
    count = -(-len(x) // config.batch_size)
    batches = np.resize(x, (count, config.batch_size, *x.shape[1:]))
    logits = np.concatenate([np.asarray(run(batch)) for batch in batches])
    return logits[: len(x)].argmax(-1)


def size(model: keras.Model, dtype: str | None) -> int:
    """Returns the bytes of the file that `save_pretrained` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = kerasvit.save_pretrained(model, folder, dtype=dtype)
        return (path / "model.safetensors").stat().st_size


def quantized_share(model: keras.Model) -> float:
    """Returns the share of the bytes of a model that are of quantised layers."""
    rows = kerasvit.weight_formats(model)
    quantized = sum(row.bytes for row in rows if not row.reason)
    return quantized / sum(row.bytes for row in rows)
