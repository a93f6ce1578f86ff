"""Base of the train steps on TensorFlow and PyTorch, which write variables in place."""

import itertools
import warnings

import keras
from keras.src.backend.common import global_state

from .micro_batches import seed_shifts
from .overwritten import put_back, take_out
from .stateless import batch_size
from .step import Step, loss_scale, remembered, times
from .update import Update


class StatefulStep(Step):
    """Train step that reads variables and writes them at its end.

    The door to a backend adds the methods at the end.
    """

    # ids of trainable variables that Keras's own step has no gradient for, either.
    _independent = frozenset()

    def train_step(self, data):
        """Takes one optimizer step on the batch of one device; returns the logs."""
        with self.step_scope():
            return self._train_step(data)

    def _train_step(self, data):
        batch = x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        variables = self.trainable_variables
        # Nothing that the trainer keeps is written until the step is known.
        weights = self.values_of(variables)
        memory_variables = self.memory_of(variables)
        held = self.values_of(memory_variables)
        scale = self.loss_factor()

        def update(batch, part):
            return self._part(batch, part, weights, held, scale)

        def metrics():
            return self.values_of(self.metrics_variables)

        total, y_pred = self.in_parts(update, batch, metrics, self.device_number())
        total = self.across_devices(total)
        written = [*self._state(), *self.metrics_variables, *memory_variables]
        memory = remembered(held, total.memory)
        values = itertools.chain(total.state, total.metrics, memory)
        for variable, value in zip(written, values, strict=True):
            if value is not None:
                variable.assign(value)
        self._loss_tracker.update_state(total.loss, sample_weight=batch_size(x))
        gradients, overwritten = total.gradients, total.overwritten
        del total, memory, values  # The optimizer needs the room.
        if variables:
            gradients = gradients if scale is None else times(gradients, scale)
            self.apply(put_back(gradients, overwritten), variables)
        else:
            warnings.warn(
                "The model does not have any trainable weights.", stacklevel=2
            )
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def assign_between_steps(self, variable, value):
        """Assigns a variable of the trainer, also during `fit`."""
        variable.assign(value)

    def _state(self):
        memory = {id(variable) for variable in self.memory_of(self.trainable_variables)}
        state = [v for v in self.non_trainable_variables if id(v) not in memory]
        # Random layers without a seed of their own draw from Keras's, which no model
        # owns.
        generator = global_state.get_global_attribute("global_seed_generator")
        return state if generator is None else [*state, generator.state]

    def _part(self, batch, part, weights, memory, scale):
        """Returns (update, outputs) of one part of the batch."""
        state = self._state()
        shifts = seed_shifts(state, part)
        seeds = [(state[i], state[i].value + shift) for i, shift in shifts.items()]
        random_state = self.random_state()
        first = []

        def loss_and_gradients(values):
            self.set_random_state(random_state)
            loss, gradients, y_pred, scope = self.gradients_of(values, seeds, batch)
            self._check_reached(gradients, seeds, batch)
            gradients, overwritten = take_out(gradients, self.trainable_variables)
            if not first:  # Not the scope, which has the weights of this pass.
                # Keras's own generator may be new, and is the last.
                after = [scope.get_current_value(v) for v in self._state()]
                metrics = [scope.get_current_value(v) for v in self.metrics_variables]
                first.append((loss, y_pred, after, metrics, overwritten))
            if scale is not None:
                gradients = times(gradients, 1 / scale)
            if self.perturbation == "global":
                gradients = self.mean_over_devices(gradients)
            return loss, gradients

        gradients, memory = self.part_gradients(loss_and_gradients, weights, memory)
        loss, y_pred, after, metrics, overwritten = first[0]
        for i, shift in shifts.items():
            after[i] = after[i] - shift
        update = Update(loss, gradients, memory, after, metrics, overwritten)
        return update, y_pred

    def check_unwritten(self, scope, values):
        """Raises for layers that assign a trainable weight in `call`.

        Args:
            scope: Scope of a pass.
            values: Tensors that it had for the trainable variables.
        """
        written = [
            variable.path
            for variable, value in zip(self.trainable_variables, values, strict=True)
            if scope.get_current_value(variable) is not value
        ]
        if written:
            raise ValueError(
                "A layer assigns trainable weights in `call`, as "
                "keras.layers.SpectralNormalization does, and "
                f"{type(self).__name__} leaves writing weights to the optimizer. "
                f"Received: {written}. Let the layer compute with the new value "
                "instead of assigning it, take a `kernel_constraint`, which the "
                "optimizer applies after a step, or freeze the layer."
            )

    def make_train_function(self, force=False):
        """As Keras's; the next step checks again which weights have a gradient."""
        if force or self.train_function is None:
            self._independent = frozenset()
        super().make_train_function(force)

    def _check_reached(self, gradients, seeds, batch):
        """Raises for weights that have a gradient in Keras's own step and none here.

        A layer that gets hold of the variable itself does not compute with the value
        that this step has for it, and then there is no gradient by that value.
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
                "The loss depends on these weights, and yet has no gradient at the "
                f"values that {type(self).__name__} computes at: {lost}. A layer must "
                "read its weights as `self.kernel` or `self.kernel.value` in each "
                "`call`: not a tensor or parameter of the backend that it has kept, "
                "and not within a `keras.StatelessScope` of its own. A function with "
                "a custom gradient must take the weights as arguments."
            )
        self._independent |= {id(variable) for variable in missing}

    def values_of(self, variables):
        """Returns values of variables as tensors that later writes do not change."""
        raise NotImplementedError

    def gradients_of(self, values, seeds, batch):
        """Returns (loss, gradients, outputs, scope) of a pass at given weights.

        `seeds` are pairs of a variable and its value for this pass.
        """
        raise NotImplementedError

    def gradients_by_variables(self, variables, seeds, batch):
        """Returns the gradients of Keras's own step, without substituted variables.

        Nothing is written.
        """
        raise NotImplementedError

    def loss_factor(self):
        """Returns the loss scale that the optimizer expects, or None.

        `gradients_of` has it in its gradients, too.
        """
        return loss_scale(self.optimizer)

    def apply(self, gradients, variables):
        """Applies the optimizer to the mean gradients over devices."""
        raise NotImplementedError

    def device_number(self):
        """Number of this device among those that train together."""
        return 0

    def mean_over_devices(self, tensors):
        """Returns the means of tensors over devices; None stays None."""
        raise NotImplementedError

    def across_devices(self, update):
        """Averages the parts of an update that must be equal on all devices."""
        raise NotImplementedError

    def random_state(self):
        """Returns the state of random generators outside variables."""

    def set_random_state(self, state):
        """Restores the state that `random_state` returned."""
