"""Whether SAM helps on given images: short trainings with it and without."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from kerasvit.arguments import ArgumentError
from kerasvit.evaluation import paired_difference
from kerasvit.training import SAM

from .fit_head import fit_head
from .labelled import class_indices, read_again

MAX_IMAGES = 4_000  # that are read
FEWEST = 40  # images, so that a quarter has ten
FEWEST_STEPS = 10  # of a training, for a comparison
TIMED = 3  # steps


@dataclasses.dataclass(frozen=True)
class Trial:
    """The gain of SAM in validation accuracy.

    Attributes:
        gain: Accuracy with SAM minus that without, on the same held-out images, in [-1,
            1]; NaN if there was no time for a comparison.
        low, high: Ends of its 95 % interval.
        trainings: Number of pairs of trainings.
        steps: Steps of each.
    """

    gain: float
    low: float
    high: float
    trainings: int
    steps: int

    @property
    def helps(self) -> bool:
        """Whether the interval lies above 0."""
        return self.low > 0

    @property
    def sentence(self) -> str:
        """Says which is chosen, and why."""
        if not self.trainings:
            return "plain training: there was no time to try SAM; give more minutes"
        found = (
            f"SAM gained {100 * self.gain:+.1f} points of validation accuracy, 95 % "
            f"interval {100 * self.low:+.1f} to {100 * self.high:+.1f}, in "
            f"{self.trainings} pairs of trainings of {self.steps} steps"
        )
        return f"with SAM: {found}" if self.helps else f"plain training: {found}"


def try_sam(
    model: keras.Model,
    data: Any,
    *,
    optimizer: Callable[[int], keras.optimizers.Optimizer],
    rho: float,
    batch_size: int,
    steps: int,
    linear_head: bool,
    minutes: float,
) -> Trial:
    """Trains copies of a model with SAM and without, on three quarters of the images.

    Each pair has its own quarter for validation. The first pair is always finished;
    others follow while there is time. Trainings are shorter than asked if not even one
    pair would fit.

    Args:
        model: Classifier of one label; it is not changed.
        data: As for `fit_head`; at most 4,000 images are read.
        optimizer: Function from the number of steps to a new optimizer.
        rho, batch_size, steps, linear_head: As in `TrainingSuggestion`.
        minutes: Time for all trainings, > 0.

    Raises:
        ArgumentError: There are fewer than 40 images, or they have another form.
    """
    x, y = _arrays(model, data, batch_size)
    trained = round(0.75 * len(y))
    size = min(batch_size, trained)
    end = time.monotonic() + 60 * minutes

    def pair(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        order = np.random.default_rng(seed).permutation(len(y))
        kept, held = order[:trained], order[trained:]
        hits = []
        for radius in (0.0, rho):
            keras.utils.set_random_seed(seed)
            copy = keras.models.clone_model(model)
            copy.set_weights(model.get_weights())
            if linear_head:
                fit_head(copy, (x[kept], y[kept]), batch_size=size, seed=seed)
            trainer = SAM(copy, radius)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            trainer.compile(optimizer(count), loss)
            rows = _order(kept, count * size, seed)
            trainer.fit(x[rows], y[rows], batch_size=size, shuffle=False, verbose=0)
            outputs = trainer.predict(x[held], batch_size=size, verbose=0)
            hits.append(outputs.argmax(-1) == y[held])
        return hits[0], hits[1]

    pair(0, 1)  # it compiles
    begin = time.monotonic()
    pair(0, TIMED)
    each = (time.monotonic() - begin) / TIMED
    count = min(steps, int((end - time.monotonic()) / max(each, 1e-9)))
    if count < FEWEST_STEPS:
        return Trial(np.nan, np.nan, np.nan, 0, 0)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    while not found or time.monotonic() + each * count < end:
        found.append(pair(len(found), count))
    hits, others = (np.concatenate(part) for part in zip(*found, strict=True))
    gain, low, high = paired_difference(hits, others)
    return Trial(gain, low, high, len(found), count)


def _order(numbers: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Returns `count` of the numbers, each pass in an order of its own."""
    random = np.random.default_rng([seed, 1])
    passes = -(-count // len(numbers))
    return np.concatenate([random.permutation(numbers) for _ in range(passes)])[:count]


def _arrays(model: keras.Model, data: Any, batch_size: int) -> tuple:
    """Returns images and classes, of at most `MAX_IMAGES`."""
    classes, images, labels = model.outputs[0].shape[-1], [], []
    for x, y, _ in read_again(model, data, batch_size):
        images.append(x)
        labels.append(class_indices("data", y, len(y), classes))
        if sum(map(len, labels)) >= MAX_IMAGES:
            break
    if sum(map(len, labels)) < FEWEST:
        raise ArgumentError(
            f"`try_sam` compares on held-out images, and needs {FEWEST} images or "
            f"more. Received: {sum(map(len, labels))}.",
            "data",
        )
    return np.concatenate(images)[:MAX_IMAGES], np.concatenate(labels)[:MAX_IMAGES]
