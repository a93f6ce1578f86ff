"""A linear classifier on frozen features: the start of fine-tuning, and its yardstick.

    start = linear_head.start(model, dataset, reading)

A head of zeros sends large, random gradients into pretrained weights and destroys what
they know. Fitting the head first, which takes seconds, and training all weights
afterwards keeps it (Kumar et al. 2022, arXiv 2202.10054).
"""

import dataclasses
import math
import warnings

import keras
import numpy as np
from batches import evaluation_batches
from heads import heads_of

MOST_IMAGES = 2_000  # features are computed of
PER_CLASS = 10  # images a class at least, where there are more classes than for that
STRENGTHS = 10.0 ** np.arange(-4, 3)  # C of logistic regression, inverse of the penalty
HELD_OUT = 0.25  # share of the features that the strength is chosen by


@dataclasses.dataclass(frozen=True)
class Start:
    """What the loaded weights know of the task before any training.

    Attributes:
        kept: Validation accuracy in [0, 1] with the head of the weights; None where
            they have none for these classes.
        linear: The same with a linear classifier on frozen features.
        images: How many training images it was fitted to.
        tested: How many validation images both accuracies are of.
        heads: (kernel, bias) of each head of the model, those of the classifier.
    """

    kept: float | None
    linear: float
    images: int
    tested: int
    heads: list

    @property
    def accuracy(self):
        """The better of the two, which training should improve."""
        return max(self.linear, self.kept or 0.0)


def start(model: keras.Model, dataset, reading: dict, seed: int = 0) -> Start:
    """Fits a linear classifier to features of at most `MOST_IMAGES` training images.

    Args:
        model: With one or more layers called `head…`, the last that have weights; a
            head that is not all zeros is one of the weights, for the same classes.
        dataset: `data.Dataset`.
        reading: Keyword arguments of `batches.evaluation_batches`.
        seed: Of the choice of images.
    """
    heads = heads_of(model)
    classes = heads[0].units
    most = max(MOST_IMAGES, PER_CLASS * classes)
    sampled = dataset.train.sample(most, seed)
    tested = dataset.validation.sample(MOST_IMAGES, seed)
    body = keras.Model(model.input, [head.input for head in heads])
    features, labels = _features(body, sampled, reading)
    fitted = [fit(x, labels, classes, seed) for x in features]
    unseen, truth = _features(body, tested, reading)
    kept = [[keras.ops.convert_to_numpy(w) for w in head.weights] for head in heads]
    has_head = all(np.any(kernel) for kernel, _ in kept)
    return Start(
        kept=_accuracy(unseen, kept, truth) if has_head else None,
        linear=_accuracy(unseen, fitted, truth),
        images=len(labels),
        tested=len(truth),
        heads=fitted,
    )


def assign(model: keras.Model, heads: list) -> None:
    """Gives each head of the model its kernel and bias."""
    for layer, weights in zip(heads_of(model), heads, strict=True):
        layer.set_weights(weights)


def fit(features, labels, classes: int, seed: int = 0):
    """Multinomial logistic regression: kernel (width, classes) and bias (classes,).

    The penalty is the one with the least cross-entropy on a quarter of the features;
    features are standardised for it, and the result is for features as they are.

    Args:
        features: Array (count, width).
        labels: Array (count,) of integers.
        classes: How many there are; one without an image is never the answer.
        seed: Of the quarter.
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
    # Not the accuracy: a head with logits too large for its accuracy has gradients that
    # destroy the weights below it.
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
        # A weak penalty may not converge. Its cross-entropy counts as it is.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return regression.fit(features, labels)


def _features(body, images, reading):
    """The inputs of all heads, as arrays (count, width), and the labels."""
    features, labels = [], []
    for batch, truth in evaluation_batches(images, **reading):
        found = keras.tree.flatten(body.predict_on_batch(batch.numpy()))
        features.append([keras.ops.convert_to_numpy(x) for x in found])
        labels.append(truth.numpy())
    features = [
        np.concatenate(x).astype("float32") for x in zip(*features, strict=True)
    ]
    return features, np.concatenate(labels)


def _accuracy(features, heads, labels):
    logits = sum(x @ k + b for x, (k, b) in zip(features, heads, strict=True))
    return float(np.mean(logits.argmax(-1) == labels))
