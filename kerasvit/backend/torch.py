"""Keras's train step on PyTorch, with the gradient left to the subclass."""

import keras
import torch
from keras.src.backend.torch.core import get_device
from torch import distributed

from .masks import masked, masks_of
from .stateful import StatefulStep
from .stateless import batch_size, training_pass


class TrainStep(StatefulStep):
    """Train step with the gradients of `step_gradients`; a base before `keras.Model`.

    In a process group (`torchrun`) each process takes a step on its own batch, and all
    apply the mean of their gradients, in which each process counts equally, however
    many samples it had. At the first step after `compile` all take over weights,
    optimizer and the place in `every` of the first process. All must take equally many
    steps, for each waits for the others. Losses and metrics that a process reports are
    those of its own samples: a callback that stops training or lowers the learning
    rate should go by the same validation data in every process. `Dropout` without a
    seed draws from PyTorch's own generator, so start that differently in each.

    Follows keras/src/backend/torch/trainer.py.
    """

    def make_train_function(self, force=False):
        """As Keras's; all processes begin with the variables of the first."""
        fresh = self.train_function is None
        super().make_train_function(force)
        if fresh and _processes() > 1:
            for variable in [*self.variables, *self.optimizer.variables]:
                variable.assign(_of_first(variable.value))
            self.batches = int(
                _of_first(torch.tensor(self.batches, device=get_device()))
            )

    def in_parts(self, update, batch, metrics, device=0):
        """Sums the updates of all parts of a device's batch."""
        together = self.perturbation == "global" and _processes() > 1
        if together and batch_size(batch) < self.micro_batches:
            raise ValueError(
                'With perturbation="global" every process takes equally many parts of '
                f"its batch, so a batch must have {self.micro_batches} samples at "
                f"least, as `micro_batches` says. Received: {batch_size(batch)} "
                f"samples in process {self.device_number()}."
            )
        return super().in_parts(update, batch, metrics, device)

    def values_of(self, variables):
        """Returns detached tensors; copies of those that `assign` writes in place."""
        return [v.value.detach() for v in variables]

    def gradients_of(self, values, seeds, batch):
        """Returns (loss, gradients, outputs, scope) of a pass at given weights."""
        leaves = [value.detach().requires_grad_() for value in values]
        mapping = [*zip(self.trainable_variables, leaves, strict=True), *seeds]
        scope = keras.StatelessScope(mapping, collect_losses=True)
        with training_pass(self, scope, *batch) as (y_pred, loss):
            scaled = self.optimizer.scale_loss(loss)
            # Not `backward`, which would leave gradients in `.grad` of the weights.
            gradients = leaves and torch.autograd.grad(
                scaled, leaves, allow_unused=True
            )
        self.check_unwritten(scope, leaves)
        # With its graph, what is returned would hold on to `values`.
        masks = masks_of(y_pred)
        y_pred = masked(keras.tree.map_structure(_detached, y_pred), masks)
        written = scope.state_mapping
        scope.state_mapping = {key: _detached(v) for key, v in written.items()}
        return loss.detach(), list(gradients), y_pred, scope

    @torch.compiler.disable
    def gradients_by_variables(self, variables, seeds, batch):
        """Returns the gradients of Keras's own step, without substituted variables."""
        random_state = self.random_state()
        scope = keras.StatelessScope(seeds, collect_losses=True)
        with training_pass(self, scope, *batch) as (_, loss):
            found = [None] * len(variables)
            if loss.requires_grad:
                found = torch.autograd.grad(
                    loss, [v.value for v in variables], allow_unused=True
                )
        self.set_random_state(random_state)
        return found

    def apply(self, gradients, variables):
        """Applies the optimizer."""
        with torch.no_grad():
            self.optimizer.apply(gradients, variables)

    def device_number(self):
        """Number of this process."""
        return distributed.get_rank() if _processes() > 1 else 0

    def mean_over_devices(self, tensors):
        """Returns the means of tensors over processes; None where all have None."""
        return _mean(tensors, self.trainable_variables)

    def across_devices(self, update):
        """Averages gradients, memory and moving statistics."""
        if _processes() == 1:
            return update
        variables = self._state()
        floats = [
            i
            for i, variable in enumerate(variables)
            if keras.backend.is_float_dtype(variable.dtype)
        ]
        state = list(update.state)
        means = _mean(
            [state[i] for i in floats], [variables[i] for i in floats], kept=True
        )
        for i, mean in zip(floats, means, strict=True):
            state[i] = mean
        memory = self.memory_of(self.trainable_variables)
        return update._replace(
            gradients=self.mean_over_devices(update.gradients),
            memory=_mean(update.memory, memory),
            state=state,
            overwritten=_largest(update.overwritten, self.trainable_variables),
        )

    def random_state(self):
        """Returns the states of PyTorch's generators, which unseeded Dropout uses."""
        return _random_state()

    def set_random_state(self, state):
        """Restores the states that `random_state` returned."""
        _set_random_state(state)


def _detached(value):
    return value.detach() if torch.is_tensor(value) else value


def _processes():
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


def _of_first(tensor):
    """Returns the tensors of the first process."""
    tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
    distributed.broadcast(tensor, src=0)
    return tensor


def _mean(tensors, variables, kept=False):
    """Returns the means of tensors over processes.

    Args:
        tensors: Some may be None, and not the same in every process.
        variables: As many, of the same shapes.
        kept: Whether None, where another process has a tensor, counts as the value of
            the variable; else as 0.

    Returns:
        Tensors, or None where no process has one.
    """
    count = _processes()
    if count == 1 or not tensors:
        return tensors
    given = torch.tensor([t is not None for t in tensors], device=get_device()).int()
    distributed.all_reduce(given)
    means = []
    for i, (tensor, variable) in enumerate(zip(tensors, variables, strict=True)):
        if tensor is None and given[i]:
            tensor = variable.value if kept else torch.zeros_like(variable.value)
        if tensor is not None:
            # Contiguous, as the processes exchange memory and not elements. Divided
            # first: a sum of float16 may overflow. gloo has sums and no means.
            tensor = (tensor.detach() / count).contiguous()
            distributed.all_reduce(tensor)
        means.append(tensor)
    return means


def _largest(tensors, variables):
    """Returns the maxima of tensors over processes, for overwritten variables.

    Where a process has None, the variable's value counts.
    """
    largest = list(tensors)
    for i, variable in enumerate(variables):
        if variable.overwrite_with_gradient:
            tensor = variable.value if largest[i] is None else largest[i]
            largest[i] = tensor.detach().clone(memory_format=torch.contiguous_format)
            distributed.all_reduce(largest[i], op=distributed.ReduceOp.MAX)
    return largest


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
