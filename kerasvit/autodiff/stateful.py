"""What the train steps on TensorFlow and PyTorch share: variables that are written."""

import itertools
import warnings

import keras
from keras.src.backend.common import global_state

from .overwritten import put_back, take_out
from .stateless import batch_size
from .step import Step, Update, loss_scale, remembered, seed_shifts, times


class StatefulStep(Step):
    """A train step that reads variables and writes them when the step is known.

    The door to a backend adds the methods at the end.
    """

    def train_step(self, data):
        """One optimizer step on the batch of one device; returns the logs."""
        batch = x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        variables = self.trainable_variables
        # Nothing that the trainer keeps is written until the step is known.
        weights = self.values_of(variables)
        own = self.memory_of(variables)
        held = self.values_of(own)
        scale = self.loss_factor()

        def update(batch, part):
            return self._part(batch, part, weights, held, scale)

        def metrics():
            return self.values_of(self.metrics_variables)

        total, y_pred = self.in_parts(update, batch, metrics, self.device_number())
        total = self.across_devices(total)
        written = [*self._state(), *self.metrics_variables, *own]
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
        """Writes a variable of the trainer's, in the middle of `fit` as well."""
        variable.assign(value)

    def _state(self):
        memory = {id(variable) for variable in self.memory_of(self.trainable_variables)}
        state = [v for v in self.non_trainable_variables if id(v) not in memory]
        # Random layers without a seed of their own draw from Keras's, which no model
        # owns.
        generator = global_state.get_global_attribute("global_seed_generator")
        return state if generator is None else [*state, generator.state]

    def _part(self, batch, part, weights, memory, scale):
        """The update by a part of the batch, and its outputs."""
        state = self._state()
        shifts = seed_shifts(state, part)
        seeds = [(state[i], state[i].value + shift) for i, shift in shifts.items()]
        random_state = self.random_state()
        first = []

        def loss_and_gradients(values):
            self.set_random_state(random_state)
            loss, gradients, y_pred, scope = self.gradients_of(values, seeds, batch)
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

    def values_of(self, variables):
        """Tensors that stay as they are when the variables are written."""
        raise NotImplementedError

    def gradients_of(self, values, seeds, batch):
        """Loss, its gradients, outputs and scope of a pass at values of the weights.

        `seeds` are pairs of a variable and its value for this pass.
        """
        raise NotImplementedError

    def loss_factor(self):
        """What the gradients that the optimizer expects are multiplied with, or None.

        `gradients_of` has it in its gradients, too.
        """
        return loss_scale(self.optimizer)

    def apply(self, gradients, variables):
        """Lets the optimizer write the weights, with the mean over devices."""
        raise NotImplementedError

    def device_number(self):
        """Of this device among those that train together."""
        return 0

    def mean_over_devices(self, tensors):
        """The mean of each over the devices; None stays."""
        raise NotImplementedError

    def across_devices(self, update):
        """The update with what must be the same on every device averaged."""
        raise NotImplementedError

    def random_state(self):
        """State of random numbers that no variable holds."""

    def set_random_state(self, state):
        """Goes back to it."""
