"""Splits labelled examples at random, stratified by class."""

import numpy as np

SHARES = {"validation": 0.1, "test": 0.2}  # of every class, without a given split


def with_validation(shares: dict, validation: float | None) -> dict:
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


def split(labels, shares=SHARES, names=None, seed=0) -> dict[str, np.ndarray]:
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
    parts = {name: [] for name in ("train", *shares)}
    for label in np.unique(labels):
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
