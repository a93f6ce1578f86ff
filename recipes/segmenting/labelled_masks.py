"""Images with masks: of a folder, or synthetic shapes.

    dataset = labelled_masks.find(config, (64, 64))
    model.fit(labelled_masks.Batches(dataset.train, 16, steps=100, seed=0))

A mask has the class of each pixel, from 0, and `IGNORED` for pixels without one, as in
Pascal VOC. An image is float32 (height, width, channels), from 0 to 255.
"""

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
from PIL import Image

from kerasvit import Preprocessing
from kerasvit.data import SUFFIXES
from kerasvit.preprocessing import read_bands, read_image

IGNORED = 255
SHAPES = ["background", "disc", "square", "triangle"]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Images with masks in two parts.

    Attributes:
        train, validation: Sequences of pairs (image, mask).
        class_names: Names of the classes, in the order of the masks' values.
        name: Name for the folder of the results.
    """

    train: Sequence
    validation: Sequence
    class_names: list[str]
    name: str

    @property
    def counts(self) -> dict[str, int]:
        """Number of images of each part."""
        return {"train": len(self.train), "validation": len(self.validation)}


def find(
    config, size: tuple[int, int], of_model: Preprocessing | None = None
) -> Dataset:
    """Returns the images of the settings, divided at random.

    Args:
        config: `segmentation_settings.Config`.
        size: (height, width) of images and masks, in pixels.
        of_model: Transform of the model, for its channels and values; None: RGB.

    Raises:
        ValueError: An image has no mask, or a mask is wrong.
    """
    of_model = of_model or Preprocessing(size)
    if config.folder:
        root = Path(os.path.expanduser(config.folder))
        found, name = _Folder(root, squashed(of_model, size)), root.resolve().name
        names = found.class_names()
    elif of_model.channels != 3:
        raise ValueError(
            "`data`: the synthetic shapes are RGB, and the weights are for "
            f"{of_model.channels} channels. Give a folder of such images with --data."
        )
    else:
        found = _Shapes(config.images, size, config.seed)
        names, name = SHAPES, "shapes"
    order = np.random.default_rng(config.seed).permutation(len(found))
    held = max(1, round(config.validation_share * len(found)))
    if held >= len(found):
        raise ValueError(
            f"`validation_share`: {held} of {len(found)} images validate, and none is "
            "left to train with. Give more images."
        )
    train, validation = _Part(found, order[held:]), _Part(found, order[:held])
    return Dataset(train, validation, names, name)


class Batches(keras.utils.PyDataset):
    """Random batches without end, half of the images mirrored, in epochs of some.

    Batch n is always the same, so that a training can begin with any batch: it is the
    `data` of `kerasvit.Resume`.

    Args:
        images: Pairs (image, mask).
        batch_size: Number of images.
        steps: Number of batches in an epoch.
        seed: Seed of the order and of what is mirrored.
    """

    def __init__(self, images: Sequence, batch_size: int, steps: int, seed: int):
        super().__init__()
        self.images, self.batch_size = images, batch_size
        self.steps, self.seed, self.first = steps, seed, 0

    def start_at(self, number: int) -> None:
        """Lets the next epoch begin with a batch, counted from 0 over all epochs."""
        self.first = number

    def __len__(self):
        return self.steps

    def __getitem__(self, index):
        number, orders, indices = self.first + index, {}, []
        for place in range(number * self.batch_size, (number + 1) * self.batch_size):
            epoch, i = divmod(place, len(self.images))
            if epoch not in orders:
                random = np.random.default_rng([self.seed, epoch])
                orders[epoch] = random.permutation(len(self.images))
            indices.append(orders[epoch][i])
        x, y = stacked(self.images, indices)
        random = np.random.default_rng([self.seed, 0, number])
        mirrored = random.random(len(x)) < 0.5
        x[mirrored], y[mirrored] = x[mirrored, :, ::-1], y[mirrored, :, ::-1]
        return x, y


def stacked(images: Sequence, indices: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns images (n, height, width, channels) and masks (n, height, width)."""
    with ThreadPoolExecutor() as threads:
        pairs = threads.map(images.__getitem__, indices)
        x, y = zip(*pairs, strict=True)
    return np.stack(x), np.stack(y)


class _Part:
    """The images of a set with some indices."""

    def __init__(self, images, indices):
        self.images, self.indices = images, indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, i):
        return self.images[self.indices[i]]


def squashed(transform: Preprocessing, size: tuple[int, int]) -> Preprocessing:
    """Returns a transform that resizes images without a crop."""
    whole = {"crop": 1.0, "mode": "squash", "kernel": "bicubic", "antialias": True}
    return dataclasses.replace(transform, size=size, **whole)


