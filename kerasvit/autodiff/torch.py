"""Keras's train step on PyTorch, with the gradient left to the subclass."""

import torch
from keras.src.backend.torch.core import get_device
from torch import distributed

from .stateful import StatefulStep
from .stateless import training_pass


class TrainStep(StatefulStep):
    """Trains with the gradients of `step_gradients`; goes before `keras.Model`.

    In a process group (`torchrun`) each process takes a step on its own batch, and all
    apply the mean of their gradients.

    Follows keras/src/backend/torch/trainer.py.
    """

    def make_train_function(self, force=False):
        """Keras's; a process group starts from the variables of its first process."""
        if _processes() > 1:
            with torch.no_grad():
                for variable in self.variables:
                    distributed.broadcast(variable.value, src=0)
        super().make_train_function(force)

    def values_of(self, variables):
        """The tensors, outside any graph; `assign` writes into those of the state."""
        return [v.value.detach() for v in variables]

    def gradients_of(self, values, seeds, batch):
        """Loss, its gradients, outputs and scope of a pass at values of the weights."""
        leaves = [value.detach().requires_grad_() for value in values]
        mapping = [*zip(self.trainable_variables, leaves, strict=True), *seeds]
        with training_pass(self, mapping, *batch) as (y_pred, loss, scope):
            scaled = self.optimizer.scale_loss(loss)
            # Not `backward`, which would leave gradients in `.grad` of the weights.
            gradients = leaves and torch.autograd.grad(
                scaled, leaves, allow_unused=True
            )
        return loss.detach(), list(gradients), y_pred, scope

    def apply(self, gradients, variables):
        """Lets the optimizer write the weights."""
        with torch.no_grad():
            self.optimizer.apply(gradients, variables)

    def device_number(self):
        """Of this process."""
        return distributed.get_rank() if _processes() > 1 else 0

    def mean_over_devices(self, tensors):
        """The mean of each over the processes; None stays."""
        count = _processes()
        if count == 1:
            return tensors
        sums = [t if t is None else t.detach().clone() for t in tensors]
        for tensor in sums:
            if tensor is not None:
                distributed.all_reduce(tensor)  # gloo has sums and no means
        return [t if t is None else t / count for t in sums]

    def across_devices(self, update):
        """The mean of gradients, memory and moving statistics."""
        if _processes() == 1:
            return update
        floats = [
            v if v is not None and v.is_floating_point() else None for v in update.state
        ]
        means = self.mean_over_devices(floats)
        return update._replace(
            gradients=self.mean_over_devices(update.gradients),
            memory=self.mean_over_devices(update.memory),
            state=[
                v if mean is None else mean
                for v, mean in zip(update.state, means, strict=True)
            ],
        )

    def random_state(self):
        """States of PyTorch's own generators, of which unseeded Dropout draws."""
        return _random_state()

    def set_random_state(self, state):
        """Goes back to them."""
        _set_random_state(state)


def _processes():
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


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
