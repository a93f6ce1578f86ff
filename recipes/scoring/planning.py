"""Decides what a command of evaluate.py measures: models, sets, and tasks."""

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from devices.devices import Devices

from . import (
    accuracy,
    averages,
    candidates,
    card,
    catalogue,
    corrupted,
    frozen,
    results,
    sets,
    trust,
)
from .vtab import catalogue as vtab
from .vtab import images, transfer


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        models: `candidates.Candidate` of each model of the command.
        scored: These, and their ensemble, if it is asked for.
        trust: `results.Task` of each measurement of --trust, which come first.
        of_sets: Returns the tasks of the models' outputs, which calibrations that are
            stored before change, as they have thresholds.
        tasks: The other tasks.
        corrupted: Those on corrupted images, which are among the tasks.
        cards: {name of a model: path of the card to write}.
        notes: Lines about what is left out.
    """

    models: list[candidates.Candidate]
    scored: list[candidates.Candidate]
    trust: list[results.Task]
    of_sets: Callable[[], list[results.Task]]
    tasks: list[results.Task]
    corrupted: corrupted.Plan
    cards: dict[str, Path]
    notes: list[str]


def plan(devices: Devices, config, store: results.Store) -> Plan:
    """Loads models, opens sets, and returns the tasks.

    Raises:
        ValueError: The input is wrong.
    """
    with devices.first_goes_first():
        groups = corrupted.find_all(config.on, config.corrupt)
        others = [x for x in config.on if x not in groups and not vtab.has(x)]
        of_vtab = [images.find(each) for each in vtab.tasks(config.on)]
        needs_head = bool(others or groups) and not config.frozen
        models = candidates.load_all(
            config.models,
            config.model_input,
            config.image_size,
            headless=not needs_head,
            state=config.state,
        )
        channels, task = candidates.channels_of(models), candidates.task_of(models)
        others_than_sets = groups or of_vtab or config.corrupt or config.frozen
        if task == "multilabel" and others_than_sets:
            raise ValueError(
                "`corrupt`, `frozen` and VTAB are for models of one label per image. "
                "Leave them out."
            )
        if channels != 3 and (groups or of_vtab or config.corrupt):
            raise ValueError(
                f"`on`, `corrupt`: corruptions and VTAB are for RGB images, and "
                f"{models[0].name} takes {channels} channels. Leave them out."
            )
        if config.tta:
            models = [averages.with_views(each, config.tta) for each in models]
        scored = [*models, averages.ensemble(models)] if config.ensemble else models
        known = devices.shard, channels, task
        divided, unlike = {}, []
        if config.trust:
            parts = config.train_images, candidates.trained_share(config.models)
            divided = {name: trust.divided(name, *parts, *known) for name in others}
            unlike = [
                sets.find_unlabelled(name, *known[:2], "unlike")
                for name in config.unlike
            ]
        found = {
            name: divided[name].test if divided else sets.find(name, *known)
            for name in others
        }
    names = _names({**found, **groups})
    found, groups = (
        [
            dataclasses.replace(each.sample(config.images), name=names[given])
            for given, each in opened.items()
        ]
        for opened in (found, groups)
    )
    of_sets = functools.partial(accuracy.tasks, scored, found, bool(config.frozen))
    of_sets()  # raises for a set of other classes
    tasks, notes, trusted = [], [], []
    if config.frozen:
        given = {x: names[x] for x in others}
        tasks, notes = _of_features(devices, config, models, given)
    with_head = [each for each in models if each.has_head]
    if (config.corrupt or groups) and len(with_head) < len(models):
        notes.append(_without_classes(models))
    damaged = corrupted.plan(
        with_head, found, groups, catalogue.chosen_kinds(config.corrupt)
    )
    tasks += damaged.tasks + transfer.tasks(models, of_vtab, config)
    if config.trust:
        with_head = [each for each in scored if each.has_head]
        if not with_head:
            raise ValueError(
                "`trust`: the models have no classes. Train a head with finetune.py."
            )
        parts = [
            dataclasses.replace(divided[given], test=each)
            for given, each in zip(others, found, strict=True)
        ]
        unlike = [each.sample(config.images) for each in unlike]
        trusted = trust.tasks(with_head, parts, unlike, config)
    cards = card.paths(config.models, models, store) if config.card else {}
    first = models, scored, trusted, of_sets
    return Plan(*first, tasks, damaged, cards, notes + damaged.notes)


def _names(opened):
    """Returns {name as given: name in the tables}; equal folders' names are whole."""
    counts = Counter(each.name for each in opened.values())
    return {
        given: given
        if counts[each.name] > 1 and Path(os.path.expanduser(given)).exists()
        else each.name
        for given, each in opened.items()
    }


def _without_classes(models):
    """Returns a note about models that are not scored on corrupted images.

    Raises:
        ValueError: No model has classes.
    """
    names = [each.name for each in models if not each.has_head]
    note = f"{', '.join(names)}: no classes, and so no accuracy on corrupted images."
    if len(names) == len(models):
        raise ValueError(
            f"`corrupt`: {note} Train a head with finetune.py, or leave out --corrupt."
        )
    return note


def _of_features(devices, config, models, names):
    """Returns the tasks of `--frozen` and notes about sets without training images.

    Args:
        names: {name of a set as given: name in the tables}.

    Raises:
        ValueError: No set has training images, or there is no such layer.
    """
    options = config.train_images, config.images, devices.shard
    options += (candidates.channels_of(models),)
    with devices.first_goes_first():
        opened = {name: sets.find_training(name, *options) for name in names}
    notes = []
    if without := [name for name, each in opened.items() if each is None]:
        notes = [f"{', '.join(without)}: no training images for --frozen."]
        if len(without) == len(opened):
            raise ValueError(
                f"`frozen`: {notes[0]} Give a set with a split 'train', such as "
                "cifar100."
            )
    with_training = [
        dataclasses.replace(
            each, test=dataclasses.replace(each.test, name=names[given])
        )
        for given, each in opened.items()
        if each
    ]
    return frozen.tasks(models, with_training, config), notes