class _Folder:
    """Images and masks of equal names, resized by a transform without a crop."""

    def __init__(self, root: Path, transform: Preprocessing):
        self.root, self.transform = root, transform
        masks = {path.stem: path for path in sorted((root / "masks").glob("*.png"))}
        images = [p for p in sorted((root / "images").iterdir())]
        images = [path for path in images if path.suffix.lower() in SUFFIXES]
        if missing := [p.name for p in images if p.stem not in masks]:
            raise ValueError(
                f"`data`: {len(missing)} of {len(images)} images have no mask of the "
                f"same name in {root / 'masks'}, such as {missing[0]}. Masks are .png "
                "files."
            )
        if len(images) < 2:
            raise ValueError(
                f"`data`: {root / 'images'} must hold at least 2 images. Extensions: "
                f"{', '.join(sorted(SUFFIXES))}."
            )
        self.pairs = [(path, masks[path.stem]) for path in images]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        file, mask_file = self.pairs[i]
        width_first = self.transform.size[::-1]
        mask = read_mask(mask_file).resize(width_first, Image.Resampling.NEAREST)
        return self.transform(file, normalize=False), np.asarray(mask, "int32")

    def class_names(self) -> list[str]:
        """Returns the lines of classes.txt, or numbers up to the largest class.

        Raises:
            ValueError: An image or a mask is wrong; all are read.
        """
        with ThreadPoolExecutor() as threads:
            masks = threads.map(self._classes, range(len(self)))
            classes = np.unique(np.concatenate(list(masks)))
        largest = int(classes[classes != IGNORED].max(initial=0))
        file = self.root / "classes.txt"
        if not file.is_file():
            return [str(i) for i in range(max(largest + 1, 2))]
        names = file.read_text(encoding="utf-8").split("\n")
        names = [name.strip() for name in names if name.strip()]
        if largest >= len(names) or len(names) < 2:
            raise ValueError(
                f"`data`: {file} must name the classes of the masks, 0 to {largest}, "
                f"one per line, and at least two. Received: {len(names)} names."
            )
        return names

    def _classes(self, i):
        """Returns the classes of a mask, after checking it and its image."""
        file, mask_file = self.pairs[i]
        mask, transform = read_mask(mask_file), self.transform
        if transform.channels == 3:
            size = read_image(file).size
        else:
            bands = read_bands(file, transform.channels, transform.value_range)
            size = bands.shape[1::-1]
        if size != mask.size:
            raise ValueError(
                f"`data`: {mask_file} must have the size of its image, {size}. "
                f"Received: {mask.size}."
            )
        return np.unique(mask)


def read_mask(path: Path) -> Image.Image:
    """Reads a mask, whose pixels are class indices.

    Raises:
        ValueError: It has no single channel of 8 bits, or is damaged.
    """
    try:
        mask = Image.open(path)
        if mask.mode in ("L", "P"):
            # A palette's indices are the classes; `convert` would give their colours.
            return Image.fromarray(np.asarray(mask, "uint8"))
    except OSError as error:  # of Pillow, for damaged files
        raise ValueError(f"`data`: {path} cannot be read: {error}.") from error
    raise ValueError(
        f"`data`: {path} must have one channel of 8 bits, the index of the class of "
        f"each pixel, {IGNORED} for none. Received: mode {mask.mode!r}."
    )


class _Shapes:
    """Reddish discs, greenish squares and bluish triangles on gradients, with noise.

    Shapes have a random place, size, rotation and brightness, and lie over earlier
    ones.
    """

    def __init__(self, count: int, size: tuple[int, int], seed: int):
        self.count, self.size, self.seed = count, size, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        random = np.random.default_rng([self.seed, 1, i])
        height, width = self.size
        y, x = np.mgrid[:height, :width] / max(self.size)
        grey, down, across = random.uniform(40, 215, (3, 1))  # of the background
        image = grey + (y - 0.5)[..., None] * down + (0.5 - x)[..., None] * across
        image = image * np.ones(3)
        mask = np.zeros(self.size, "int32")
        for _ in range(random.integers(1, 4)):
            kind = int(random.integers(1, len(SHAPES)))
            inside = _inside(kind, x, y, random)
            color = random.uniform(20, 140, 3)
            color[kind - 1] += 110
            image[inside], mask[inside] = color, kind
        image = image + random.normal(0, 12, image.shape)
        return np.clip(image, 0, 255).astype("float32"), mask


def _inside(kind, x, y, random):
    """Whether each pixel is in a shape of random place, size and rotation."""
    radius, angle = random.uniform(0.12, 0.24), random.uniform(0, 2 * np.pi)
    x = x - random.uniform(0.15, x.max() - 0.15)
    y = y - random.uniform(0.15, y.max() - 0.15)
    if kind == 1:
        return np.hypot(x, y) < radius
    edges = {2: 4, 3: 3}[kind]
    normals = angle + 2 * np.pi * np.arange(edges) / edges
    inner = radius * np.cos(np.pi / edges)  # from the centre to an edge
    return np.all([np.cos(a) * x + np.sin(a) * y < inner for a in normals], axis=0)
