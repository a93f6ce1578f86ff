"""Reads an export back with its own runtime, and compares it with the Keras model."""

import dataclasses
import importlib.metadata
import importlib.util
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

from . import runtime

BATCH_SIZES = (1, 2, 5, 8, 8, 8)  # 32 images
PHOTO = (20, 500)  # sides of photographs
CHANGED_BATCH = 16  # images of a call to compare quantised files
# Largest difference that passes, as a share of the largest output. Models in other
# precisions round where another order of sums may round otherwise.
ROUNDED = ("mixed_bfloat16", "mixed_float16", "int8", "int4", "float8")
TOLERANCES = dict.fromkeys(ROUNDED, 2e-2)
TOLERANCES["float32"] = 1e-4
# Of trained weights, a number that rounds otherwise changes all that follows, so that
# a quantised model may answer to float32's rounding with more than that. Then it is the
# quadratic means that are compared, where a few images tell more than by their maximum.
ROUNDING = 1e-6  # change of the images, relative to each pixel
DRAWS = 4
MOST_OF_ROUNDING = 2


@dataclasses.dataclass(frozen=True)
class Errors:
    """Differences between an exported model and the Keras model.

    Attributes:
        absolute: Largest difference of an output.
        relative: The same, divided by the largest output.
        batch_sizes: Numbers of images of the calls.
        runtime: Package that read the file, with its version.
        of_rounding: For models with rounded numbers whose largest difference is above
            the tolerance: the quadratic mean of the differences, divided by that which
            a change of the images by 1e-6 causes in the Keras model. Else None.
    """

    absolute: float
    relative: float
    batch_sizes: tuple[int, ...]
    runtime: str
    of_rounding: float | None = None


@dataclasses.dataclass(frozen=True)
class Changes:
    """What the quantiser of a runtime has changed, beside the Keras model.

    Attributes:
        images: Number of images.
        same_class: Share of the images with the same class; None where that says
            nothing, of random images and of outputs that are not of one class.
        difference: Quadratic mean of the differences of the outputs.
        spread: That of the Keras model's outputs from their mean over the images.
    """

    images: int
    same_class: float | None
    difference: float
    spread: float


def check(
    model: keras.Model,
    precision: str,
    name: str,
    folder: Path,
    low: float,
    high: float,
) -> Errors:
    """Returns the differences for random images.

    Args:
        model: The model that was exported; its batch may be of one size.
        precision: Its precision, as of `writing.precision`.
        name: Format.
        folder: Folder with the file.
        low, high: Range of the images' values.

    Raises:
        ValueError: The runtime cannot load or run the file.
    """
    batch, *shape = model.inputs[0].shape
    sizes = BATCH_SIZES
    if batch:
        sizes = (batch,) * math.ceil(sum(BATCH_SIZES) / batch)
    random, batches = np.random.default_rng(0), {}
    sides = {  # one for each batch size: some backends compile for each
        size: [side or int(random.integers(*PHOTO)) for side in shape]
        for size in dict.fromkeys(sizes)
    }
    for i, size in enumerate(sizes):
        images = _images(random, (size, *sides[size]), low, high)
        batches[str(i)] = images.astype(model.inputs[0].dtype)
    expected = {key: _outputs(model, each) for key, each in batches.items()}
    found = _read_back(name, folder, batches)
    for key, outputs in found.items():
        if outputs.shape != expected[key].shape:
            raise ValueError(
                f"`format`: the exported model returns {outputs.shape} where the Keras "
                f"model returns {expected[key].shape}."
            )
    differences = _flat({key: found[key] - expected[key] for key in found})
    largest = float(np.abs(differences).max())
    most = float(np.abs(_flat(expected)).max())
    relative = largest / (most or 1.0)  # a new head returns zeros
    of_rounding = None
    photos = model.inputs[0].dtype == "uint8"  # pixels do not change by rounding
    if precision in ROUNDED and not (relative <= TOLERANCES[precision] or photos):
        own = _differences_by_rounding(model, batches, expected)
        with np.errstate(divide="ignore"):
            of_rounding = float(_quadratic_mean(differences) / _quadratic_mean(own))
    return Errors(largest, relative, sizes, reader(name), of_rounding)


