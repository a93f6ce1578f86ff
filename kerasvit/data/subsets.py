"""Chooses a share of the training images, as Table 4 of arXiv 2106.01548 does.

    some = share_of(images, 0.1, seed=0, label_names=["cat", "dog"])

The images of a class are ordered by a hash of seed and name, and the first ones are
chosen. Therefore the choice does not depend on other images, and the images of a
smaller share are among those of a larger one with the same seed.
"""

import hashlib
import math

import numpy as np


def share_of(images, share: float, seed: int, label_names: list[str]):
    """Returns a share of the images of each class.

    Args:
        images: `Indexed`; or `Streamed`, whose records are read once for their labels.
        share: In (0, 1]; a class of n images keeps the integer nearest to share × n.
        seed: Seed of the choice.
        label_names: Names of the classes.

    Raises:
        ValueError: The share leaves a class without images.
    """
    counts = np.bincount(images.labels, minlength=len(label_names))
    kept = np.floor(share * counts + 0.5).astype(int)
    if np.any(empty := (kept == 0) & (counts > 0)):
        label = np.argmin(np.where(empty, counts, np.inf))
        raise ValueError(
            f"`share`: {share:g} leaves no image of the class {label_names[label]!r}, "
            f"which has {counts[label]:,} for training. Give {_least(counts[label]):g} "
            "or more."
        )
    chosen = []
    for label in np.flatnonzero(kept):
        members = np.flatnonzero(images.labels == label)
        order = sorted(members, key=lambda i: _rank(seed, images.names[i]))
        chosen.extend(order[: kept[label]])
    return images.part(np.sort(chosen))


def _rank(seed, name):
    # A file's name may hold bytes that are not UTF-8.
    key = f"{seed}/{name}".encode(errors="surrogateescape")
    return hashlib.blake2b(key, digest_size=8).digest()


def _least(count):
    """Returns the smallest share that keeps an image of `count`, rounded up."""
    digits = 2 - math.floor(math.log10(0.5 / count))
    return math.ceil(0.5 / count * 10**digits) / 10**digits
