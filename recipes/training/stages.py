"""The stages of a training: head alone, all weights, another image size.

    plan = stages.of(chosen, images, model, reasons)
    for stage, staged in stages.each(devices, model, plan):
        ...    # compile and fit `staged` with stage.config

Each stage has its own optimizer, schedule, states and log, and begins with the weights
of the stage before. A finished stage restores its last state, so that the same command
continues in any of them. This module trains nothing.

A stage consists of rounds with the same number of steps, after which it is validated.
Printed output counts steps, not rounds.
"""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
from devices.devices import Devices, copy_of
from training import trainers, training_data, validation
from training.linear_classifier import is_worse
from training.models import freeze
from training.progress import console
from training.quality import quality_of

import kerasvit
from kerasvit import data
from kerasvit.fine_tuning import heads_of

MAX_ROUNDS, MIN_ROUND_STEPS = 50, 10  # rounds per training, steps per round
# The rate of Adam's paper. The features of a head are normalised, and frozen weights
# cannot be damaged.
HEAD_RATE = 1e-3
# DeiT trains for 300 epochs, and then for 30 with 384 pixels (README_deit.md).
THEN_STEPS = 0.1


def planned_images(config, dataset) -> int:
    """Returns the number of images of an epoch: all, or those of the share."""
    return (config.same_steps and dataset.whole) or len(dataset.train)


def rounds_of(config, count: int) -> tuple[int, int]:
    """Returns (number of rounds, steps per round).

    Args:
        config: Dataclass of the settings.
        count: Result of `planned_images`.
    """
    steps_per_epoch = max(1, round(count / config.batch_size))
    steps = config.steps or config.epochs * steps_per_epoch
    # A round is an epoch, unless there are too many or they have too few steps.
    least = max(steps_per_epoch, MIN_ROUND_STEPS)
    most = getattr(config, "validations", MAX_ROUNDS)
    rounds = min(most, max(1, round(steps / least)))
    round_steps = math.ceil(steps / rounds)
    return math.ceil(steps / round_steps), round_steps


