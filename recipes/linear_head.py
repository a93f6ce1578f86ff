"""Fits a linear classifier to frozen features: initial head and baseline.

    start = linear_head.start(model, dataset, batch_options)

With a head of zeros, the first gradients are large and random and damage pretrained
weights. Fitting the head first, which takes seconds, and then training all weights
avoids this (Kumar et al. 2022, arXiv 2202.10054).
"""

import dataclasses
import math
import warnings

import keras
import numpy as np
from batches import evaluation_batches
from heads import heads_of

MAX_IMAGES = 2_000  # images whose features are computed
PER_CLASS = 10  # raises MAX_IMAGES for many classes
STRENGTHS = 10.0 ** np.arange(-4, 3)  # C of logistic regression, inverse of the penalty
HELD_OUT = 0.25  # share of the features that selects the strength


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
    """Fits multinomial logistic regression.

    The strength of the penalty has the smallest cross-entropy on a held-out quarter of
    the features. Features are standardised for the fit; the returned kernel and bias
    are for the original features.

    Args:
        features: Array (count, width).
        labels: Array (count,) of class indices.
        classes: Number of classes; a class without images is never predicted.
        seed: Seed of the held-out quarter.

    Returns:
        Kernel (width, classes) and bias (classes,), in float32.
    """
    mean, scale = features.mean(0), features.std(0) + 1e-6
    scaled = (features - mean) / scale
    regression = _fitted(_best_strength(scaled, labels, seed), scaled, labels)
    coefficients, intercepts = regression.coef_, regression.intercept_
    if len(regression.classes_) == 2:  # one row, of the second class against the first
        coefficients = np.concatenate([-coefficients, coefficients]) / 2
        intercepts = np.concatenate([-intercepts, intercepts]) / 2
    kernel = np.zeros((features.shape[1], classes), "float32")
    kernel[:, regression.classes_] = (coefficients / scale).T
    bias = np.full(classes, intercepts.min() - 10, "float32")
    bias[regression.classes_] = intercepts - coefficients @ (mean / scale)
    return kernel, bias


def _best_strength(features, labels, seed):
    order = np.random.default_rng(seed).permutation(len(labels))
    held, rest = np.split(order, [math.ceil(HELD_OUT * len(labels))])
    if len(np.unique(labels[rest])) < 2:
        return 1.0
    # The criterion is not the accuracy: a head with too large logits has gradients that
    # damage the weights below it.
    losses = []
    for strength in STRENGTHS:
        fitted = _fitted(strength, features[rest], labels[rest])
        known = held[np.isin(labels[held], fitted.classes_)]
        if not len(known):
            return 1.0
        columns = np.searchsorted(fitted.classes_, labels[known])
        logs = fitted.predict_log_proba(features[known])
        losses.append(-np.mean(logs[np.arange(len(known)), columns]))
    return STRENGTHS[np.argmin(losses)]


def _fitted(strength, features, labels):
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    regression = LogisticRegression(C=strength, max_iter=300, tol=1e-3)
    with warnings.catch_warnings():
        # A fit with a weak penalty may not converge; its cross-entropy is still used.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return regression.fit(features, labels)


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
