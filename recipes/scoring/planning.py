"""Decides what a command of evaluate.py measures: models, sets, and tasks."""

import dataclasses
from pathlib import Path

from devices import Devices

from . import (
    accuracy,
    candidates,
    card,
    corrupted,
    corrupted_sets,
    frozen,
    kinds,
    results,
    sets,
    training_sets,
)
from .vtab import choice, images, transfer


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        models: `candidates.Candidate` of each model.
        tasks: `results.Task` of each measurement.
        corrupted: Those on corrupted images, which are among the tasks.
        cards: {name of a model: path of the card to write}.
        notes: Lines about what is left out.
    """

    models: list[candidates.Candidate]
    tasks: list[results.Task]
    corrupted: corrupted.Plan
    cards: dict[str, Path]
    notes: list[str]


def plan(here: Devices, config, store: results.Store) -> Plan:
    """Loads models, opens sets, and returns the tasks.

    Args:
        here: Devices; their first process prepares sets and downloads weights.
        config: `evaluate_settings.Config`.
        store: Where the results are stored.

    Raises:
        ValueError: The input is wrong.
    """
    with here.first_goes_first():
        groups = corrupted_sets.find_all(config.on, config.corrupt)
        others = [x for x in config.on if x not in groups and not choice.has(x)]
        found = [sets.find(name, here.shard) for name in others]
        of_vtab = [images.find(each) for each in choice.tasks(config.on)]
        needs_head = bool(others or groups) and not config.frozen
        models = candidates.load_all(
            config.models,
            config.model_input,
            config.image_size,
            headless=not needs_head,
        )
    found = [each.sample(config.images) for each in found]
    tasks = accuracy.tasks(models, found, optional=bool(config.frozen))
    notes = []
    if config.frozen:
        more, notes = _of_features(here, config, models, others)
        tasks += more
    damaged = corrupted.plan(
        [each for each in models if each.has_head],
        found,
        [each.sample(config.images) for each in groups.values()],
        kinds.chosen(config.corrupt),
    )
    tasks += damaged.tasks + transfer.tasks(models, of_vtab, config)
    cards = card.paths(config.models, models, store) if config.card else {}
    return Plan(models, tasks, damaged, cards, notes + damaged.notes)


def _of_features(here, config, models, names):
    """Returns the tasks of `--frozen` and notes about sets without training images.

    Raises:
        ValueError: No set has training images, or there is no such layer.
    """
    options = config.train_images, config.images, here.shard
    with here.first_goes_first():
        opened = {name: training_sets.find(name, *options) for name in names}
    notes = []
    if without := [name for name, each in opened.items() if each is None]:
        notes = [f"{', '.join(without)}: no training images for --frozen."]
        if len(without) == len(opened):
            raise ValueError(
                f"`frozen`: {notes[0]} Give a set with a split 'train', such as "
                "cifar100."
            )
    protocol = frozen.Protocol(config.frozen, config.shots, config.seeds, config.layer)
    with_training = [each for each in opened.values() if each]
    return frozen.tasks(models, with_training, protocol), notes