def in_rounds(config, reasons: dict, rounds: int, round_steps: int):
    """Returns the settings with the steps of the plan and a limited warm-up.

    If the number of steps was increased, its reason in `reasons` is extended.
    """
    steps = rounds * round_steps
    warmup = min(config.warmup_steps, steps // 5)
    config = dataclasses.replace(config, warmup_steps=warmup)
    if "steps" not in reasons or config.steps == steps:
        return config
    reasons["steps"] += f"; raised to a multiple of {round_steps}"
    return dataclasses.replace(config, steps=steps)


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of a training, or all of it.

    Attributes:
        config: Settings, with the steps, the rate and the warm-up of the stage.
        rounds, round_steps: Result of `rounds_of`.
        suffix: Of the name of the training; "" for the stage of all weights.
        head_alone: Whether the other weights and all statistics are frozen.
        image_size: Height and width; None: that of the model.
        number: Number of stages before. The batches of each have another seed.
        teacher: Result of `trainers.find_teacher`.
        counts: Number of training images of each class, if the loss needs them.
    """

    config: object
    rounds: int
    round_steps: int
    suffix: str = ""
    head_alone: bool = False
    image_size: tuple[int, int] | None = None
    number: int = 0
    teacher: trainers.Teacher | None = None
    counts: np.ndarray | None = None

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.rounds * self.round_steps

    @property
    def text(self) -> str:
        """What the stage trains, and how long."""
        what = "head alone" if self.head_alone else "all weights"
        if getattr(self.config, "lora", None) and not self.head_alone:
            what = "adapters and head"
        if self.image_size:
            what += f" at {self.image_size[0]} × {self.image_size[1]} pixels"
        steps = "1 step" if self.steps == 1 else f"{self.steps:,} steps"
        return f"{what}, {steps}, rate {self.config.learning_rate:g}"

    def folder(self, run: Path) -> Path:
        """Returns the folder of the states of the stage, until all are finished."""
        name = "with SAM" if self.config.rho else "without SAM"
        return run / f"{name} {self.suffix}".rstrip().replace(" ", "_")

    def batches(self, devices, dataset, options: dict):
        """Returns the batches of `fit`, whose epochs are the rounds of the stage.

        Args:
            devices: `Devices`.
            dataset: `kerasvit.data.LabelledImages`.
            options: Result of `training_data.fit_options`.
        """
        images = dataset.train.images
        augmentation = training_data.augmentation(self.config)
        if images.channels != 3:  # `check_first_batch` has told
            augmentation = dataclasses.replace(augmentation, colours=False)
        return data.training_batches(
            images,
            augment=augmentation,
            seed=self.config.seed + self.number,
            shard=devices.shard,
            balanced=self.config.balanced,
            **options,
        ).with_epochs_of(self.round_steps * self.config.accumulate)


def of(chosen, dataset, model, reasons: dict | None = None) -> list[Stage]:
    """Returns the stages of a training: one without `probe_epochs` and `then_size`.

    Args:
        chosen: Dataclass of the settings, without None for those of the steps.
        dataset: `kerasvit.data.LabelledImages`.
        model: `ImageModel`.
        reasons: Result of `defaults.choose`. That of the steps is extended if their
            number is raised to whole rounds.

    Raises:
        ValueError: The model cannot have the size of the last stage, or its teacher
            is wrong.
    """
    count = planned_images(chosen, dataset)
    rounds = rounds_of(chosen, count)
    config = in_rounds(chosen, reasons or {}, *rounds)
    of_classes = config.class_weights or config.loss == "adjusted"
    main = Stage(
        config,
        *rounds,
        teacher=trainers.find_teacher(config, model),
        counts=training_data.counts(dataset) if of_classes else None,
    )
    found = [main]
    if epochs := getattr(config, "probe_epochs", None):
        rate = config.probe_learning_rate or max(HEAD_RATE, config.learning_rate)
        changes = {"steps": None, "epochs": epochs, "learning_rate": rate}
        if not any(head.trainable for head in heads_of(model)):
            raise ValueError("`probe_epochs` trains the head, which --freeze freezes.")
        paths = [weight.path for head in heads_of(model) for weight in head.weights]
        if not any(re.search(config.no_decay or "", path) for path in paths):
            changes["no_decay"] = None  # it is for frozen weights
        stage = _planned(main, count, changes, suffix="head", head_alone=True)
        stage = dataclasses.replace(stage, teacher=main.teacher, counts=main.counts)
        found = [stage, dataclasses.replace(main, number=1)]
    if config.then_size:
        found.append(_then(config, count, found[-1], model))
    if len(found) > 1:
        console.print(
            f"Stages: {'; '.join(each.text for each in found)}.",
            highlight=False,
            soft_wrap=True,
        )
    return found


def main_of(plan: list[Stage]) -> Stage:
    """Returns the stage of all weights at the first size."""
    return next(s for s in plan if not s.head_alone and not s.image_size)


def each(devices: Devices, model, plan: list[Stage]):
    """Yields (stage, its model on the devices), with the weights of the stage before.

    Args:
        devices: `Devices`. The caller is not in its scope.
        model: `ImageModel` with the first weights; its weights are changed.
        plan: Result of `of`.
    """
    staged = None
    for stage in plan:
        if staged is not None:
            model.set_weights(devices.weights(staged))  # of the stage before
        staged = kerasvit.resize(model, stage.image_size) if stage.image_size else model
        with devices.scope():
            if stage.head_alone:
                staged = copy_of(staged)  # `model` keeps what it trains
                heads = heads_of(staged)
                for layer in staged.layers:
                    layer.trainable = layer in heads
            else:
                staged = devices.place(staged, stage.config.remat)
            freeze(staged, stage.config.freeze)  # a copy is not frozen
        yield stage, staged


def finish(stage: Stage, trainer, resume, best=None) -> dict:
    """Sets the weights that are kept, and returns facts of the stage for result.json.

    Args:
        stage: The stage.
        trainer: Its trainer, after `fit`.
        resume: `kerasvit.Resume` of `fit`.
        best: `validation.KeepBest` of `fit`; None: the last weights are kept.
    """
    history = validation.rounds(resume.history)
    if best is None:
        return {"history": history}
    best.set_best(trainer.model)
    early = len(history) < stage.rounds
    facts = {"history": history}
    facts |= validation.facts(history, stage.round_steps, early)
    kept = validation.sentence(facts)
    console.print(f"Kept: {kept}.", highlight=False, soft_wrap=True)
    return facts


def summed(results: list[dict]) -> dict:
    """Returns the result of a training: the last metrics, and the history of all.

    Args:
        results: Test metrics and history of each stage.
    """
    last = {k: v for k, v in results[-1].items() if k != "history"}
    last["history"] = [logs for result in results for logs in result["history"]]
    if "kept_round" in last:  # of the last stage
        last["kept_round"] += len(last["history"]) - len(results[-1]["history"])
    if len(results) > 1:
        quality = quality_of(last)
        after = [{quality: r[quality], "loss": r["loss"]} for r in results]
        last["after_stages"] = after
    return last


def facts(plan: list[Stage]) -> dict:
    """Returns what result.json states of the stages; {} for one."""
    if len(plan) == 1:
        return {}
    stages = [
        {
            "suffix": stage.suffix,
            "text": stage.text,
            "rounds": stage.rounds,
            "steps_between_validations": stage.round_steps,
        }
        for stage in plan
    ]
    return {"stages": stages}


def warn_if_worse(result: dict) -> None:
    """Prints a warning if the last stage lost more test images than chance explains.

    Args:
        result: Content of result.json.
    """
    after = result.get("after_stages", ())
    quality = quality_of(*after[:1]) if after else "accuracy"
    of = "of" if quality == "accuracy" else "mAP on"
    accuracies = [each[quality] for each in after]
    tested = result.get("images", {}).get("test")
    if accuracies and is_worse(*accuracies[-2:], tested):
        console.print(
            f"Warning: the last stage, {result['stages'][-1]['text']}, made the model "
            f"worse: {accuracies[-2]:.2%} {of} the test images before it, "
            f"{accuracies[-1]:.2%} after it. Give it more steps or a smaller rate.",
            style="bold red",
            soft_wrap=True,
            highlight=False,
        )


def _planned(main, count, changes, **options):
    """Returns a stage with the settings of the main one, but for some changes."""
    if main.config.decay_at:  # at the same shares of all steps
        at = [x if x < 1 else x / main.steps for x in main.config.decay_at]
        changes["decay_at"] = tuple(at)
    config = dataclasses.replace(main.config, **changes)
    rounds = rounds_of(config, count)
    return Stage(in_rounds(config, {}, *rounds), *rounds, **options)


def _then(config, count, before, model):
    """Returns the stage at another image size."""
    size = config.then_size[0], config.then_size[-1]
    if size == tuple(model.record["kwargs"]["image_size"]):
        raise ValueError(
            f"`then_size`: {size[0]} × {size[1]} pixels is the image size of the "
            "training. Give another one."
        )
    try:
        resized = kerasvit.resize(model, size)
    except ValueError as error:  # the model cannot have this size
        raise ValueError(f"`then_size`: {error}") from error
    changes = {
        "steps": config.then_steps,
        "epochs": config.then_epochs,
        "learning_rate": config.then_learning_rate
        or config.learning_rate * config.then_rate,
    }
    if config.resize:  # before a random crop of the image size
        ratio = size[0] / model.record["preprocessing"]["size"][0]
        changes["resize"] = round(config.resize * ratio)
    if not config.then_steps and not config.then_epochs:
        changes["steps"] = max(MIN_ROUND_STEPS, round(before.steps * THEN_STEPS))
    suffix = "x".join(map(str, config.then_size))
    teacher = trainers.find_teacher(config, resized)
    stage = _planned(before, count, changes, suffix=suffix, image_size=size)
    return dataclasses.replace(stage, number=before.number + 1, teacher=teacher)