def check_errors(errors: Errors, precision: str) -> None:
    """Raises a `ValueError` if the differences are too large, or not finite."""
    tolerance, ratio = TOLERANCES[precision], errors.of_rounding
    if errors.relative <= tolerance:
        return
    average = ""
    if ratio is not None:
        if ratio <= MOST_OF_ROUNDING:
            return
        average = (
            f" On average it is {ratio:.2g} times what rounding changes; at most "
            f"{MOST_OF_ROUNDING} passes."
        )
    raise ValueError(
        f"`format`: the exported model differs from the Keras model by "
        f"{errors.absolute:.1e}, {errors.relative:.1e} of the largest output, in "
        f"{errors.runtime}; at most {tolerance:.0e} passes.{average} Nothing was "
        "written."
    )


def changes(
    model: keras.Model,
    name: str,
    folder: Path,
    images: np.ndarray,
    of_one_class: bool,
) -> Changes:
    """Returns what a quantised file changes.

    Args:
        model: The Keras model in float32.
        name: Format.
        folder: Folder with the file.
        images: float32 (count, height, width, channels).
        of_one_class: Whether the largest output decides about the images' classes.

    Raises:
        ValueError: The runtime cannot load or run the file, or the outputs are not
            finite.
    """
    each_batch = in_batches(images, model.inputs[0].shape[0] or CHANGED_BATCH)
    batches = {str(i): each for i, each in enumerate(each_batch)}
    expected = {key: _outputs(model, each) for key, each in batches.items()}
    found = _read_back(name, folder, batches)
    before, after = (
        np.concatenate([outputs[key] for key in batches])[: len(images)]
        for outputs in (expected, found)
    )
    if not np.isfinite(after).all():
        raise ValueError(
            f"`dtype`: the outputs of the int8 file are not finite in {reader(name)}. "
            "Take --dtype float32. Nothing was written."
        )
    same = None
    if of_one_class:
        same = float(np.mean(before.argmax(axis=1) == after.argmax(axis=1)))
    spread = _quadratic_mean(before - before.mean(axis=0))
    difference = _quadratic_mean(after - before)
    return Changes(len(before), same, float(difference), float(spread))


def random_images(model: keras.Model, low: float, high: float) -> np.ndarray:
    """Returns images of different brightness and contrast, of a model's size."""
    batch, *shape = model.inputs[0].shape
    count = max(2 * CHANGED_BATCH, batch or 0)
    return _images(np.random.default_rng(0), (count, *shape), low, high)


def in_batches(images: np.ndarray, size: int) -> list[np.ndarray]:
    """Returns batches of one size; the first images again fill the last batch."""
    count = math.ceil(len(images) / size)
    filled = np.resize(images, (count * size, *images.shape[1:]))
    return np.split(filled, count)


def reader(name: str) -> str:
    """Returns the package that reads a format, with its version."""
    for package in runtime.PACKAGES[name]:
        if importlib.util.find_spec(package.replace("-", "_")):
            return f"{package} {importlib.metadata.version(package)}"
    raise LookupError(f"No runtime for {name}: `formats.check` looks for it.")


def _images(random, shape, low, high):
    """Returns images of different brightness and contrast."""
    ends = np.sort(
        random.uniform(low, high, size=(2, shape[0], 1, 1, shape[-1])), axis=0
    )
    return random.uniform(*ends, size=shape).astype("float32")


def _differences_by_rounding(model, batches, expected):
    """Returns the differences of outputs of images that are changed by rounding."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(DRAWS):
        for key, images in batches.items():
            changes = random.normal(scale=ROUNDING, size=images.shape)
            changed = (images * (1 + changes)).astype("float32")
            found.append((_outputs(model, changed) - expected[key]).ravel())
    return np.concatenate(found)


def _flat(outputs):
    return np.concatenate([each.ravel() for each in outputs.values()])


def _quadratic_mean(differences):
    return np.sqrt(np.mean(np.square(differences, dtype="float64")))


def _outputs(model, images):
    return np.asarray(model.predict(images, batch_size=len(images), verbose=0))


def _read_back(name, folder, batches):
    """Returns the outputs that a process without Keras computes."""
    with tempfile.TemporaryDirectory() as temporary:
        inputs, outputs = (f"{temporary}/{each}.npz" for each in ("in", "out"))
        np.savez(inputs, **batches)
        command = [sys.executable, "-P", runtime.__file__, name, str(folder)]
        process = subprocess.run(
            [*command, inputs, outputs],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if process.returncode:
            lines = process.stderr.strip().splitlines() or ["no message"]
            raise ValueError(
                f"`format`: {reader(name)} cannot run the exported model: "
                f"{lines[-1]:.500} Nothing was written."
            )
        with np.load(outputs) as found:
            return {key: found[key] for key in found.files}
