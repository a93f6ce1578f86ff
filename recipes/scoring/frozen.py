"""Scores the features of models: few-shot, k-nearest neighbours and linear probe.

    python recipes/evaluate.py ViTB16/sam --on cifar100 --frozen few_shot knn probe

The weights are not trained. `features.py` says which layer the features are of, and
`sets.py` which images are used.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from command import command_line
from training.progress import console

from kerasvit import evaluation

from . import features, results
from .candidates import Candidate
from .sets import TrainingSet, digest_of

K = 20  # neighbours, with the temperature 0.07: arXiv 2104.14294


def tasks(
    candidates: Sequence[Candidate], found: Sequence[TrainingSet], config
) -> list[results.Task]:
    """Returns a task for each model and set, and prints the numbers of images.

    Raises:
        ValueError: A layer does not exist, or a set has too few training images.
    """
    frozen = [features.of_layer(each, config.layer) for each in candidates]
    shots = [_possible_shots(config, each) for each in found]
    for each in found:
        count = sum(
            len(x) for x in (each.train, each.validation, each.test.labels) if x
        )
        size = 4 * count * max(each.classes for each in frozen) / 1e6
        text = f"{each.text} Their features take up to {size:,.1f} MB."
        console.print(text, highlight=False, soft_wrap=True)
    return [
        _task(model, each, config, possible)
        for model in frozen
        for each, possible in zip(found, shots, strict=True)
    ]


def probe(
    train, train_labels, test, test_labels, classes: int, validation=None
) -> tuple:
    """Fits `evaluation.linear_probe`, and returns its part and hits.

    Args:
        train, test: Features (count, width).
        train_labels, test_labels: Class indices (count,).
        classes: Number of classes.
        validation: (features, labels) that choose the penalty; None: a quarter of the
            training images. The last fit is to all of them.
    """
    if validation is None:
        rest, held = evaluation.quarter(len(train))
        validation = train[held], train_labels[held]
        train, train_labels = train[rest], train_labels[rest]
    kernel, bias = evaluation.linear_probe(train, train_labels, *validation, classes)
    logits = test @ kernel + bias
    scores = evaluation.scores(logits, test_labels)
    return results.Part(classes, scores), evaluation.top_k_hits(logits, test_labels)


def _task(frozen, found, config, shots):
    test_labels = np.concatenate(found.test.labels)
    classes = len(found.test.label_names)

    def compute(predict):
        train, test = (
            features.of_images(predict, frozen, images)
            for images in (found.train, found.test.images)
        )
        known = train, found.train.labels, test, test_labels, classes
        measured = {}
        with command_line.checking_input():
            if "few_shot" in config.frozen:
                options = {"shots": shots, "seeds": range(config.seeds)}
                for k, hits in evaluation.few_shot_hits(*known, **options).items():
                    measured[f"{k}-shot"] = _of_seeds(hits, classes), hits
            if "knn" in config.frozen:
                votes = evaluation.neighbor_votes(*known[:3], classes, k=K)
                hits = evaluation.top_k_hits(votes, test_labels)
                measured["k-NN"] = results.Part(classes, {"top1": _share(hits)}), hits
            if "probe" in config.frozen:
                held = found.validation
                if held:
                    held = features.of_images(predict, frozen, held), held.labels
                measured["linear probe"] = probe(*known, held)
        return results.fields(measured)

    labels = [found.train.labels, found.validation.labels if found.validation else []]
    settings = {
        **results.settings(frozen, found.test),
        "measures": [*config.frozen],
        "shots": [*shots],
        "seeds": config.seeds,
        "layer": config.layer,
        "trained_on": hashlib.sha256(np.concatenate(labels).tobytes()).hexdigest(),
        "training_images": [*map(len, labels)],
        "training_pixels": digest_of(found.train),
    }
    measure = f"frozen {config.layer or ''}".strip()
    return results.Task(frozen, found.test.name, measure, settings, compute)


def _possible_shots(config, found):
    """Returns the shots that each class has.

    Raises:
        ValueError: There are too few training images.
    """
    if "knn" in config.frozen and len(found.train) < K:
        raise ValueError(
            f"`frozen`: knn needs {K} training images or more. {found.test.name} has "
            f"{len(found.train)}."
        )
    if "few_shot" not in config.frozen:
        return config.shots
    names = found.test.label_names
    counts = np.bincount(found.train.labels, minlength=len(names))
    least = f"{names[counts.argmin()]} has {counts.min()} training images"
    shots = [k for k in config.shots if k <= counts.min()]
    if not shots:
        raise ValueError(
            f"`shots`: each class of {found.test.name} must have {min(config.shots)} "
            f"training images or more. {least}. Give fewer shots, a larger "
            "--train-images, or leave few_shot out of --frozen."
        )
    if left := [str(k) for k in config.shots if k not in shots]:
        console.print(f"{found.test.name} without {', '.join(left)} shots: {least}.")
    return shots


def _share(hits):
    interval = evaluation.binomial_interval(int(hits.sum()), len(hits))
    return evaluation.Estimate(float(hits.mean()), *interval)


def _of_seeds(hits, classes):
    """Returns the part of hits (seeds, images), with the number of each seed.

    The interval is the wider of `evaluation.seeds_interval` and Wilson's for as many
    images, which holds also if all are right.
    """
    mean = float(hits.mean())
    ends = evaluation.seeds_interval(hits)
    count = hits.shape[1]
    wilson = evaluation.binomial_interval(round(mean * count), count)
    low, high = max(0.0, min(ends[0], wilson[0])), min(1.0, max(ends[1], wilson[1]))
    seeds = {f"seed {i}": _share(each) for i, each in enumerate(hits)}
    top1 = evaluation.Estimate(mean, low, high)
    return results.Part(classes, {"top1": top1, **seeds})
