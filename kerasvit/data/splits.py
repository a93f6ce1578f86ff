"""Parts of a data set, stratified by class: for training, validation and test; shares.

    parts = split(labels, {"validation": 0.1, "test": 0.2})
    numbers = share_of(images, 0.1, seed=0, class_names=["cat", "dog"])

The images of a share are ordered by a hash of seed and name, and the first ones are
chosen. Therefore the choice does not depend on other images, and the images of a
smaller share are among those of a larger one with the same seed.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from .images import Images

_ATTEMPTS = 100  # orders of groups with which a split is tried
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
    if not validation > 0:
        raise ValueError(
            "`validation_share` must be above 0: training, scoring and calibration "
            f"need validation images. Received: {validation:g}."
        )
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
    *,
    groups: Sequence[str | None] | None = None,
) -> dict[str, np.ndarray]:
    """Splits examples at random, stratified by class.

    Args:
        labels: Class index of each example; or, of several labels, 0 and 1 (examples,
            classes).
        shares: {part: share of every class}, at least one example of each class; of
            several labels, of each class with as many examples as parts.
        names: Names of the classes for messages, or None.
        seed: Seed of the split. It does not depend on the seed of the training, so that
            all trainings have the same test images.
        groups: Names of groups, which are not divided; None for an example alone.

    Returns:
        {part: indices}, with the remaining examples in "train".

    Raises:
        ValueError: A class has too few examples or groups.
    """
    labels = np.asarray(labels)
    if groups is not None or labels.ndim == 2:
        return _split_groups(labels, shares, names, seed, groups)
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


def _split_groups(
    labels: np.ndarray,
    shares: dict[str, float],
    names: list[str] | None,
    seed: int,
    groups: Sequence[str | None] | None,
) -> dict[str, np.ndarray]:
    """Splits examples of several labels, or in groups; else like `split`."""
    if labels.ndim == 1:
        labels = labels[:, None] == np.arange(labels.max() + 1)
    named = groups or [None] * len(labels)
    keys = [i if key is None else key for i, key in enumerate(named)]
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    group = np.array([numbers[key] for key in keys])
    table = np.zeros((len(numbers), labels.shape[1]), int)
    np.add.at(table, group, labels.astype(int))
    parts = ("train", *shares)
    wanted = _wanted(table.sum(axis=0), [*shares.values()])
    few = (wanted > 0).all(axis=0) & ((table > 0).sum(axis=0) < len(parts))
    if few.any():
        label = int(np.argmax(few))
        raise ValueError(
            f"The images of class {names[label] if names else label} are in "
            f"{(table[:, label] > 0).sum()} groups, and {', '.join(parts)} need one "
            "each. Give smaller groups, or a column `split`."
        )
    sizes = np.bincount(group)
    for attempt in range(_ATTEMPTS):
        random = np.random.default_rng([seed, attempt])
        # The largest groups first is the best order, but does not always give a split.
        first = sizes if 2 * attempt < _ATTEMPTS else 0 * sizes
        chosen = _stratified(table, sizes, first, wanted, [*shares.values()], random)
        held = np.stack([table[chosen == i].sum(0) for i in range(len(parts))])
        if not (lacking := (held == 0) & (wanted > 0)).any():
            found = chosen[group]
            return {name: np.flatnonzero(found == i) for i, name in enumerate(parts)}
    part, label = np.argwhere(lacking)[0]
    raise ValueError(
        f"No split was found with which each of {', '.join(parts)} has all classes: "
        f"{parts[part]} has no image of class {names[label] if names else label}. Give "
        "more images, smaller groups if there are any, or a column `split`."
    )


def _wanted(counts: np.ndarray, shares: list[float]) -> np.ndarray:
    """Returns how many examples of each class a part is to have, (parts, classes)."""
    rounded = [np.maximum(1, np.round(share * counts)) for share in shares]
    found = np.where(counts > len(shares), np.array(rounded, int), 0)
    found[0] -= np.maximum(0, found.sum(axis=0) + 1 - counts)
    found = np.maximum(found, 0)
    return np.concatenate([counts[None] - found.sum(axis=0), found])


def _stratified(
    table: np.ndarray,
    sizes: np.ndarray,
    rank: np.ndarray,
    wanted: np.ndarray,
    shares: list[float],
    random: np.random.Generator,
) -> np.ndarray:
    """Returns the number of each group's part, (groups,).

    The class with the fewest examples that are left is first. Its groups go to a part
    that has no such example, then to that which lacks most of them (Sechidis et al.
    2011, On the Stratification of Multi-Label Data, algorithm 1).

    Args:
        table: Number of examples of each class in a group, (groups, classes).
        sizes: Number of examples of each group.
        rank: Groups with a larger number are placed before others of their class.
        wanted: Result of `_wanted`.
        shares: Shares of the parts but the first.
        random: Generator of the order.
    """
    left, must = wanted.copy(), wanted > 0
    room = np.array([1 - sum(shares), *shares]) * sizes.sum()
    chosen = np.full(len(table), -1)
    order = random.permutation(len(table))
    order = order[np.argsort(-rank[order], kind="stable")]

    def place(unit: int, label: int | None) -> None:
        keys = [room] if label is None else [room, left[:, label], must[:, label]]
        part = np.lexsort(keys)[-1]
        chosen[unit] = part
        left[part] -= table[unit]
        room[part] -= sizes[unit]
        must[part] &= table[unit] == 0

    remaining = table.sum(axis=0)
    while remaining.any():
        label = int(np.argmin(np.where(remaining > 0, remaining, np.inf)))
        members = order[(chosen[order] < 0) & (table[order, label] > 0)]
        for unit in members:
            place(unit, label)
        remaining = remaining - table[members].sum(axis=0)
    for unit in order[chosen[order] < 0]:
        place(unit, None)
    return chosen


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
    if images.has_several_labels:
        return _share_of_several(images, share, seed, class_names)
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


def _share_of_several(
    images: Images, share: float, seed: int, class_names: list[str]
) -> np.ndarray:
    """Returns the numbers of a share of all images; else like `share_of`."""
    order = sorted(range(len(images)), key=lambda i: _rank(seed, images.names[i]))
    chosen = np.sort(order[: max(1, math.floor(share * len(images) + 0.5))])
    counts = images.labels.sum(axis=0)
    if np.any(empty := (images.labels[chosen].sum(axis=0) == 0) & (counts > 0)):
        label = int(np.argmax(empty))
        raise ValueError(
            f"`share`: {share:g} leaves no image of the class {class_names[label]!r}, "
            f"which has {counts[label]:,} for training. Give a larger one."
        )
    return chosen


def _rank(seed: int, name: object) -> bytes:
    # A file's name may hold bytes that are not UTF-8.
    key = f"{seed}/{name}".encode(errors="surrogateescape")
    return hashlib.blake2b(key, digest_size=8).digest()


def _least(count: int) -> float:
    """Returns the smallest share that keeps an image of `count`, rounded up."""
    digits = 2 - math.floor(math.log10(0.5 / count))
    return math.ceil(0.5 / count * 10**digits) / 10**digits
