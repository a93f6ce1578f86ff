"""Base of the train steps on TensorFlow and PyTorch, which write variables in place."""

import contextlib
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import keras

from kerasvit.types import Gradients, Tensor

from .keras_private import global_seed_generator, set_global_seed_generator, track_loss
from .train_step import Step, batch_size, loss_scale, new_slots, seed_shifts, times
from .update import Update, put_back, take_out


class StatefulStep(Step):
    """Train step that reads variables and writes them at its end.

    Subclasses for a backend implement the last methods of this class.
    """

    # ids of trainable variables for which Keras's own step has no gradient either
    _independent: frozenset[int] = frozenset()

    def train_step(self, data: Any) -> dict[str, Any]:
        """Takes one optimizer step on the batch of one device; returns the logs."""
        with self.step_scope():
            return self._train_step(data)

    def _train_step(self, data: Any) -> dict[str, Any]:
        batch = x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        variables = self.trainable_variables
        # Variables are written after all gradients have been computed.
        weights = self.values_of(variables)
        slot_variables = self.step_slots()
        old_slots = self.values_of(slot_variables)
        scale = self.loss_factor()

        def update(batch: Any, index: Any) -> tuple[Update, Any]:
            return self._micro_batch_update(batch, index, weights, old_slots, scale)

        def metrics() -> list[Tensor]:
            return self.values_of(self.metrics_variables)

        device = self.device_number()
        total, y_pred = self.sum_micro_batches(update, batch, metrics, device)
        total = self.across_devices(total)
        written = [*self._state(), *self.metrics_variables, *slot_variables]
        slots = new_slots(old_slots, total.slots)
        values = itertools.chain(total.state, total.metrics, slots)
        for variable, value in zip(written, values, strict=True):
            if value is not None:
                variable.assign(value)
        loss, gradients, overwritten = total.loss, total.gradients, total.overwritten
        del total, slots, values  # frees memory for the optimizer
        if variables:
            gradients = gradients if scale is None else times(gradients, scale)
            self.apply(put_back(gradients, overwritten), variables)
        else:
            warnings.warn(
                "The model does not have any trainable weights.", stacklevel=2
            )
        track_loss(self, loss, batch_size(x))
        logs = self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        return {**logs, **self.step_logs()}

    def assign_between_steps(self, variable: keras.Variable, value: Any) -> None:
        """Assigns a variable of the trainer, also during `fit`."""
        variable.assign(value)

    def _state(self) -> list[keras.Variable]:
        slots = {id(variable) for variable in self.step_slots()}
        state = [v for v in self.non_trainable_variables if id(v) not in slots]
        # Random layers without a seed use Keras's global generator, which is not among
        # the variables of a model.
        generator = global_seed_generator()
        return state if generator is None else [*state, generator.state]

    def _micro_batch_update(
        self,
        batch: Any,
        index: Any,
        weights: list[Tensor],
        slots: list[Tensor],
        scale: Tensor | None,
    ) -> tuple[Update, Any]:
        """Returns (update, outputs) of one micro-batch."""
        x, y, sample_weight = batch
        with self.no_gradients():
            batch = x, self.step_targets(x, y), sample_weight
        state = self._state()
        shifts = seed_shifts(state, index)
        seeds = [(state[i], state[i].value + shift) for i, shift in shifts.items()]
        random_state = self.random_state()
        first: list[tuple] = []  # results of the first pass

        def loss_and_gradients(values: list[Tensor]) -> tuple[Tensor, Gradients]:
            self.set_random_state(random_state)
            loss, gradients, y_pred, scope = self.gradients_of(values, seeds, batch)
            self._check_reached(gradients, seeds, batch)
            gradients, overwritten = take_out(gradients, self.trainable_variables)
            if not first:  # The scope is not kept: it holds the weights of this pass.
                # The pass may have created Keras's global generator; it is the last.
                after = [scope.get_current_value(v) for v in self._state()]
                metrics = [scope.get_current_value(v) for v in self.metrics_variables]
                first.append((loss, y_pred, after, metrics, overwritten))
            if scale is not None:
                gradients = times(gradients, 1 / scale)
            if self.perturbation == "global":
                gradients = self.mean_over_devices(gradients)
            return loss, gradients

        gradients, slots = self.selected_gradients(loss_and_gradients, weights, slots)
        loss, y_pred, after, metrics, overwritten = first[0]
        for i, shift in shifts.items():
            after[i] = after[i] - shift
        update = Update(loss, gradients, slots, after, metrics, overwritten)
        return update, y_pred

    def check_unwritten(
        self, scope: keras.StatelessScope, values: list[Tensor]
    ) -> None:
        """Checks that no layer assigned a trainable weight in `call`.

        Args:
            scope: Scope of a pass.
            values: Tensors that the scope had for the trainable variables.

        Raises:
            ValueError: A trainable weight was assigned.
        """
        written = [
            variable.path
            for variable, value in zip(self.trainable_variables, values, strict=True)
            if scope.get_current_value(variable) is not value
        ]
        if written:
            raise ValueError(
                "A layer assigns trainable weights in `call`, as "
                "keras.layers.SpectralNormalization does, but under "
                f"{type(self).__name__} only the optimizer may assign them. "
                f"Received: {written}. Let the layer compute with the new value "
                "instead of assigning it, use a `kernel_constraint`, which the "
                "optimizer applies after a step, or freeze the layer."
            )

    def make_train_function(self, force: bool = False) -> None:
        """Makes the train function; the next step checks weights without gradient."""
        if force or self.train_function is None:
            self._independent = frozenset()
        super().make_train_function(force)

    def _check_reached(self, gradients: Gradients, seeds: list, batch: Any) -> None:
        """Checks that weights with a gradient in Keras's own step have one here.

        A layer that reads a variable in another way than by its `value` does not
        compute with the value of this step, and the loss has no gradient by that value.

        Raises:
            ValueError: The gradient of a weight is missing.
        """
        missing = [
            variable
            for variable, gradient in zip(
                self.trainable_variables, gradients, strict=True
            )
            if gradient is None and id(variable) not in self._independent
        ]
        if not missing:
            return
        plain = self.gradients_by_variables(missing, seeds, batch)
        lost = [v.path for v, g in zip(missing, plain, strict=True) if g is not None]
        if lost:
            raise ValueError(
                "The loss depends on these weights, but has no gradient at the values "
                f"that {type(self).__name__} computes with: {lost}. A layer must read "
                "its weights as `self.kernel` or `self.kernel.value` in each `call`: "
                "not from a tensor or parameter of the backend that it has stored, and "
                "not within its own `keras.StatelessScope`. A function with a custom "
                "gradient must take the weights as arguments."
            )
        self._independent |= {id(variable) for variable in missing}

    def values_of(self, variables: list[keras.Variable]) -> list[Tensor]:
        """Returns values of variables as tensors, valid until these are assigned."""
        raise NotImplementedError

    def gradients_of(
        self, values: list[Tensor], seeds: list, batch: Any
    ) -> tuple[Tensor, Gradients, Any, keras.StatelessScope]:
        """Returns (loss, gradients, outputs, scope) of a pass at given weights.

        `seeds` are pairs of a variable and its value for this pass.
        """
        raise NotImplementedError

    def gradients_by_variables(
        self, variables: list[keras.Variable], seeds: list, batch: Any
    ) -> Gradients:
        """Returns the gradients of Keras's own step, without substituted variables.

        No variable is changed.
        """
        raise NotImplementedError

    def no_gradients(self) -> contextlib.AbstractContextManager:
        """Returns a context in which no operations are recorded for gradients."""
        return contextlib.nullcontext()

    def loss_factor(self) -> Tensor | None:
        """Returns the loss scale that the optimizer expects, or None.

        The gradients that `gradients_of` returns are multiplied by it.
        """
        return loss_scale(self.optimizer)

    def apply(self, gradients: Gradients, variables: list[keras.Variable]) -> None:
        """Applies the optimizer to the mean gradients over devices."""
        raise NotImplementedError

    def device_number(self) -> Any:
        """Returns the number of this device among those that train together."""
        return 0

    def mean_over_devices(self, tensors: Gradients) -> Gradients:
        """Returns the means of tensors over devices; None stays None."""
        raise NotImplementedError

    def across_devices(self, update: Update) -> Update:
        """Averages the entries of an update that must be equal on all devices."""
        raise NotImplementedError

    def random_state(self) -> Any:
        """Returns the state of random generators that is not in variables."""

    def set_random_state(self, state: Any) -> None:
        """Restores the state that `random_state` returned."""


@contextlib.contextmanager
def restored(trainer: keras.Model) -> Iterator[None]:
    """Context that restores at its end all values that training changes.

    They are the variables of the trainer, its model, optimizer and metrics, Keras's
    global seed and the states of PyTorch's generators.

    Args:
        trainer: A compiled `SAM`.
    """
    generator = global_seed_generator()
    variables = [
        *trainer.variables,
        *trainer.metrics_variables,
        *trainer.model.metrics_variables,
        *trainer.optimizer.variables,
    ]
    if generator is not None:
        variables.append(generator.state)
    values = [keras.ops.convert_to_numpy(v).copy() for v in variables]
    stateful = isinstance(trainer, StatefulStep)
    random_state = trainer.random_state() if stateful else None
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        # A generator that training created is removed: its state has advanced.
        set_global_seed_generator(generator)
        if random_state is not None:
            trainer.set_random_state(random_state)
