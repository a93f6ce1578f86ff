"""Fits a linear classifier to frozen features: initial head and baseline.

    start = linear_head.start(model, dataset, batch_options)

With a head of zeros, the first gradients are large and random and damage pretrained
weights. Fitting the head first, which takes seconds, and then training all weights
avoids this (Kumar et al. 2022, arXiv 2202.10054).
"""

import dataclasses
import math

import keras
import numpy as np
from batches import evaluation_batches
from heads import heads_of

from kerasvit.evaluation import linear_probe

MAX_IMAGES = 2_000  # images whose features are computed
PER_CLASS = 10  # raises MAX_IMAGES for many classes
HELD_OUT = 0.25  # share of the features that selects the penalty


@dataclasses.dataclass(frozen=True)
class Start:
    """Accuracies of the loaded weights before the training.

    Attributes:
        kept: Validation accuracy in [0, 1] with the head of the weights; None if they
            have no head for these classes.
        linear: Validation accuracy in [0, 1] of a linear classifier on frozen features.
        images: Number of training images that the classifier was fitted to.
        tested: Number of validation images.
        heads: (kernel, bias) of the classifier for each head of the model.
    """

    kept: float | None
    linear: float
    images: int
    tested: int
    heads: list

    @property
    def accuracy(self):
        """The higher of the two accuracies, which the training should improve."""
        return max(self.linear, self.kept or 0.0)


def start(model: keras.Model, dataset, batch_options: dict, seed: int = 0) -> Start:
    """Fits a linear classifier to features of at most `MAX_IMAGES` training images.

    Args:
        model: Model with heads as in `heads.heads_of`. A head that contains only zeros
            is not measured.
        dataset: `data.Dataset`.
        batch_options: Keyword arguments of `batches.evaluation_batches`.
        seed: Seed of the sample of images.
    """
    heads = heads_of(model)
    classes = heads[0].units
    most = max(MAX_IMAGES, PER_CLASS * classes)
    sampled = dataset.train.sample(most, seed)
    tested = dataset.validation.sample(MAX_IMAGES, seed)
    body = keras.Model(model.input, [head.input for head in heads])
    features, labels = _features(body, sampled, batch_options)
    fitted = [fit(x, labels, classes, seed) for x in features]
    unseen, unseen_labels = _features(body, tested, batch_options)
    kept = [[keras.ops.convert_to_numpy(w) for w in head.weights] for head in heads]
    has_head = all(np.any(kernel) for kernel, _ in kept)
    return Start(
        kept=_accuracy(unseen, kept, unseen_labels) if has_head else None,
        linear=_accuracy(unseen, fitted, unseen_labels),
        images=len(labels),
        tested=len(unseen_labels),
        heads=fitted,
    )


def assign(model: keras.Model, heads: list) -> None:
    """Sets kernel and bias of each head of the model."""
    for layer, weights in zip(heads_of(model), heads, strict=True):
        layer.set_weights(weights)


def fit(features, labels, classes: int, seed: int = 0):
    """Fits `kerasvit.evaluation.linear_probe`, validated on a quarter of the features.

    Args:
        features: Array (count, width).
        labels: Array (count,) of class indices.
        classes: Number of classes; a class without images is never predicted.
        seed: Seed of the held-out quarter.

    Returns:
        Kernel (width, classes) and bias (classes,), in float32.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    held, rest = np.split(order, [math.ceil(HELD_OUT * len(labels))])
    return linear_probe(
        features[rest], labels[rest], features[held], labels[held], classes
    )


def _features(body, images, batch_options):
    """Returns the inputs of all heads, as arrays (count, width), and the labels."""
    features, labels = [], []
    for batch, batch_labels in evaluation_batches(images, **batch_options):
        outputs = keras.tree.flatten(body.predict_on_batch(batch.numpy()))
        features.append([keras.ops.convert_to_numpy(x) for x in outputs])
        labels.append(batch_labels.numpy())
    features = [
        np.concatenate(x).astype("float32") for x in zip(*features, strict=True)
    ]
    return features, np.concatenate(labels)


def _accuracy(features, heads, labels):
    logits = sum(x @ k + b for x, (k, b) in zip(features, heads, strict=True))
    return float(np.mean(logits.argmax(-1) == labels))
