"""Fits the head of a model to frozen features."""

import dataclasses
import functools
import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import keras
import numpy as np

from kerasvit.arguments import ArgumentError, integer, one_of
from kerasvit.backend.threads import using
from kerasvit.evaluation.linear_probe import Head, label_probes, probes, quarter
from kerasvit.evaluation.several_labels import average_precision
from kerasvit.preprocessing import Preprocessing
from kerasvit.preprocessing.images import input_problem
from kerasvit.records import SEVERAL_LABELS, found_record

from .heads import inner_model, is_zero, linear_heads
from .labelled import Batch, check_shape, labelled_batches

MAX_IMAGES = 2_000  # images whose features are computed
PER_CLASS = 10  # raises MAX_IMAGES for many classes
TASKS = ("single_label", "multilabel")

log = logging.getLogger("kerasvit")


@dataclasses.dataclass(frozen=True)
class HeadAccuracy:
    """What `fit_head` returns: accuracies in [0, 1], of weighted images if they are.

    Of several labels they are mean average precisions.

    Attributes:
        training: Of the images that the head was fitted to.
        validation: Of the validation images. Without any, of the held-out quarter,
            classified by a head that was fitted to the others; the penalty was chosen
            there, so that it may be slightly too high. NaN if there is no such head.
        before: Of the same images as `validation`, with the head that the model had;
            None if that was zeros.
        images: Number of images that the head was fitted to.
        validation_images: Number of images of `validation` and `before`.
    """

    training: float
    validation: float
    before: float | None
    images: int
    validation_images: int


def fit_head(
    model: keras.Model,
    data: Any,
    validation: Any = None,
    *,
    task: Literal["single_label", "multilabel"] | None = None,
    max_images: int | None = None,
    batch_size: int = 32,
    seed: int = 0,
) -> HeadAccuracy:
    """Replaces the head by a linear classifier of frozen features, in seconds.

    The features, the inputs of the head, are computed once for each image; the head is
    the logistic regression `kerasvit.evaluation.linear_probe` of them. A fine-tuning
    should begin with it: a head of zeros sends the first gradients, large and random,
    into pretrained weights (Kumar et al. 2022, arXiv 2202.10054). Its accuracy is what
    the fine-tuning should exceed.

        print(kerasvit.fit_head(model, (images, labels)))
        model.compile(keras.optimizers.Adam(1e-5), loss)
        model.fit(images, labels, epochs=4)

    The result depends only on the arguments. Both heads of a distilled DeiT are fitted.
    The head is replaced even if it was better: see `HeadAccuracy.before`.

    Args:
        model: A classifier of kerasvit, with or without adapters; another functional
            or Sequential model whose last layer is a `Dense` of logits or softmax; or a
            trainer of one, such as `SAM`.
        data: Images as the model takes them, without random changes, and their labels:
            arrays in a tuple (images, labels) or (images, labels, sample weights); or
            batches of these, a tf.data.Dataset, a PyDataset, a torch DataLoader, a
            generator; or images of `kerasvit.data`, such as `images.train`. Labels are
            class indices (count,) or (count, 1), or one-hot (count, classes). A class
            without images is never predicted. An image that comes twice is used once,
            and one of weight 0 not at all.
        validation: Other images, of the same forms, to measure the accuracy. None: a
            quarter of `data`.
        task: "multilabel": an image may have several labels, or none, and labels are 0
            and 1, (count, classes). The head is `kerasvit.evaluation.label_probe`, for
            a loss of sigmoids such as Keras's `BinaryCrossentropy`. None: that of
            images of `kerasvit.data`, else "single_label".
        max_images: Number of images that are read of `data`, and of `validation`: of
            arrays and of images of `kerasvit.data` at random, of batches the first,
            also if they never end. None: 2,000, or 10 per class if that is more.
        batch_size: Number of images per call of the model, for arrays.
        seed: Seed of the quarter that chooses the penalty, and of the images, ≥ 0.

    Raises:
        ArgumentError: The model has no such head; the data have another form, no
            images, or images of one class only; a label is out of its range; the images
            have another size or another range of values than the model takes; a feature
            is NaN or infinite.
    """
    model = inner_model(model)
    several = _has_several(data, one_of("task", task, (None, *TASKS)))
    heads = linear_heads(model, several)
    read = max_images, batch_size, seed
    with using(model.variables, alone=True):
        return _fit(model, heads, data, validation, several, *read)


