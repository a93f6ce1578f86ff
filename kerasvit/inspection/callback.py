"""Measures a model along its training."""

from collections.abc import Callable, Mapping
from typing import Any

import keras

from kerasvit.arguments import ArgumentError, integer, one_of


class Inspect(keras.callbacks.Callback):
    """Records measurements of a model along its training.

        inspect = kerasvit.inspection.Inspect(
            {"λmax": lambda model: largest_eigenvalue(model, x, y, loss)}, every=5
        )
        trainer.fit(train_ds, epochs=50, callbacks=[inspect])
        inspect.steps, inspect.values["λmax"]

    The measurements see the weights after a step, and must not write any. They take
    place before the first step and then after every n-th epoch or step; where
    `steps_per_execution` is not 1, after the execution in which that step is.

    Args:
        measures: {name: function of the model that `fit` was called on}. A result may
            be of any type; it is kept as it is.
        every: Number of epochs, or of steps, from one measurement to the next, ≥ 1.
        unit: "epoch" or "step" (a batch of `fit`).
        at_start: Whether to measure before the first step too.

    Attributes:
        steps: Number of finished batches of `fit` at each measurement; a second call of
            `fit` counts on.
        values: {name: list of the results}, as long as `steps`.

    Raises:
        ValueError: An argument is of another type or out of its range.
    """

    def __init__(
        self,
        measures: Mapping[str, Callable[[keras.Model], Any]],
        *,
        every: int = 1,
        unit: str = "epoch",
        at_start: bool = True,
    ) -> None:
        super().__init__()
        known = isinstance(measures, Mapping) and measures
        if not known or not all(map(callable, measures.values())):
            raise ArgumentError(
                "`measures` must be a dictionary {name: function of a model} that is "
                f"not empty. Received: {measures!r}.",
                "measures",
            )
        self.measures = dict(measures)
        self.every = integer("every", every, 1)
        self.unit = one_of("unit", unit, ("epoch", "step"))
        self.at_start = at_start
        self.steps: list[int] = []
        self.values: dict[str, list[Any]] = {name: [] for name in self.measures}
        self._step = self._begun = self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Measures the model before its first step."""
        if self.at_start and not self._step:
            self._measure()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Counts steps from here."""
        self._begun = self._step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Measures the model, if its turn has come."""
        before = self._step
        # With `steps_per_execution`, several steps end at once; `batch` is the last,
        # which may be beyond the end of the epoch.
        steps = min(batch + 1, self.params.get("steps") or batch + 1)
        self._step = self._begun + steps
        if self.unit == "step" and self._step // self.every > before // self.every:
            self._measure()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Measures the model, if its turn has come."""
        self._epoch += 1
        if self.unit == "epoch" and self._epoch % self.every == 0:
            self._measure()

    def _measure(self) -> None:
        model = self.model  # on JAX, this writes the weights of `fit` into the model
        self.steps.append(self._step)
        for name, measure in self.measures.items():
            self.values[name].append(measure(model))
