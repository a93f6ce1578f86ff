"""All measures of the report, in its order, and their computation."""

import time

from . import attention, curvature, features, landscapes, segmentation, spectra
from .budget import Budget
from .measure import JOINT, Measure
from .sections import SECTIONS
from .store import Store, key_of
from .subjects import Subject

_FOUND = {
    **curvature.MEASURES,
    **spectra.MEASURES,
    **landscapes.MEASURES,
    **attention.MEASURES,
    **segmentation.MEASURES,
    **features.MEASURES,
}
MEASURES: dict[str, Measure] = {name: _FOUND[name] for name in SECTIONS}


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
    return key_of(name, group, MEASURES[name].depends(*group))
