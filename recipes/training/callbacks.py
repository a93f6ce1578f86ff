"""Callbacks of `fit` that score a model at the end of a round (an epoch of `fit`).

    few_shot = callbacks.FewShot((x, y), (x_test, y_test), classes=10, shots=(1, 5))
    scores = callbacks.Scores((x_test, y_test))
    trainer.fit(x, y, epochs=5, callbacks=[few_shot, scores])

Their numbers are in `logs`, and so in the history, for `CSVLogger` or `EarlyStopping`,
which must stand after them in the list. Weights are their moving averages, if the
optimizer has some. The model may be in `kerasvit.SAM` or another trainer of kerasvit.
"""

from collections.abc import Callable, Sequence

import keras
import numpy as np
from command import command_line
from scoring.outputs import Predictor, as_logits
from training.validation import averaged

import kerasvit
from kerasvit import evaluation
from kerasvit.data import Images, TransformedImages
from kerasvit.evaluation import log_probabilities
from kerasvit.fine_tuning import heads_of

Given = Images | tuple[np.ndarray, np.ndarray]


class _AtEnd(keras.callbacks.Callback):
    """Adds numbers to the logs after the first and after each n-th round.

    Args:
        every: n.
        outputs: Function (model, images) that returns the outputs for `Images`; None:
            `predict`, of arrays.
    """

    def __init__(self, every: int, outputs: Callable | None):
        super().__init__()
        self.every, self.outputs = every, outputs or _predicted

    def on_epoch_end(self, epoch, logs=None):
        """Adds the numbers, each as `val_` and its name."""
        if epoch and (epoch + 1) % self.every:
            return
        with averaged(self.model):  # on JAX, it gets the weights of `fit`, too
            found = self.measure()
        logs.update({f"val_{name}": value for name, value in found.items()})


class Scores(_AtEnd):
    """Adds top-1, top-5, negative log-likelihood and calibration error to the logs.

    They are `val_top1`, `val_top5`, `val_nll` and `val_ece` (15 bins), as evaluate.py
    computes them.

    Args:
        test: (inputs of the model, class indices).
        every: Rounds from one measurement to the next.
        outputs: As for `_AtEnd`.
    """

    def __init__(self, test: Given, *, every: int = 1, outputs: Callable | None = None):
        super().__init__(every, outputs)
        self.test = _images(test)

    def measure(self) -> dict[str, float]:
        """Returns {name: number} of the present weights."""
        labels = self.test.labels
        logits = as_logits(self.outputs(_inner(self.model), self.test))
        hits = evaluation.top_k_hits(logits, labels)
        logs = log_probabilities(logits)
        confidences = np.exp(logs.max(axis=1))
        return {
            "top1": float(hits.mean()),
            "top5": float(evaluation.top_k_hits(logits, labels, 5).mean()),
            "nll": -float(logs[np.arange(len(labels)), labels].mean()),
            "ece": evaluation.expected_calibration_error(confidences, hits),
        }


class FewShot(_AtEnd):
    """Adds the accuracy of few-shot least squares on frozen features to the logs.

    It is `val_5_shot` for 5 shots, the mean over the seeds: the protocol of
    `evaluation.few_shot_hits`. Only features of chosen training images are computed.

    Args:
        train, test: (inputs of the model, class indices).
        classes: Number of classes.
        shots: Numbers of training images per class.
        seeds: Number of choices of these images.
        every: Rounds from one measurement to the next.
        outputs: As for `_AtEnd`.

    Raises:
        ValueError: A class has fewer images than shots.
    """

    def __init__(
        self,
        train: Given,
        test: Given,
        *,
        classes: int,
        shots: Sequence[int] = (10,),
        seeds: int = 3,
        every: int = 1,
        outputs: Callable | None = None,
    ):
        super().__init__(every, outputs)
        train, self.test = _images(train), _images(test)
        self.classes, self.frozen = classes, None
        chosen = {
            k: [
                evaluation.shots_of_classes(train.labels, classes, k, seed)
                for seed in range(seeds)
            ]
            for k in shots
        }
        numbers = np.unique(np.concatenate([*map(np.concatenate, chosen.values())]))
        self.train = train.part(numbers)
        self.places = {k: np.searchsorted(numbers, x) for k, x in chosen.items()}

    def set_model(self, model):
        """Builds the model of the features: the input of the head."""
        super().set_model(model)
        inner = _inner(model)
        inputs = [head.input for head in heads_of(inner)]  # two of a distilled DeiT
        features = keras.ops.mean(keras.ops.stack(inputs), axis=0)
        features = keras.ops.cast(features, "float32")
        self.frozen = keras.Model(inner.inputs[0], features)

    def measure(self) -> dict[str, float]:
        """Returns {name: number} of the present weights."""
        train, test = (
            self.outputs(self.frozen, images) for images in (self.train, self.test)
        )

        def hits(places):
            kernel, bias = evaluation.least_squares(
                train[places], self.train.labels[places], self.classes
            )
            return (test @ kernel + bias).argmax(1) == self.test.labels

        return {
            f"{k}_shot": float(np.mean([hits(places) for places in each]))
            for k, each in self.places.items()
        }


def of(config, here, dataset, options: dict) -> list[FewShot]:
    """Returns the callback of `--few-shot`, if there are shots.

    Args:
        config: Dataclass of the settings.
        here: `devices.Devices` of the training.
        dataset: `kerasvit.data.LabelledImages`.
        options: Keyword arguments of `Images.batches`.
    """
    if not config.few_shot:
        return []
    predict = Predictor(here, options["batch_size"], placed=True)

    def outputs(model, images):
        return predict(model, images, options["model"], options["normalize"])

    classes, shots = len(dataset.class_names), config.few_shot
    images = dataset.train.images, dataset.validation
    with command_line.checking_input():
        return [FewShot(*images, classes=classes, shots=shots, outputs=outputs)]


def _images(given):
    return TransformedImages(*given) if isinstance(given, tuple) else given


def _predicted(model, images):
    return np.asarray(model.predict(images.items, verbose=0), "float32")


def _inner(model):
    """Returns the model in a trainer of kerasvit."""
    return _inner(model.model) if isinstance(model, kerasvit.SAM) else model
