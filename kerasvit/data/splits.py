"""Parts of a data set, stratified by class: for training, validation and test; shares.

    parts = split(labels, {"validation": 0.1, "test": 0.2})
    numbers = share_of(images, 0.1, seed=0, class_names=["cat", "dog"])

The images of a share are ordered by a hash of seed and name, and the first ones are
chosen. Therefore the choice does not depend on other images, and the images of a
smaller share are among those of a larger one with the same seed.
"""

import hashlib
import math

import numpy as np

from .images import Images

SHARES = {"validation": 0.1, "test": 0.2}  # of every class, without a given split


def with_validation(
    shares: dict[str, float], validation: float | None
) -> dict[str, float]:
    """Returns the shares of a split with another share of validation images, if any.

    Raises:
        ValueError: The shares leave no training images.
    """
    if validation is None:
        return shares
    shares = {**shares, "validation": validation}
    if sum(shares.values()) >= 1:
        test = 1 - shares.get("test", 0.0)
        raise ValueError(
            f"`validation_share`: {validation:g} leaves no training images beside the "
            f"test images. Give less than {test:g}."
        )
    return shares


def split(
    labels: np.ndarray,
    shares: dict[str, float] = SHARES,
    names: list[str] | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Splits examples at random, stratified by class.

    Args:
        labels: Class index of each example.
        shares: {part: share of every class}, at least one example of each class.
        names: Names of the classes for messages, or None.
        seed: Seed of the split. It does not depend on the seed of the training, so that
            all trainings have the same test images.

    Returns:
        {part: indices}, with the remaining examples in "train".

    Raises:
        ValueError: A class has too few examples.
    """
    labels = np.asarray(labels)
    parts: dict[str, list] = {name: [] for name in ("train", *shares)}
    for label in map(int, np.unique(labels)):
        members = np.flatnonzero(labels == label)
        if len(members) <= len(shares):
            name = names[label] if names else label
            raise ValueError(
                f"A class needs {len(shares) + 1} images or more to be split into "
                f"{', '.join(parts)}. Class {name} has {len(members)}."
            )
        members = np.random.default_rng([seed, label]).permutation(members)
        counts = [max(1, round(share * len(members))) for share in shares.values()]
        counts[0] -= max(0, sum(counts) + 1 - len(members))  # one is for training
        *taken, rest = np.split(members, np.cumsum(counts))
        for name, some in zip(parts, [rest, *taken], strict=True):
            parts[name].append(some)
    return {name: np.sort(np.concatenate(chunks)) for name, chunks in parts.items()}


def share_of(
    images: Images, share: float, seed: int, class_names: list[str]
) -> np.ndarray:
    """Returns the numbers of a share of the images of each class.

    So do the trainings of Table 4 of arXiv 2106.01548.

    Args:
        images: The images; records of a stream are read once for their labels.
        share: In (0, 1]; a class of n images keeps the integer nearest to share × n.
        seed: Seed of the choice.
        class_names: Names of the classes.

    Raises:
        ValueError: The share leaves a class without images.
    """
    counts = np.bincount(images.labels, minlength=len(class_names))
    kept = np.floor(share * counts + 0.5).astype(int)
    if np.any(empty := (kept == 0) & (counts > 0)):
        label = int(np.argmin(np.where(empty, counts, np.inf)))
        raise ValueError(
            f"`share`: {share:g} leaves no image of the class {class_names[label]!r}, "
            f"which has {counts[label]:,} for training. Give {_least(counts[label]):g} "
            "or more."
        )
    chosen: list = []
    for label in map(int, np.flatnonzero(kept)):
        members = np.flatnonzero(images.labels == label)
        order = sorted(members, key=lambda i: _rank(seed, images.names[i]))
        chosen.extend(order[: kept[label]])
    return np.sort(chosen)


def _rank(seed: int, name: object) -> bytes:
    # A file's name may hold bytes that are not UTF-8.
    key = f"{seed}/{name}".encode(errors="surrogateescape")
    return hashlib.blake2b(key, digest_size=8).digest()


def _least(count: int) -> float:
    """Returns the smallest share that keeps an image of `count`, rounded up."""
    digits = 2 - math.floor(math.log10(0.5 / count))
    return math.ceil(0.5 / count * 10**digits) / 10**digits
