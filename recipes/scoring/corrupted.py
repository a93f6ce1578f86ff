"""Scores models on corrupted images: a task for each model, set and corruption.

group = corrupted.find("c", catalogue.PUBLISHED)            # or "cifar10_corrupted"
group = corrupted.find("CIFAR-100-C/", catalogue.KINDS)     # .npy files
image_set = group.open("fog", 3)
"""

import dataclasses
import functools
import hashlib
import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from command import command_line

from kerasvit.data import IndexedImages, tfds_builder

from . import catalogue, corruptions, results, sets
from .accuracy import match_classes, scored
from .candidates import Candidate
from .catalogue import CIFAR10, CIFAR100, SEVERITIES, chosen_kinds

SOFTWARE = ("cv2", "skimage", "scipy", "PIL", "tensorflow_datasets")  # makes the pixels
LABELS = "labels.npy"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured, and what is not.

    Attributes:
        tasks: `results.Task` of each model, set and corruption. Each has the parts
            "severity 1" to "severity 5", and "severity 1, restricted" and so on if not
            all classes of the model occur.
        left_out: {(name of a model, name of a set): {corruption: reason}}.
        clean: {name of a set: name of the same images without corruption}.
    """

    tasks: list[results.Task]
    left_out: dict[tuple[str, str], dict[str, str]]
    clean: dict[str, str]

    @property
    def notes(self) -> list[str]:
        """Lines about the corruptions that are left out, with the reasons."""
        lines = [
            f"{name}, corruptions that are left out of the mean: {listed(reasons)}."
            for (_, name), reasons in self.left_out.items()
            if reasons
        ]
        return list(dict.fromkeys(lines))


@dataclasses.dataclass(frozen=True)
class Group:
    """The same images with corruptions of several kinds and severities.

    Attributes:
        name: Name in the tables.
        clean: Name of the set of these images without corruption, or "".
        kinds: The corruptions.
        missing: {corruption: reason} of those that were asked for and are not there.
        opener: Function of a kind and a severity that returns a `sets.ImageSet`.
        images: At most so many images of each; None: all.
    """

    name: str
    clean: str
    kinds: tuple[str, ...]
    missing: dict[str, str]
    opener: Callable[[str, int], sets.ImageSet]
    images: int | None = None

    @functools.cached_property
    def first(self) -> sets.ImageSet:
        """The images of the first kind with severity 1."""
        found = self.opener(self.kinds[0], SEVERITIES[0]).sample(self.images)
        return dataclasses.replace(found, name=self.name)

    def open(self, kind: str, severity: int) -> sets.ImageSet:
        """Returns the images of a kind and a severity.

        Raises:
            ValueError: Their labels are not those of `first`, in the same order.
        """
        found = self.opener(kind, severity).sample(self.images)
        if list(map(list, found.labels)) != list(map(list, self.first.labels)):
            raise ValueError(
                f"`on`: {kind} of severity {severity} of {self.name} must have the "
                f"labels of {self.kinds[0]}, in the same order. Prepare the set again."
            )
        return found

    def sample(self, count: int | None) -> "Group":
        """Returns `count` of the images, always the same; None: all."""
        return dataclasses.replace(self, images=count)


def plan(
    candidates: Sequence[Candidate],
    image_sets: Sequence[sets.ImageSet],
    groups: Sequence[Group],
    kinds: Sequence[str],
) -> Plan:
    """Tries the corruptions of the kinds, of `image_sets`, and returns the tasks.

    Raises:
        ValueError: All corruptions fail, or a model has none of the classes of a set.
    """
    if not kinds:
        image_sets = ()
    sizes = {each.transform.size for each in candidates if image_sets}
    problems = {size: corruptions.probe(kinds, size) for size in sizes}
    for size, reasons in problems.items():
        if len(reasons) == len(kinds):
            raise ValueError(
                f"`corrupt`: all corruptions fail for images of {size[0]} × {size[1]} "
                f"pixels. {listed(reasons)}."
            )
    tasks, left_out = [], {}
    for candidate in candidates:
        for image_set in image_sets:
            reasons = problems[candidate.transform.size]
            left_out[candidate.name, image_set.name] = reasons
            accepted = [kind for kind in kinds if kind not in reasons]
            tasks += [_of_set(candidate, image_set, kind) for kind in accepted]
        for group in groups:
            left_out[candidate.name, group.name] = group.missing
            tasks += [_of_group(candidate, group, kind) for kind in group.kinds]
    clean = {each.name: each.name for each in image_sets}
    return Plan(tasks, left_out, clean | {each.name: each.clean for each in groups})


def listed(reasons: dict[str, str]) -> str:
    """Returns corruptions with their reasons as text."""
    return "; ".join(f"{kind}: {reason}" for kind, reason in reasons.items())


def _of_set(candidate, image_set, kind):
    """Returns the task of a corruption that is computed here."""
    match = match_classes(image_set, candidate)

    def outputs(predict):
        found = candidate.outputs(predict, corruptions.Corrupted(image_set, kind))
        found = found.reshape(len(match.labels), len(SEVERITIES), -1)
        return np.moveaxis(found, 1, 0)

    numbers = image_set.numbers.astype("int64")
    settings = results.settings(candidate, image_set) | {
        "seeds": hashlib.sha256(numbers.tobytes()).hexdigest(),
        "packages": {
            name: importlib.import_module(name).__version__ for name in SOFTWARE
        },
    }
    compute = functools.partial(_compute, outputs, match)
    return results.Task(candidate, image_set.name, kind, settings, compute)


def _of_group(candidate, group, kind):
    """Returns the task of a corruption of a published set."""
    match = match_classes(group.first, candidate)

    def outputs(predict):
        for severity in SEVERITIES:
            with command_line.checking_input():
                image_set = group.open(kind, severity)
            yield candidate.outputs(predict, image_set.images)

    settings = results.settings(candidate, group.first)
    compute = functools.partial(_compute, outputs, match)
    return results.Task(candidate, group.name, kind, settings, compute)


def _compute(outputs, match, predict):
    """Returns what `accuracy.scored` does, with the parts of all severities."""
    parts, right = {}, {}
    for severity, found in zip(SEVERITIES, outputs(predict), strict=True):
        with command_line.checking_input():
            fields = scored(found, match)
        for part, numbers in fields["parts"].items():
            name = part_name(severity, part)
            parts[name], right[name] = numbers, fields["right"][part]
    return fields | {"parts": parts, "right": right}


def part_name(severity: int, part: str) -> str:
    """Returns the name of a part for a severity and a part of `accuracy.scored`."""
    return f"severity {severity}" if part == "all" else f"severity {severity}, {part}"


def is_group(name: str) -> bool:
    """Whether a name is that of a `Group`: of `catalogue.CORRUPTED`, or a folder."""
    if (path := Path(os.path.expanduser(name))).exists():
        return (path / LABELS).is_file()
    return catalogue.ALIASES.get(name, name) in catalogue.CORRUPTED


def find_all(names: Sequence[str], kinds: Sequence[str]) -> dict[str, Group]:
    """Returns the groups among names of sets; without kinds the published ones.

    Raises:
        ValueError: As for `find` and `catalogue.chosen_kinds`.
    """
    wanted = chosen_kinds(kinds or ("published",))
    return {name: find(name, wanted) for name in names if is_group(name)}


def find(name: str, kinds: Sequence[str]) -> Group:
    """Opens a set.

    Args:
        name: Name or alias of `catalogue.CORRUPTED`; or a folder of `labels.npy`, class
            indices (5 n,), and a file `KIND.npy` for each kind, uint8 (5 n, height,
            width, 3), with n images of severity 1, then the same of severity 2, and so
            on: CIFAR-10-C and CIFAR-100-C of github.com/hendrycks/robustness.
        kinds: The corruptions that are wanted.

    Raises:
        ValueError: None of the kinds is there, or a file is not as above.
    """
    folder = Path(os.path.expanduser(name))
    group = _folder(folder, kinds) if folder.exists() else _published(name, kinds)
    if not group.kinds:
        raise ValueError(
            f"`on`: {group.name} has none of the corruptions. {listed(group.missing)}."
        )
    return group


def _published(name, kinds):
    published = catalogue.CORRUPTED[catalogue.ALIASES.get(name, name)]
    renamed = catalogue.RENAMED.get(published.tfds, {})

    def config(kind, severity):
        return f"{published.tfds}/{renamed.get(kind, kind)}_{severity}"

    def opened(kind, severity):
        tfds = config(kind, severity)
        return sets.of_published(dataclasses.replace(published, tfds=tfds))

    missing = {}
    for kind in kinds:
        try:
            for severity in SEVERITIES:
                tfds_builder(config(kind, severity))
        except ValueError as error:
            missing[kind] = str(error)
    found = tuple(kind for kind in kinds if kind not in missing)
    clean = catalogue.CLEAN[published.tfds]
    return Group(published.tfds, clean, found, missing, opened)


def _folder(root, kinds):
    labels = _labels(root / LABELS)
    is_hundred = "100" in root.name or labels.max() >= len(CIFAR10)
    clean, names = ("cifar100", CIFAR100) if is_hundred else ("cifar10", CIFAR10)
    if labels.min() < 0 or labels.max() >= len(names):
        raise ValueError(
            f"`on`: {root / LABELS} must have classes of {clean}, 0 to "
            f"{len(names) - 1}. Received: {labels.min()} to {labels.max()}."
        )
    missing, arrays = {}, {}
    for kind in kinds:
        if (path := root / f"{kind}.npy").is_file():
            arrays[kind] = _pixels(path, len(labels))
        else:
            missing[kind] = f"there is no file {path}"

    def opened(kind, severity):
        pixels = np.split(arrays[kind], len(SEVERITIES))[severity - 1]
        images = IndexedImages(pixels, labels)
        return sets.ImageSet(root.name, images, [*labels[:, None]], list(names))

    return Group(root.name, clean, tuple(arrays), missing, opened)


def _labels(path):
    """Returns the labels of the images of one severity, after a check."""
    labels = _read(path)
    versions = len(SEVERITIES)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) % versions:
        raise ValueError(
            f"`on`: {path} must hold class indices of {versions} severities, integers "
            f"({versions} n,). Received: {labels.dtype} {labels.shape}."
        )
    blocks = labels.reshape(versions, -1)
    if not labels.size or (blocks != blocks[0]).any():
        raise ValueError(
            f"`on`: {path} must repeat the labels of the images {versions} times, once "
            "for each severity."
        )
    return blocks[0]


def _pixels(path, count):
    """Returns the images of a file, which are read when they are used."""
    pixels, expected = _read(path), len(SEVERITIES) * count
    is_right = pixels.ndim == 4 and pixels.shape[3] == 3 and pixels.dtype == "uint8"
    if not is_right or len(pixels) != expected:
        raise ValueError(
            f"`on`: {path} must hold uint8 images ({expected}, height, width, 3), as "
            f"{LABELS} has {expected} labels. Received: {pixels.dtype} {pixels.shape}."
        )
    return pixels


def _read(path):
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:  # of NumPy, for a damaged file
        raise ValueError(f"`on`: {path} cannot be read as .npy: {error}.") from error