def _fit(
    model: keras.Model,
    heads: list[keras.layers.Dense],
    data: Any,
    validation: Any,
    several: bool,
    max_images: int | None,
    batch_size: int,
    seed: int,
) -> HeadAccuracy:
    classes = heads[0].units
    if max_images is None:
        max_images = max(MAX_IMAGES, PER_CLASS * classes)
    limit = integer("max_images", max_images, 2)
    seed = integer("seed", seed, 0)
    read: tuple = classes, limit, integer("batch_size", batch_size, 1), seed, several
    # A Sequential has no structure of its inputs, and Keras warns of a list of one.
    inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    body = keras.Model(inputs, [head.input for head in heads])
    data, validation = (_batches(x, model, *read[1:4]) for x in (data, validation))
    train = _features(body, model, "data", labelled_batches("data", data, *read))
    if len(train.labels) < 2:
        raise ArgumentError(
            "`data` must have two images at least. Received: 1.", "data"
        )
    rest, held = quarter(len(train.labels), seed)
    fit: Any = label_probes if several else functools.partial(probes, classes=classes)
    found = [
        fit((x[rest], *train.of(rest)[1:]), (x[held], *train.of(held)[1:]))
        for x in train.features
    ]
    fitted: Sequence[Head] = [whole for whole, _ in found]
    judged: Sequence[Head | None] = fitted
    if validation is None:
        unseen, judged = train.of(held), [alone for _, alone in found]
    else:
        batches = labelled_batches("validation", validation, *read)
        unseen = _features(body, model, "validation", batches)
    before = None
    if not is_zero(heads):
        before = unseen.accuracy([_values(head) for head in heads])
    accuracy = HeadAccuracy(
        training=train.accuracy(fitted),
        validation=unseen.accuracy(judged),
        before=before,
        images=len(train.labels),
        validation_images=len(unseen.labels),
    )
    for head, values in zip(heads, fitted, strict=True):
        head.set_weights(values)
    if record := found_record(model):
        for name in ("problem_type", "calibration"):  # of the head before
            record.pop(name, None)
        if several:
            record["problem_type"] = SEVERAL_LABELS
    _log_missing(train.labels, classes)
    return accuracy


class _Features(NamedTuple):
    """Features (count, width) for each head, with labels and weights of the images."""

    features: list[np.ndarray]
    labels: np.ndarray
    weights: np.ndarray | None

    def of(self, rows: np.ndarray) -> "_Features":
        features = [each[rows] for each in self.features]
        weights = None if self.weights is None else self.weights[rows]
        return _Features(features, self.labels[rows], weights)

    def accuracy(self, heads: Sequence[Head | None]) -> float:
        """Accuracy, or mAP, of the sum of the logits; NaN if a head is not fitted."""
        logits: Any = 0.0
        for x, head in zip(self.features, heads, strict=True):
            if head is None:
                return math.nan
            logits = logits + x @ head[0] + head[1]
        if self.labels.ndim == 2:
            return _mean_precision(logits, self.labels, self.weights)
        right = np.argmax(logits, -1) == self.labels
        return float(np.average(right, weights=self.weights))


def _mean_precision(
    logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None
) -> float:
    """Returns the mAP over the classes that an image has; NaN if there are none."""
    each = average_precision(logits, labels, weights)
    return float(np.mean(each[np.isfinite(each)])) if labels.any() else math.nan


def _has_several(data: Any, task: str | None) -> bool:
    """Whether images have several labels, by the task or by images of `kerasvit.data`.

    Raises:
        ArgumentError: These say something else.
    """
    images = getattr(data, "images", data)
    known = getattr(images, "has_several_labels", None)
    stated = None if task is None else task == "multilabel"
    if known is not None and stated not in (None, known):
        raise ArgumentError(
            f"`data` has images with {'several labels' if known else 'one label each'}."
            f" Received: task={task!r}. Leave it out.",
            "task",
        )
    return bool(known if stated is None else stated)


