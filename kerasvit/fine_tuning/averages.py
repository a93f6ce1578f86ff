"""Averages of the weights of several models: soups, and WiSE-FT."""

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from kerasvit.arguments import ArgumentError, integer, number_of_each
from kerasvit.backend.keras_private import layers_in
from kerasvit.evaluation.several_labels import average_precision
from kerasvit.records import SEVERAL_LABELS, found_record

from .heads import inner_model
from .labelled import class_indices, read_again

ALPHAS = tuple(i / 10 for i in range(11))

_OF_TRAINING = ("dropout", "stochastic_depth")

log = logging.getLogger("kerasvit")


@dataclasses.dataclass(frozen=True)
class Interpolation:
    """What `interpolate_weights` returns.

    Attributes:
        alphas: Shares of the fine-tuned weights, ascending.
        scores: Accuracy of each on the data, or mAP of several labels, in [0, 1].
        model: New model with the share of the best score, the largest of equal ones.
    """

    alphas: tuple[float, ...]
    scores: tuple[float, ...]
    model: keras.Model

    @property
    def best(self) -> float:
        """Share of the fine-tuned weights that `model` has."""
        return self.alphas[_last_best(self.scores)]


def average_weights(
    models: Sequence[keras.Model],
    data: Any = None,
    greedy: bool = False,
    *,
    batch_size: int = 32,
) -> keras.Model:
    """Returns a model with the mean of the weights of several: a soup.

    Models that were fine-tuned from the same weights, with other settings or seeds,
    often have a mean that is better than each of them, and costs no more to use. Means
    of models with other starts are of no use.

        soup = kerasvit.average_weights([first, second, third], (images, labels), True)

    Args:
        models: Models of one architecture, of kerasvit or any of Keras; of trainers,
            the models inside.
        data: Labelled images as the models take them, that were not trained on, in any
            of the forms of `kerasvit.fit_head`; all are read. The statistics of batch
            normalisation are measured again on them, by passes in training mode, as
            PyTorch's `update_bn` does: those of an average are not the average.
        greedy: False takes all models. True begins with the best on `data`, tries the
            others from the best on, and keeps each that does not make the accuracy (of
            several labels: the mAP) worse.
        batch_size: Number of images per call of the model, for arrays.

    Returns:
        A new model. A message of the logger "kerasvit" says what a greedy soup has.

    Raises:
        ArgumentError: The models differ in their weights, or have weights of integers;
            `data` are missing, of another form, or do not fit the model.

    Reference: Wortsman et al. 2022, arXiv 2203.05482, section 2 and recipe 1.
    """
    found = _checked(models)
    integer("batch_size", batch_size, 1)
    data = _kept(data)
    result = _copy(found[0])
    values = [model.get_weights() for model in found]
    normalizes = bool(_batch_norms(result))
    if data is None and (greedy or normalizes):
        reason = "`greedy` compares models" if greedy else "statistics of batch norms"
        raise ArgumentError(
            f"`data`: {reason}, for which it needs labelled images. Give validation "
            "images.",
            "data",
        )

    def set_mean(chosen: list[int]) -> None:
        _set(result, [values[i] for i in chosen], [1 / len(chosen)] * len(chosen))
        if normalizes and len(chosen) > 1:
            _measure_statistics(result, data, batch_size)

    if not greedy:
        set_mean(list(range(len(found))))
        return result
    scores = [_score(model, data, batch_size) for model in found]
    order = sorted(range(len(found)), key=lambda i: -scores[i])
    chosen, best = order[:1], scores[order[0]]
    for i in order[1:]:
        set_mean([*chosen, i])
        if (score := _score(result, data, batch_size)) >= best:
            chosen, best = [*chosen, i], score
    set_mean(chosen)
    log.info(
        "average_weights: the soup has the models %s of %s; its score is %.4f, that of "
        "the best model %.4f.",
        *(", ".join(map(str, chosen)), len(found), best, scores[order[0]]),
    )
    return result


def interpolate_weights(
    start: keras.Model,
    tuned: keras.Model,
    data: Any,
    alphas: Sequence[float] = ALPHAS,
    *,
    batch_size: int = 32,
) -> Interpolation:
    """Returns models between loaded and fine-tuned weights: WiSE-FT.

    (1 - alpha) · start + alpha · tuned is often more robust to other images than
    `tuned`, and as accurate on images like those of the training.

        start = kerasvit.ViTB16("vit_base.safetensors", num_classes=37)
        kerasvit.fit_head(start, (images, labels))
        tuned = keras.models.clone_model(start)
        tuned.set_weights(start.get_weights())
        tuned.compile(...)
        tuned.fit(images, labels)
        curve = kerasvit.interpolate_weights(start, tuned, (others, their_labels))

    Args:
        start: Model with the weights before the fine-tuning, and a head, such as that
            of `kerasvit.fit_head`.
        tuned: The same, fine-tuned.
        data: As for `average_weights`, to choose by.
        alphas: Shares of the fine-tuned weights, in [0, 1].
        batch_size: As for `average_weights`.

    Raises:
        ArgumentError: As for `average_weights`; a share is out of its range.

    Reference: Wortsman et al. 2022, arXiv 2109.01903, section 3.
    """
    found = _checked((start, tuned))
    integer("batch_size", batch_size, 1)
    data = _kept(data)
    listed = [alphas] if np.ndim(alphas) == 0 else list(alphas)
    shares = sorted(set(number_of_each("alphas", listed, len(listed), 0, 1)))
    if not shares:
        raise ArgumentError("`alphas` is empty. Give at least one share.", "alphas")
    result = _copy(found[0])
    values = [model.get_weights() for model in found]

    def set_share(alpha: float) -> None:
        _set(result, values, [1 - alpha, alpha])
        if 0 < alpha < 1 and _batch_norms(result):
            _measure_statistics(result, data, batch_size)

    scores = []
    for alpha in shares:
        set_share(alpha)
        scores.append(_score(result, data, batch_size))
    set_share(shares[_last_best(scores)])
    return Interpolation(tuple(shares), tuple(scores), result)


