"""Keras's train step on PyTorch, with the gradient left to the subclass."""

import warnings

import keras
import torch
from keras.src.backend.torch.core import get_device

from .stateless import batch_size, training_pass, write_updates


class TrainStep:
    """Trains with the gradients of `step_gradients`; goes before `keras.Model`.

    `step_gradients(loss_and_gradients, weights)` is the subclass's. It may call
    `loss_and_gradients(values)` for this batch at any values of the weights. Every
    call starts from the state before the step, so random masks repeat; the logs and
    the state (moving statistics, seeds) are those of the **first** call.

    Follows keras/src/backend/torch/trainer.py.
    """

    def train_step(self, data):
        """One optimizer step on one batch; returns the logs."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        variables = self.trainable_variables
        weights = [v.value.detach() for v in variables]
        random_state = _random_state()
        first = []

        def loss_and_gradients(values):
            leaves = [value.detach().requires_grad_() for value in values]
            _set_random_state(random_state)
            mapping = zip(variables, leaves, strict=True)
            with training_pass(self, mapping, x, y, sample_weight) as passed:
                y_pred, loss, scope = passed
                scaled = self.optimizer.scale_loss(loss)
                # Not `backward`, which would leave gradients in `.grad` of the weights.
                gradients = leaves and torch.autograd.grad(
                    scaled, leaves, allow_unused=True
                )
            if not first:
                first.append((loss.detach(), y_pred, scope))
            return loss.detach(), list(gradients)

        gradients = self.step_gradients(loss_and_gradients, weights)
        loss, y_pred, scope = first[0]
        write_updates(self, scope)
        self._loss_tracker.update_state(loss, sample_weight=batch_size(x))
        if variables:
            with torch.no_grad():
                self.optimizer.apply(gradients, variables)
        else:
            warnings.warn(
                "The model does not have any trainable weights.", stacklevel=2
            )
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def _generators():
    # A Dropout without a seed draws from PyTorch's own generator on its device.
    accelerator = getattr(torch, get_device().partition(":")[0])
    return [torch, accelerator] if hasattr(accelerator, "set_rng_state") else [torch]


# Generators are unknown to torch.compile, as keras/src/backend/torch/random.py notes.
@torch.compiler.disable
def _random_state():
    return [generator.get_rng_state() for generator in _generators()]


@torch.compiler.disable
def _set_random_state(states):
    for generator, state in zip(_generators(), states, strict=True):
        generator.set_rng_state(state)
