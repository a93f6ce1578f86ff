"""Scores models on corrupted images: a task for each model, set and corruption."""

import dataclasses
import functools
import hashlib
import importlib
from collections.abc import Sequence

import numpy as np
from command import command_line

from . import corruptions, labels, results
from .accuracy import scored
from .kinds import SEVERITIES

SOFTWARE = ("cv2", "skimage", "scipy", "PIL", "tensorflow_datasets")  # makes the pixels


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


def plan(
    candidates: Sequence,
    image_sets: Sequence,
    groups: Sequence,
    kinds: Sequence[str],
) -> Plan:
    """Tries the corruptions, and returns the tasks.

    Args:
        candidates: `candidates.Candidate` of each model.
        image_sets: `sets.ImageSet` of each set whose images are corrupted here.
        groups: `corrupted_sets.Group` of each published set of corrupted images.
        kinds: The corruptions for `image_sets`.

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
    match = labels.match(image_set, candidate)

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
    match = labels.match(group.first, candidate)

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
    """Returns the name of a part of a result.

    Args:
        severity: 1 to 5.
        part: "all" or "restricted", as of `accuracy.scored`.
    """
    return f"severity {severity}" if part == "all" else f"severity {severity}, {part}"