def _last_best(scores: Sequence[float]) -> int:
    return len(scores) - 1 - int(np.argmax(scores[::-1]))


def _checked(given: Any) -> list[keras.Model]:
    """Returns the models inside trainers, if they have the same weights of floats."""
    if not isinstance(given, Iterable) or not list(given):
        raise ArgumentError(
            f"`models` must be a list of at least one. Received: {given!r:.200}.",
            "models",
        )
    models = [inner_model(model) for model in given]
    for i, model in enumerate(models):
        if not isinstance(model, keras.Model) or not model.built:
            raise ArgumentError(
                f"Expected built Keras models. Received: {model!r:.200}.", "models"
            )
        shapes = [(w.name, tuple(w.shape)) for w in model.weights]
        if i == 0:
            first = shapes
        elif shapes != first:
            pairs = zip(first, shapes, strict=False)
            differ = next((p for p in pairs if p[0] != p[1]), (len(first), len(shapes)))
            raise ArgumentError(
                "Models must have the same weights, to be averaged. Those of model "
                f"{i} differ from those of model 0: {differ[1]} instead of "
                f"{differ[0]}.",
                "models",
            )
        elif _function(model) != _function(models[0]):
            raise ArgumentError(
                f"Models must be of one architecture, with the same classes in the same"
                f" order, to be averaged. The records of models {i} and 0 differ.",
                "models",
            )
        if not all(np.isfinite(w).all() for w in model.get_weights()):
            raise ArgumentError(
                f"Weights of model {i} are not finite: it is damaged. Leave it out.",
                "models",
            )
    modes = [getattr(x, "quantization_mode", None) for x in layers_in(models[0])]
    if any(modes):
        raise ArgumentError(
            "The weights must be floats. Received: quantised models. Average them "
            "before `quantize`.",
            "models",
        )
    return models


def _copy(model: keras.Model) -> keras.Model:
    """Returns a copy without calibration, which is of the outputs of one model."""
    copy = keras.models.clone_model(model)
    (found_record(copy) or {}).pop("calibration", None)
    return copy


def _function(model: keras.Model) -> tuple:
    """Returns what the record of a model says about what it computes."""
    record = found_record(model) or {}
    kwargs = {
        k: v for k, v in record.get("kwargs", {}).items() if k not in _OF_TRAINING
    }
    return record.get("builder"), kwargs, record.get("label_names")


def _set(
    model: keras.Model, values: list[list[np.ndarray]], shares: list[float]
) -> None:
    """Sets the weights to a sum, computed in float64; integers to the first."""
    summed = []
    for each in zip(*values, strict=True):
        if np.issubdtype(each[0].dtype, np.integer):
            summed.append(each[0])
            continue
        pairs = zip(each, shares, strict=True)
        mean = sum(share * value.astype("float64") for value, share in pairs if share)
        summed.append(np.asarray(mean, each[0].dtype))
    model.set_weights(summed)


def _batch_norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    layers = layers_in(model)
    return [x for x in layers if isinstance(x, keras.layers.BatchNormalization)]


def _measure_statistics(model: keras.Model, data: Any, batch_size: int) -> None:
    """Sets the moving statistics to their means over the batches."""
    layers = _batch_norms(model)
    kept = [(layer.momentum, layer.trainable) for layer in layers]
    try:
        for layer in layers:
            layer.trainable = True  # frozen ones use their statistics in training, too
        for i, (x, _, _) in enumerate(read_again(model, data, batch_size)):
            for layer in layers:
                layer.momentum = i / (i + 1)
            model(x, training=True)
    finally:
        for layer, (momentum, trainable) in zip(layers, kept, strict=True):
            layer.momentum, layer.trainable = momentum, trainable


def _score(model: keras.Model, data: Any, batch_size: int) -> float:
    """Returns the accuracy on data, or the mAP of several labels."""
    logits, labels = [], []
    for x, y, _ in read_again(model, data, batch_size):
        logits.append(keras.ops.convert_to_numpy(model.predict_on_batch(x)))
        labels.append(np.asarray(y))
    if not logits:
        raise ArgumentError("`data` has no images.", "data")
    outputs = np.concatenate(logits).astype("float32")
    truth = np.concatenate(labels)
    record = found_record(model) or {}
    several = record.get("problem_type") == SEVERAL_LABELS
    if truth.shape == outputs.shape and not (truth.sum(axis=1) == 1).all():
        several = True
    if several:
        if not truth.any():
            raise ArgumentError("`data`: no image has a label to compare by.", "data")
        return float(np.nanmean(average_precision(outputs, truth)))
    classes = class_indices("data", truth, len(outputs), outputs.shape[-1])
    return float((outputs.argmax(axis=1) == classes).mean())


def _kept(data: Any) -> Any:
    """Returns data that can be read again: the batches of a generator in a list."""
    return list(data) if isinstance(data, Iterator) else data
