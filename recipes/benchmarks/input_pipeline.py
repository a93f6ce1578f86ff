"""Measures `data`: images per second of the recipes' input pipeline.

Each pipeline reads, decodes and resizes JPEG files and makes batches with one of the
recipes' augmentations. It is compared with decoding alone of the same files, by
tf.io.decode_jpeg on all cores, and with a training step of a model, which needs as many
images per second. A round times `IMAGES` images of a new iterator, after its first
batch, before which TensorFlow optimises the pipeline once. The CPU time of the process
is that of all its threads; it hardly depends on other programs.
"""

import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from command import command_line
from PIL import Image

import kerasvit
from kerasvit.data import IndexedImages, TrainingImages

from .keras_steps import batch, kerasvit_model, kerasvit_step
from .results import Result
from .settings import Config
from .timing import in_turns, ratios

DECODING = "decoding alone"
AUGMENTED = ("none", "photo", "photo_mixed")
IMAGES = 400  # per round
WIDTH, HEIGHT, QUALITY = 500, 375, 90  # of the photographs
COLUMNS = ("median images/s", "least", "most", "/ decoding", "CPU ms", "/ decoding")


def measure(config: Config, backend: str) -> Result:
    """Times training and evaluation batches, decoding alone and a training step."""
    count = batches(config) * config.batch_size
    with files(config) as images:
        times = timed(pipelines(config, images), config)
    wall, cpu = ({k: [t[i] for t in v] for k, v in times.items()} for i in range(2))
    rows = [
        [*row(name, count, wall[name], wall[DECODING]), *cpu_cells(count, each, cpu)]
        for name, each in cpu.items()
    ]
    train = dataclasses.replace(config, what="train")
    step = kerasvit_step(train, kerasvit_model(train), *batch(train))
    seconds = {k: [each / batches(config) for each in v] for k, v in wall.items()}
    name = f"training step, {config.name}"
    seconds |= in_turns({name: step}, config)
    rows.append(row(name, config.batch_size, seconds[name])[:-1])
    return Result.of(config, backend, COLUMNS, rows, seconds)


def row(name: str, count: int, seconds: list[float], decoding=None) -> list[str]:
    """Returns the cells of a row: speeds, and the ratio to decoding per round."""
    speeds = [count / each for each in seconds]
    numbers = (statistics.median(speeds), min(speeds), max(speeds))
    ratio = statistics.median(ratios(decoding or seconds, seconds))
    return [name, *(f"{number:.0f}" for number in numbers), f"{ratio:.2f}"]


def cpu_cells(count: int, seconds: list[float], all_seconds: dict) -> list[str]:
    """Returns CPU milliseconds for each image, and the ratio to decoding per round."""
    ratio = statistics.median(ratios(all_seconds[DECODING], seconds))
    return [f"{1000 * statistics.median(seconds) / count:.2f}", f"{ratio:.2f}"]


def timed(pipelines: dict, config: Config) -> dict[str, list[tuple[float, float]]]:
    """Returns {name: (seconds, CPU seconds) of each round}, measured in turns."""
    times = {name: [] for name in pipelines}
    for turn in range(config.warmup + config.rounds):
        for name, pipeline in pipelines.items():
            seconds = round_of(pipeline, batches(config))
            if turn >= config.warmup:
                times[name].append(seconds)
    return times


def round_of(pipeline: tf.data.Dataset, count: int) -> tuple[float, float]:
    """Returns seconds and CPU seconds of `count` batches after the first."""
    iterator = iter(pipeline)
    next(iterator)
    start = time.perf_counter(), time.process_time()
    for _ in range(count):
        next(iterator)
    return time.perf_counter() - start[0], time.process_time() - start[1]


def batches(config: Config) -> int:
    """Returns the number of batches of a round."""
    return -(-IMAGES // config.batch_size)


def pipelines(config: Config, images: IndexedImages) -> dict[str, tf.data.Dataset]:
    """Returns {name: endless batches}."""
    options = {
        "model": kerasvit.Preprocessing(config.image_size),
        "batch_size": config.batch_size,
        "classes": int(images.labels.max()) + 1,  # one-hot labels, for mixing
    }
    made = {DECODING: decoded(images).batch(config.batch_size)}
    for name in AUGMENTED:
        with command_line.checking_input():  # a batch larger than the folder
            train = TrainingImages(images).batches(augment=name, **options)
        made[f"training, {name}"] = train.repeat()
    made["evaluation"] = images.batches(**options).repeat()
    return made


def decoded(images: IndexedImages) -> tf.data.Dataset:
    """Returns the shapes of the JPEG files, decoded endlessly.

    Raises:
        command_line.BadInput: There are no JPEG files.
    """

    def encoded(item, label):
        return images.encoded(item)

    def shape(content):
        return tf.shape(tf.io.decode_jpeg(content))

    files = images.listed().map(encoded, num_parallel_calls=tf.data.AUTOTUNE)
    jpegs = files.filter(tf.io.is_jpeg)
    with command_line.checking_input():
        if not any(True for _ in jpegs.take(1)):
            raise ValueError("`folder`: there are no JPEG files among its images.")
    return jpegs.repeat().map(shape, num_parallel_calls=tf.data.AUTOTUNE)


@contextlib.contextmanager
def files(config: Config) -> Iterator[IndexedImages]:
    """Yields the training images of the given folder, or photographs."""
    with tempfile.TemporaryDirectory() as temporary:
        if config.folder:
            with command_line.checking_input():
                images = kerasvit.data.from_folder(config.folder).train.images
            yield images
        else:
            paths = write_photographs(temporary, IMAGES)
            yield IndexedImages(paths, np.arange(len(paths)) % 2)


def write_photographs(folder: str | Path, count: int) -> list[Path]:
    """Writes `count` JPEG files and returns their paths; the same ones each time.

    They have the average size of ImageNet's photographs, and are cut from those that
    scikit-learn and scikit-image install.
    """
    photographs = [Image.fromarray(pixels) for pixels in installed_photographs()]
    random = np.random.default_rng(0)
    paths = [Path(folder, f"{i}.jpg") for i in range(count)]
    for i, path in enumerate(paths):
        photograph = photographs[i % len(photographs)]
        largest = min(photograph.width / WIDTH, photograph.height / HEIGHT)
        scale = largest * random.uniform(0.6, 1)
        width, height = scale * WIDTH, scale * HEIGHT
        x = random.uniform(0, photograph.width - width)
        y = random.uniform(0, photograph.height - height)
        cut = photograph.resize(
            (WIDTH, HEIGHT), Image.Resampling.BICUBIC, (x, y, x + width, y + height)
        )
        cut.save(path, quality=QUALITY)
    return paths


def installed_photographs() -> list[np.ndarray]:
    """Returns the colour photographs of both packages, uint8 (height, width, 3)."""
    import skimage.data
    import sklearn.datasets

    return [
        *sklearn.datasets.load_sample_images().images,
        skimage.data.astronaut(),
        skimage.data.chelsea(),
        skimage.data.coffee(),
        skimage.data.rocket(),
    ]
