"""Whether SAM helps on given images: short trainings with it and without."""

import dataclasses
import time
import warnings
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
        low, high: Ends of its 95 % interval, over the images.
        trainings: Number of pairs of trainings.
        steps: Steps of each.
        least: Smallest gain of a pair: the interval knows nothing about how much two
            trainings of one kind differ.
    """

    gain: float
    low: float
    high: float
    trainings: int
    steps: int
    least: float = np.nan

    @property
    def helps(self) -> bool:
        """Whether the interval, and the gains of two pairs or more, lie above 0."""
        return self.low > 0 and self.trainings > 1 and self.least > 0

    @property
    def sentence(self) -> str:
        """Says which is chosen, and why."""
        if not self.trainings:
            return "plain training: there was no time to try SAM; give more minutes"
        found = (
            f"SAM gained {100 * self.gain:+.1f} points of validation accuracy, 95 % "
            f"interval {100 * self.low:+.1f} to {100 * self.high:+.1f}, in "
            f"{self.trainings} pair{'s' * (self.trainings > 1)} of trainings of "
            f"{self.steps} steps"
        )
        if self.helps:
            return f"with SAM: {found}"
        if self.low > 0 and self.trainings == 1:
            found += ", where two are needed: give more minutes"
        elif self.low > 0:
            found += f", but {100 * self.least:+.1f} points in one of them"
        return f"plain training: {found}"


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
    pairs = _Pairs(model, x, y, optimizer, rho, batch_size, linear_head)
    end = time.monotonic() + 60 * minutes
    pairs.train(0, 1, steps)  # it compiles
    first = _seconds(lambda: pairs.train(0, 1, steps))
    more = _seconds(lambda: pairs.train(0, 1 + TIMED, steps)) - first
    each = max(more / TIMED, 1e-9)  # both steps of a pair
    count = min(steps, int((end - time.monotonic() - first) / each))
    if count < FEWEST_STEPS:
        return Trial(np.nan, np.nan, np.nan, 0, 0)
    sums, made = np.zeros((3, len(y))), 0  # times held out, right without and with SAM
    gains = []
    while not made or time.monotonic() + first + each * count < end:
        held, *hits = pairs.train(made, count, count)
        sums[:, held] += [np.ones(len(held)), *hits]
        gains.append(float(hits[1].mean() - hits[0].mean()))
        made += 1
    # An image that several pairs held out counts once: it is no more than one sample.
    times, *right = sums[:, sums[0] > 0]
    gain, low, high = paired_difference(*(each / times for each in right))
    return Trial(gain, low, high, made, count, min(gains))


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


class _Pairs:
    """Trains a copy of a model without SAM and with it, compiled once."""

    def __init__(
        self,
        model: keras.Model,
        x: np.ndarray,
        y: np.ndarray,
        optimizer: Callable[[int], keras.optimizers.Optimizer],
        rho: float,
        batch_size: int,
        linear_head: bool,
    ) -> None:
        self.x, self.y, self.rho, self.optimizer = x, y, rho, optimizer
        self.copy, self.start = keras.models.clone_model(model), model.get_weights()
        self.linear_head = linear_head
        self.trained = round(0.75 * len(y))
        self.batch_size = min(batch_size, self.trained)
        self.planned = 0
        self.trainers: list[tuple[SAM, list[np.ndarray]]] = []

    def train(
        self, seed: int, steps: int, planned: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns held-out images, and whether they are right without SAM and with it.

        Args:
            seed: Chooses the quarter and the order.
            steps: Number of steps.
            planned: Number of steps of the schedule.
        """
        if planned != self.planned:
            self._compile(planned)
        order = np.random.default_rng(seed).permutation(len(self.y))
        kept, held = np.split(order, [self.trained])
        self.copy.set_weights(self.start)
        if self.linear_head:
            data = self.x[kept], self.y[kept]
            fit_head(self.copy, data, batch_size=self.batch_size, seed=seed)
        begin, rows = (
            self.copy.get_weights(),
            _order(kept, steps * self.batch_size, seed),
        )
        first, second = (
            self._hits(trainer, state, begin, rows, held)
            for trainer, state in self.trainers
        )
        return held, first, second

    def _compile(self, steps: int) -> None:
        self.planned, self.trainers = steps, []
        for radius in (0.0, self.rho):
            trainer = SAM(self.copy, radius)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            trainer.compile(self.optimizer(steps), loss)
            trainer.optimizer.build(trainer.trainable_variables)
            state = [keras.ops.convert_to_numpy(v) for v in trainer.optimizer.variables]
            self.trainers.append((trainer, [value.copy() for value in state]))

    def _hits(
        self, trainer: SAM, state: list, begin: list, rows: np.ndarray, held: np.ndarray
    ) -> np.ndarray:
        self.copy.set_weights(begin)
        for variable, value in zip(trainer.optimizer.variables, state, strict=True):
            variable.assign(value)
        with warnings.catch_warnings():  # of a radius that is too large
            warnings.simplefilter("ignore")
            options = {"shuffle": False, "verbose": 0}
            trainer.fit(_Batches(self.x, self.y, rows, self.batch_size), **options)
        outputs = self.copy.predict(self.x[held], self.batch_size, verbose=0)
        return np.asarray(outputs.argmax(-1) == self.y[held])


class _Batches(keras.utils.PyDataset):
    """Batches of rows, which are copied one batch at a time: a row comes often."""

    def __init__(
        self, x: np.ndarray, y: np.ndarray, rows: np.ndarray, size: int
    ) -> None:
        super().__init__()
        self.x, self.y, self.rows, self.size = x, y, rows, size

    def __len__(self) -> int:
        return len(self.rows) // self.size

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.rows[index * self.size : (index + 1) * self.size]
        return self.x[rows], self.y[rows]


def _order(numbers: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Returns `count` of the numbers, each pass in an order of its own."""
    random = np.random.default_rng([seed, 1])
    passes = -(-count // len(numbers))
    return np.concatenate([random.permutation(numbers) for _ in range(passes)])[:count]


def _arrays(model: keras.Model, data: Any, batch_size: int) -> tuple:
    """Returns images and classes, of at most `MAX_IMAGES`."""
    of_training = getattr(data, "images", data)
    if hasattr(of_training, "sample"):  # of kerasvit.data, where they may be in classes
        data = of_training.sample(MAX_IMAGES, seed=0)
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
