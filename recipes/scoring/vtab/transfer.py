"""Transfers models to the tasks of VTAB-1k, and scores them on the test images.

    transfer.tasks(models, [images.find(task)], config)

With `config.vtab` "probe", a linear classifier is fitted to frozen features: its L2
penalty is chosen on the 200 validation images, then it is fitted to all 1,000. With
"hyperrule", all weights are fine-tuned on the 1,000 images.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import finetune
import numpy as np
from command import command_line
from command.paths import file_name
from training import defaults

import kerasvit
from kerasvit import evaluation
from kerasvit.data import LabelledImages, TrainingImages

from .. import candidates, features, frozen, results, sets
from .images import Images

# Of data_loader.py in google-research/task_adaptation: tf.image.resize to a square.
RESIZED = {"mode": "squash", "crop": 1.0, "kernel": "bilinear", "antialias": False}
SHOWN = 200  # test images whose accuracy is shown during the training


def tasks(candidates: Sequence, found: Sequence[Images], config) -> list[results.Task]:
    """Returns a task of `results` for each model and task of VTAB.

    Raises:
        ValueError: A model has no features, or cannot be fine-tuned.
    """
    tests = [_test(images).sample(config.images) for images in found]
    made = []
    for candidate, name in zip(candidates, config.models, strict=True) if found else ():
        if config.vtab == "probe":
            measure, candidate = "linear probe", _squashed(candidate)
            learn = _probe(candidate, config.layer)
        else:
            measure, learn = "HyperRule", learner(candidate, name, config)
        for images, test in zip(found, tests, strict=True):
            settings = results.settings(candidate, test) | _settings(images, config)
            compute = functools.partial(_compute, measure, learn, images, test)
            made.append(results.Task(candidate, test.name, measure, settings, compute))
    return made


def _compute(measure, learn, images, test, predict):
    return results.fields({measure: learn(predict, images, test)})


def _test(images):
    """Returns the test images of a task as an `ImageSet`."""
    labels = [*images.test.labels[:, None]]
    return sets.ImageSet(images.task.set, images.test, labels, images.label_names)


def _settings(images, config):
    """Returns what decides about the numbers, besides `results.settings`."""
    labels = hashlib.sha256(images.learned.labels.tobytes()).hexdigest()
    found = {"learned": labels, "data": images.version}
    if config.vtab == "probe":
        return found | {"layer": config.layer}
    return found | {"image_size": config.image_size and [*config.image_size]}


def _squashed(candidate):
    """Returns the candidate with the transform of VTAB."""
    transform = dataclasses.replace(candidate.transform, **RESIZED)
    return dataclasses.replace(candidate, transform=transform)


def _probe(candidate, layer):
    """Returns a function like that of `learner` that fits a linear classifier."""
    model = features.of_layer(candidate, layer)

    def learn(predict, images, test):
        x = features.of_images(predict, model, images.learned)
        tested = features.of_images(predict, model, test.images)
        y, count = images.learned.labels, len(images.train)
        labels, classes = np.concatenate(test.labels), images.task.classes
        with command_line.checking_input():
            known = x[:count], y[:count], tested, labels, classes
            return frozen.probe(*known, validation=(x[count:], y[count:]))

    return learn


def learner(candidate: candidates.Candidate, name: str, config) -> Callable:
    """Returns a function that fine-tunes a model, and returns its part and hits.

    Its arguments are a `Predictor`, `images.Images` and an `ImageSet`.

    Raises:
        ValueError: The model is not one of kerasvit.
    """
    weights = _weights(candidate, name)

    def learn(predict, images, test):
        settings = finetune.Config(
            **weights,
            state=config.state,
            dataset=images.task.set,
            rule="hyperrule",
            image_size=config.image_size,
            accumulate=_parts(config.batch_size),
            dtype=config.dtype,
            devices=config.devices,
            out=str(_folder(candidate, images, config)),
        )
        finetune.finetune_on(predict.devices, settings, _dataset(images))
        with predict.devices.first_goes_first():  # it writes the model
            tuned = candidates.load(settings.out)
        logits = tuned.outputs(predict, test.images)
        with command_line.checking_input():
            scores = evaluation.scores(logits, test.labels)
        part = results.Part(images.task.classes, scores)
        return part, evaluation.top_k_hits(logits, test.labels)

    return learn


def _weights(candidate, name):
    """Returns the settings `model` and `weights` of a model's name."""
    if not hasattr(candidate.model, "record") or name.endswith(".keras"):
        raise ValueError(
            f"`vtab`: --vtab hyperrule fine-tunes weights of kerasvit, and {name} is "
            "another model. Give --vtab probe."
        )
    variant, _, tag = name.partition("/")
    if tag and variant in kerasvit.list_models() and not Path(name).exists():
        return {"model": variant, "weights": tag}
    return {"weights": candidates.weights_of(name)}


def _parts(batch_size):
    """Returns in how many parts the rule's batch has at most `batch_size` images."""
    parts = 1
    while defaults.BATCH_SIZE // parts > batch_size:
        parts *= 2
    return parts


def _folder(candidate, images, config):
    """Returns the folder of a training, another one for other weights or images."""
    deciding = candidate.weights, images.version, config.image_size, config.dtype
    deciding += (_parts(config.batch_size),)
    digest = hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:8]
    name = file_name(f"{images.task.set} HyperRule {digest}")
    return Path(os.path.expanduser(config.out)) / file_name(candidate.name) / name


def _dataset(images):
    """Returns the data of a training on training and validation images.

    Nothing is chosen by its validation, which shows the progress on some test images.
    """
    shown = images.test.sample(SHOWN, seed=0)
    train = TrainingImages(images.learned)
    return LabelledImages(train, shown, shown, images.label_names)
