"""Measures `data`: images per second of the recipes' input pipeline, without a model.

Each pipeline reads, decodes and resizes JPEG files and makes batches with one of the
recipes' augmentations. A round times a new iterator and `BATCHES` batches, including
the start of the iterator. Generated photographs have the average size of ImageNet's,
500 × 375 pixels, and are smooth with noise.
"""

import contextlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import command_line
import data
import numpy as np
from batches import AUGMENTATIONS, Indexed, evaluation_batches, training_batches
from PIL import Image

import kerasvit

from .results import Result
from .settings import Config
from .timing import in_turns

AUGMENTED = ("none", "photo", "photo_mixed")
BATCHES = 8  # per round
PHOTOGRAPHS, WIDTH, HEIGHT = 64, 500, 375


def measure(config: Config, backend: str) -> Result:
    """Times training batches with each augmentation, and evaluation batches."""
    with photographs(config) as images:
        times = in_turns(steps(config, images), config)
    count = BATCHES * config.batch_size
    rows = []
    for name, seconds in times.items():
        speeds = [count / each for each in seconds]
        numbers = (statistics.median(speeds), min(speeds), max(speeds))
        rows.append([name, *(f"{number:.0f}" for number in numbers)])
    return Result.of(config, backend, ["median images/s", "least", "most"], rows)


def steps(config: Config, images: Indexed) -> dict[str, Callable]:
    """Returns {name: step}; a step makes the batches of a round."""
    options = {
        "transform": kerasvit.Preprocessing(config.image_size),
        "batch_size": config.batch_size,
        "classes": int(images.labels.max()) + 1,  # one-hot labels, for mixing
    }
    pipelines = {
        f"training, {name}": training_batches(
            images, seed=0, augmentation=AUGMENTATIONS[name], **options
        )
        for name in AUGMENTED
    }
    pipelines["evaluation"] = evaluation_batches(images, **options).repeat()

    def step(pipeline):
        return lambda: [None for _ in pipeline.take(BATCHES)]

    return {name: step(pipeline) for name, pipeline in pipelines.items()}


@contextlib.contextmanager
def photographs(config: Config) -> Iterator[Indexed]:
    """Yields the training images of the given folder, or generated photographs."""
    with tempfile.TemporaryDirectory() as temporary:
        if config.folder:
            with command_line.checking_input():
                images = data.folder(config.folder).train
            yield images
        else:
            paths = [Path(temporary, f"{i}.jpg") for i in range(PHOTOGRAPHS)]
            for seed, path in enumerate(paths):
                generated(seed).save(path, quality=90)
            yield Indexed(paths, np.arange(PHOTOGRAPHS) % 2)


def generated(seed: int) -> Image.Image:
    """Returns a photograph of smooth coloured patches with noise."""
    random = np.random.default_rng(seed)
    patches = random.integers(256, size=(6, 8, 3), dtype="uint8")
    smooth = Image.fromarray(patches).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    noisy = np.asarray(smooth) + random.normal(0, 8, size=(HEIGHT, WIDTH, 1))
    return Image.fromarray(noisy.clip(0, 255).astype("uint8"))