def _batches(
    data: Any, model: keras.Model, limit: int, batch_size: int, seed: int
) -> Any:
    """Returns the batches of images of `kerasvit.data`, and other data as they are.

    Images in folders are in the order of their classes: of many a sample is taken.
    """
    if hasattr(data, "images") and hasattr(data.images, "sample"):
        data = data.images  # of training images, each once
    if hasattr(data, "sample"):
        data = data.sample(limit, seed)
    if not hasattr(data, "batches"):
        return data
    return data.batches(model, min(batch_size, len(data)))


def _features(
    body: keras.Model, model: keras.Model, name: str, batches: Iterator[Batch]
) -> _Features:
    """Computes the features of all batches, without dropout."""
    features, weights = [], []
    labels: list[np.ndarray] = []
    for batch in batches:
        _check_images(model, name, batch)
        outputs = keras.tree.flatten(body.predict_on_batch(batch.x))
        outputs = [keras.ops.convert_to_numpy(x).astype("float32") for x in outputs]
        for x in outputs:
            _check_finite(name, x, sum(len(y) for y in labels), model)
        features.append(outputs)
        labels.append(batch.labels)
        weights.append(batch.weights)
    if not labels:
        raise ArgumentError(f"`{name}` has no images with a weight above 0.", name)
    known = [each for each in weights if each is not None]
    if known and len(known) < len(weights):
        raise ArgumentError(
            f"`{name}` must have sample weights in all batches, or in none.", name
        )
    return _Features(
        [np.concatenate(x) for x in zip(*features, strict=True)],
        np.concatenate(labels),
        np.concatenate(known) if known else None,
    )


def _check_images(model: keras.Model, name: str, batch: Batch) -> None:
    """Checks shape and values of images, where the model states what it takes."""
    check_shape(model, name, batch.x)
    if len(model.inputs) > 1 or not hasattr(batch.x, "shape"):
        return
    images = batch.x
    if not np.issubdtype(images.dtype, np.number) and images.dtype.kind not in "bV":
        raise ArgumentError(
            f"`{name}` must have arrays of numbers. Received: {images.dtype}.", name
        )
    record = found_record(model) or {}
    if record.get("preprocessing"):
        transform = Preprocessing.from_config(record["preprocessing"])
        built_in = (record.get("kwargs") or {}).get("normalization") is not None
        values = transform.mean, transform.std
        if problem := input_problem(images, *values, built_in=built_in):
            raise ArgumentError(f"`{name}`: {problem}", name)


def _check_finite(name: str, x: np.ndarray, first: int, model: keras.Model) -> None:
    finite = np.isfinite(x).all(-1)
    if not finite.all():
        image = first + int(np.argmin(finite))
        raise ArgumentError(
            f"`{name}`: the model's features of image {image} (from 0) are NaN or "
            "infinite. The image or the weights are damaged, or float16 overflows (use "
            f"float32 or mixed_bfloat16). Received: {model.dtype_policy.name}.",
            name,
        )


def _values(head: keras.layers.Dense) -> Head:
    kernel, bias = (keras.ops.convert_to_numpy(w) for w in (head.kernel, head.bias))
    return kernel.astype("float32"), bias.astype("float32")


def _log_missing(labels: np.ndarray, classes: int) -> None:
    found = labels if labels.ndim == 1 else np.flatnonzero(labels.any(axis=0))
    missing = np.setdiff1d(np.arange(classes), found)
    if len(missing):
        shown = ", ".join(map(str, missing[:5])) + ", …" * (len(missing) > 5)
        log.warning(
            "fit_head: none of the %s images that were read is of the classes %s. The "
            "head never predicts these. If the data have them, shuffle the data, or "
            "pass a larger `max_images`.",
            f"{len(labels):,}",
            shown,
        )
