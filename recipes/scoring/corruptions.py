"""Corrupts images with the functions of tensorflow-datasets.

    pixels = corruptions.corrupt(pixels, "fog", severity=3, number=17)
    problems = corruptions.probe(("fog", "frost"), (224, 224))
    outputs = candidate.outputs(predict, Corrupted(image_set, "fog"))

The functions draw from NumPy's global generator and from one that scikit-image makes.
Here each thread has a copy of their module with one generator, which is seeded for each
image, so that neither threads nor batches change the pixels.
"""

import dataclasses
import functools
import importlib.util
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from command import names

from kerasvit import Preprocessing
from kerasvit.data import Rows

from .catalogue import KINDS, SEVERITIES
from .outputs import relabelled
from .sets import ImageSet

SOURCE = "tensorflow_datasets.image_classification.corruptions"
IMAGEMAGICK = ("magick", "convert")  # programs of versions 7 and 6
FROST = (*(f"frost{i}.png" for i in (1, 2, 3)), *(f"frost{i}.jpg" for i in (4, 5, 6)))
FROST_SOURCE = "github.com/hendrycks/robustness, ImageNet-C/imagenet_c/imagenet_c/frost"


def corrupt(pixels: np.ndarray, kind: str, severity: int, number: int) -> np.ndarray:
    """Returns a corrupted image, uint8 (height, width, 3).

    Args:
        pixels: Image, uint8 (height, width, 3).
        kind: One of `catalogue.KINDS`.
        severity: 1 to 5.
        number: Number of the image. The seed is [number, index of the kind, severity].
    """
    own = _own()
    own.module.FROST_FILENAMES = list(map(str, _frost()))
    own.random.seed([number, KINDS.index(kind), severity])
    # A small image may get no drop of spatter, and is then divided by 0: it is black.
    with np.errstate(divide="ignore", invalid="ignore"):
        return getattr(own.module, kind)(pixels, severity)


@dataclasses.dataclass(frozen=True, eq=False)
class Corrupted:
    """Images of a set with a corruption of all severities.

    Output 5 i + s belongs to the image i with severity s + 1.
    """

    image_set: ImageSet
    kind: str

    def __len__(self):
        return len(SEVERITIES) * len(self.image_set.labels)

    def batches(
        self,
        transform: Preprocessing,
        batch_size: int,
        *,
        normalize: bool = True,
        shard: tuple[int, int] = (0, 1),
        pad: bool = False,
    ) -> tf.data.Dataset:
        """Returns batches (images, numbers[, weights]) of all severities.

        As for ImageNet-C, an image is resized and cropped, rounded to uint8, corrupted,
        and then normalised. It is decoded once. Its seed is its number in the whole
        set, so that a sample of the set has the same pixels.

        Args:
            transform, batch_size, normalize, shard: As for `Images.batches`.
            pad: Likewise; a weight is 1, or 0 for an image that fills a batch.
        """
        rows, versions = Rows.of(batch_size, shard), len(SEVERITIES)
        count = len(self.image_set.labels)
        images = relabelled(self.image_set.images, np.arange(count))
        pad = pad or shard[1] > 1
        shape = (versions, *transform.size, 3)

        def example(item, number):
            corrupted = functools.partial(self._versions, transform, normalize)
            found = tf.numpy_function(
                corrupted, [images.whole(item), number], tf.float32, stateful=False
            )
            weights = (tf.ones(versions),) if pad else ()
            numbers = versions * number + tf.range(versions)
            return tf.ensure_shape(found, shape), numbers, *weights

        examples = images.listed(rows)
        examples = examples.map(example, num_parallel_calls=tf.data.AUTOTUNE)
        if pad:
            zeros = tf.zeros(shape), tf.zeros(versions, tf.int32), tf.zeros(versions)
            missing = -(-count // batch_size) * rows.count - rows.among(count)
            fill = tf.data.Dataset.from_tensors(zeros)
            examples = examples.concatenate(fill.repeat(missing))
        batches = examples.unbatch().batch(rows.count, drop_remainder=pad)
        return batches.prefetch(tf.data.AUTOTUNE)

    def _versions(self, transform, normalize, pixels, number):
        """Returns an image with all severities, as a model takes it."""
        as_it_is = dataclasses.replace(transform, crop=1.0, mode="squash")
        pixels = transform(pixels, normalize=False)
        pixels = np.clip(np.round(pixels), 0, 255).astype("uint8")
        seed = int(self.image_set.numbers[number])
        corrupted = [corrupt(pixels, self.kind, i, seed) for i in SEVERITIES]
        return np.stack([as_it_is(x, normalize=normalize) for x in corrupted])


def probe(kinds: Sequence[str], size: tuple[int, int]) -> dict[str, str]:
    """Returns {kind: reason} of the corruptions that fail for an image of a size."""
    height, width = size
    ramps = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[:, None]
    image = (255 * ramps[0] * ramps[1] * [1, 0.7, 0.4]).astype("uint8")
    found = {kind: _missing(kind) or _failure(image, kind) for kind in kinds}
    return {kind: reason for kind, reason in found.items() if reason}


def _missing(kind):
    """Returns what a corruption needs and does not find; None: nothing."""
    if kind in ("snow", "motion_blur") and not _imagemagick():
        return (
            "needs ImageMagick, which is not installed: there is no program "
            f"{' or '.join(IMAGEMAGICK)}"
        )
    lacking = [path for path in _frost() if not path.is_file()]
    if kind == "frost" and lacking:
        return (
            f"needs {', '.join(path.name for path in lacking)} of {FROST_SOURCE} in "
            f"{lacking[0].parent}"
        )
    return None


def _failure(image, kind):
    try:
        for severity in SEVERITIES:
            found = corrupt(image, kind, severity, 0)
            if found.shape != image.shape or found.dtype != image.dtype:
                return f"returns {found.dtype} {found.shape} for {image.shape}"
    except Exception as error:  # many kinds: of OpenCV, ImageMagick, scikit-image
        return f"{type(error).__name__}: {error!s:.150}"
    return None


def _frost():
    folder = Path(os.path.expanduser(names.data_location())) / "downloads/manual"
    return [folder / name for name in FROST]


def _imagemagick():
    return next(filter(None, map(shutil.which, IMAGEMAGICK)), "")


class _Own(threading.local):
    """A copy of the module of the functions for each thread.

    Attributes:
        random: Generator of the copy, `np.random.RandomState`.
        module: The copy.
    """

    def __init__(self):
        bits = np.random.MT19937()
        self.random = np.random.RandomState(bits)
        spec = importlib.util.find_spec(SOURCE)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.module.np = SimpleNamespace(**vars(np) | {"random": self.random})
        self.module.tfds = _packages(np.random.Generator(bits))
        # Theirs is "imagemagick", which ImageMagick does not install.
        self.module._imagemagick_bin = _imagemagick


def _packages(random):
    """Returns a stand-in for tensorflow-datasets that the copy uses."""
    import tensorflow_datasets

    lazy = tensorflow_datasets.core.lazy_imports
    skimage = SimpleNamespace(
        color=lazy.skimage.color,
        filters=lazy.skimage.filters,
        util=SimpleNamespace(
            random_noise=functools.partial(lazy.skimage.util.random_noise, rng=random)
        ),
    )
    packages = SimpleNamespace(
        cv2=lazy.cv2, scipy=lazy.scipy, PIL_Image=lazy.PIL_Image, skimage=skimage
    )
    return SimpleNamespace(core=SimpleNamespace(lazy_imports=packages))


@functools.cache
def _own():
    return _Own()
