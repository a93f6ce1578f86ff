"""All measures of the report, and their computation.

What would not fit the `Budget` is left out, and the `Store` keeps the numbers in a
folder, so that a stopped report goes on.
"""

import hashlib
import json
import math
import os
import re
import time
from pathlib import Path

import keras
import numpy as np
from training.run_folder import write_json

from kerasvit import inspection

from . import attention, curvature, features, landscapes
from .measure import JOINT, Measure, Passes, without_derivatives
from .sections import SECTIONS
from .subjects import Subject

_FOUND = {
    **curvature.MEASURES,
    **landscapes.MEASURES,
    **attention.MEASURES,
    **features.MEASURES,
}
MEASURES: dict[str, Measure] = {name: _FOUND[name] for name in SECTIONS}
PROTOCOL = 2  # changed with the meaning of the numbers: others are measured again
DIGITS = 6  # of stored numbers, significant ones


class Budget:
    """Time for the measures, from now on.

    Args:
        seconds: The time; None: as long as it takes.
    """

    def __init__(self, seconds: float | None):
        self.seconds, self.start = seconds, time.perf_counter()
        self.costs: dict[str, tuple[float, float, float]] = {}

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.perf_counter() - self.start)

    def estimate(self, passes: Passes, subjects: list[Subject]) -> float:
        """Returns the seconds that a measure will take, about."""
        total = 0.0
        for each in subjects:
            forward, product, program = self._costs(each)
            total += passes.forward * forward + passes.products * product
            total += passes.programs * program
        return total

    def refusal(self, work: list[tuple[Passes, list[Subject]]]) -> str:
        """Returns why measures do not fit, one sentence, or "".

        Args:
            work: Passes and models of each.
        """
        if self.seconds is None:
            return ""
        needed = sum(self.estimate(*each) for each in work)
        left = self.left
        if not work or needed <= left:
            return ""
        return (
            f"Left out: it takes about {duration(needed)}, and {duration(left)} of the "
            "budget are left."
        )

    def _costs(self, subject):
        """Returns the seconds of a forward pass, a product and a compilation."""
        if subject.name not in self.costs:
            self.costs[subject.name] = _pass_costs(subject)
        return self.costs[subject.name]


def _pass_costs(subject):
    size = min(subject.batch_size, len(subject.x))
    model, x, y, loss = subject.data
    batches = len(x) / size
    first, forward = _seconds(lambda: keras.ops.convert_to_numpy(model(x[:size])))
    product = forward
    if not without_derivatives(subject):
        hessian = inspection.Hessian(model, x[:size], y[:size], loss, batch_size=size)
        vector = np.ones(hessian.shape[0])
        first, product = _seconds(lambda: hessian @ vector)
    return forward * batches, product * batches, first - product


def _seconds(work):
    """Returns the seconds of the first and of the second call."""
    times = [time.perf_counter()]
    for _ in range(2):
        work()
        times.append(time.perf_counter())
    first, second = np.diff(times)
    return float(first), float(second)


def duration(seconds: float) -> str:
    """Returns a time in words: "less than 1 s", "4 s", "12 min", "1.5 h"."""
    if seconds < 1:
        return "less than 1 s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Store:
    """Results of measures, a file for each.

    Args:
        folder: Path of the folder.

    Raises:
        ValueError: The folder cannot be written.
    """

    def __init__(self, folder: str):
        self.folder = Path(os.path.expanduser(folder))
        try:
            (self.folder / "measured").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"`out`: {folder} cannot be used: {error}.") from error

    def find(self, measure: str, subjects: list[Subject], key: str) -> dict | None:
        """Returns what was stored of a measure with the same key."""
        path = self._path(measure, subjects)
        if not path.is_file():
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        return stored if stored.pop("key") == key else None

    def add(self, measure: str, subjects: list[Subject], key: str, **content) -> dict:
        """Stores the numbers of a measure, and returns them as they are stored."""
        content = _plain(content)
        write_json(self._path(measure, subjects), {"key": key, **content})
        return content

    def unfinished(self, measure: str, subjects: list[Subject], key: str) -> Path:
        """Returns the path of a file for what is done of a measure."""
        sizes = [each.batch_size for each in subjects]
        digest = hashlib.sha256(f"{key} {sizes}".encode()).hexdigest()
        return self._path(measure, subjects).with_suffix(f".{digest[:16]}.npz")

    def _path(self, measure, subjects):
        name = " ".join([measure, *(each.name for each in subjects)])
        return self.folder / "measured" / (re.sub(r"[^\w.-]+", "_", name) + ".json")


def _plain(content):
    """Returns the same with floats of `DIGITS` digits; JSON has no infinity."""
    if isinstance(content, dict):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if isinstance(content, float):
        return float(f"{content:.{DIGITS}g}") if math.isfinite(content) else None
    return content


def chosen(only: tuple[str, ...], subjects: list[Subject]) -> list[str]:
    """Returns the names of the measures to make, in the order of the report."""
    if only:
        return [name for name in MEASURES if name in only]
    skipped = {"between"} if len(subjects) == 1 else set()
    if not any(each.masks for each in subjects):
        skipped.add("segmentation")
    return [
        name
        for name, section in SECTIONS.items()
        if not section.optional and name not in skipped
    ]


def measured(
    name: str, subjects: list[Subject], store: Store, budget: Budget
) -> dict[str, dict]:
    """Makes a measure of all models, or finds it.

    Args:
        name: Key of `MEASURES`.
        subjects: The models.
        store: Results of earlier runs, to which this adds.
        budget: Time that is left.

    Returns:
        {name of a model, or `JOINT`: {"numbers": those of the measure, "seconds": its
        time, "passes": the estimate of its work} or {"reason": why there are none}}.
    """
    measure = MEASURES[name]
    groups = {each.name: [each] for each in subjects}
    if measure.jointly:
        groups = {JOINT: subjects}
    found = {label: _known(name, group, store) for label, group in groups.items()}
    missing = {label: groups[label] for label, each in found.items() if not each}
    work = [(measure.passes(*group), group) for group in missing.values()]
    reason = budget.refusal(work)  # of all models, which are to be compared
    for label, group in missing.items():
        found[label] = {"reason": reason} if reason else _made(name, group, store)
    return found


def _known(name, group, store):
    """Returns why models lack a measure, or what is stored of it, or None."""
    if reason := MEASURES[name].lacks(*group):
        return {"reason": f"Not measured: {reason}"}
    return store.find(name, group, _key(name, group))


def _made(name, group, store):
    measure, key = MEASURES[name], _key(name, group)
    path = store.unfinished(name, group, key)
    options = {"path": path} if measure.resumes else {}
    start = time.perf_counter()
    numbers = measure.compute(*group, **options)
    found = {
        "numbers": numbers,
        "seconds": time.perf_counter() - start,
        "passes": measure.passes(*group)._asdict(),
    }
    found = store.add(name, group, key, **found)
    path.unlink(missing_ok=True)
    return found


def _key(name, group):
    """Returns a digest of what the numbers of a measure depend on."""
    others = MEASURES[name].depends(*group)
    parts = [name, PROTOCOL]
    parts += [(each.weights, each.images, each.seed) for each in group]
    parts += [others] if others else []
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
