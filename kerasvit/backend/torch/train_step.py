"""Train step on PyTorch; subclasses define the gradients."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import torch
from torch import distributed

from kerasvit.types import Gradients, Tensor

from ..in_place_step import StatefulStep
from ..keras_private import get_device, masked, masks_of, values_of
from ..train_step import batch_size, training_pass
from ..update import Update
from .compile import CompiledCalls, compiled_call


class TrainStep(CompiledCalls, StatefulStep):
    """`keras.Model` whose train step uses the gradients of `step_gradients`.

    In a process group (`torchrun`) each process takes a step on its own batch, and all
    apply the mean of their gradients. Each process has the same weight in the mean,
    whatever its number of samples. At the first step after `compile` the first process
    broadcasts weights, optimizer and the position in `every`. All processes must take
    the same number of steps, because each waits for the others. A process reports loss
    and metrics of its own samples: a callback that stops training or lowers the
    learning rate should use the same validation data in every process. `Dropout`
    without a seed uses PyTorch's own generator: seed it differently in each process.

    Follows keras/src/backend/torch/trainer.py.
    """

    def make_train_function(self, force: bool = False) -> None:
        """Makes the train function; broadcasts the variables of the first process."""
        fresh = self.train_function is None
        super().make_train_function(force)
        if fresh and _processes() > 1:
            for variable in [*self.variables, *self.optimizer.variables]:
                variable.assign(_of_first(variable.value))
            self.batches = int(
                _of_first(torch.tensor(self.batches, device=get_device()))
            )

    def iterators_of(self, batches: Any, count: int) -> list:
        """Returns for each step of one execution a list of its batch."""
        return [[batch] for batch in batches]

    def called(self, model: keras.Model, inputs: Any, training: bool | None) -> Any:
        """Returns the outputs of a model, by a compiled call if wanted."""
        return compiled_call(model, model, inputs, training=training)

    def sum_micro_batches(
        self,
        update: Callable[[Any, Any], tuple[Update, Any]],
        batch: Any,
        metrics: Any,
        device: Any = 0,
    ) -> tuple[Update, Any]:
        """Sums the updates of all micro-batches of a device's batch."""
        together = self.perturbation == "global" and _processes() > 1
        if together and batch_size(batch) < self.micro_batches:
            raise ValueError(
                'With perturbation="global" every process must compute the same number '
                f"of parts, `micro_batches`={self.micro_batches}, so a batch must have "
                f"at least {self.micro_batches} samples. Received: {batch_size(batch)} "
                f"samples in process {self.device_number()}."
            )
        return super().sum_micro_batches(update, batch, metrics, device)

    def values_of(self, variables: list[keras.Variable]) -> list[Tensor]:
        """Returns detached tensors, which share memory with the variables.

        `assign` changes them too, so they must not be used after it.
        """
        return [value.detach() for value in values_of(variables)]

    def gradients_of(
        self, values: list[Tensor], seeds: list, batch: Any
    ) -> tuple[Tensor, Gradients, Any, keras.StatelessScope]:
        """Returns (loss, gradients, outputs, scope) of a pass at given weights."""
        leaves = [value.detach().requires_grad_() for value in values]
        scope = keras.StatelessScope(seeds, collect_losses=True)
        for update in zip(self.trainable_variables, leaves, strict=True):
            scope.add_update(update)  # the scope would compare shapes and dtypes
        with training_pass(self, scope, *batch) as (y_pred, loss):
            scaled = self.optimizer.scale_loss(loss)
            # `backward` would also write gradients to `.grad` of the weights.
            gradients = leaves and torch.autograd.grad(
                scaled, leaves, allow_unused=True
            )
        self.check_unwritten(scope, leaves)
        # Results with a graph would keep `values` in memory.
        written = scope.state_mapping
        scope.state_mapping = {key: _detached(v) for key, v in written.items()}
        masks = masks_of(y_pred)
        y_pred = masked(keras.tree.map_structure(_detached, y_pred), masks)
        return loss.detach(), list(gradients), y_pred, scope

    @torch.compiler.disable
    def gradients_by_variables(
        self, variables: list[keras.Variable], seeds: list, batch: Any
    ) -> Gradients:
        """Returns the gradients of Keras's own step, without substituted variables."""
        random_state = self.random_state()
        scope = keras.StatelessScope(seeds, collect_losses=True)
        with training_pass(self, scope, *batch) as (_, loss):
            gradients: Gradients = [None] * len(variables)
            if loss.requires_grad:
                values = [v.value for v in variables]
                gradients = list(torch.autograd.grad(loss, values, allow_unused=True))
        self.set_random_state(random_state)
        return gradients

    def no_gradients(self) -> AbstractContextManager:
        """Returns a context in which no operations are recorded for gradients."""
        return torch.no_grad()

    def apply(self, gradients: Gradients, variables: list[keras.Variable]) -> None:
        """Applies the optimizer."""
        with torch.no_grad():
            self.optimizer.apply(gradients, variables)

    def device_number(self) -> int:
        """Returns the number of this process."""
        return distributed.get_rank() if _processes() > 1 else 0

    def mean_over_devices(self, tensors: Gradients) -> Gradients:
        """Returns the means of tensors over processes; None where all have None."""
        return _mean(tensors, self.trainable_variables)

    def across_devices(self, update: Update) -> Update:
        """Averages gradients, slots and moving statistics."""
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
            [state[i] for i in floats],
            [variables[i] for i in floats],
            variable_for_none=True,
        )
        for i, mean in zip(floats, means, strict=True):
            state[i] = mean
        return update._replace(
            gradients=self.mean_over_devices(update.gradients),
            slots=_mean(update.slots, self.step_slots()),
            state=state,
            overwritten=_largest(update.overwritten, self.trainable_variables),
        )

    def random_state(self) -> list[Tensor]:
        """Returns the states of PyTorch's generators, which unseeded Dropout uses."""
        return _random_state()

    def set_random_state(self, state: list[Tensor]) -> None:
        """Restores the states that `random_state` returned."""
        _set_random_state(state)


def _detached(value: Any) -> Any:
    return value.detach() if torch.is_tensor(value) else value


def _processes() -> int:
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


def _of_first(tensor: Tensor) -> Tensor:
    """Returns the tensor of the first process."""
    tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
    distributed.broadcast(tensor, src=0)
    return tensor


def _mean(
    tensors: Gradients,
    variables: list[keras.Variable],
    variable_for_none: bool = False,
) -> Gradients:
    """Returns the means of tensors over processes.

    Args:
        tensors: Tensors or None; the entries that are None may differ between
            processes.
        variables: As many variables, of the same shapes.
        variable_for_none: Whether None stands for the value of the variable, where
            another process has a tensor; otherwise None stands for 0.

    Returns:
        Tensors, or None where no process has one.
    """
    count = _processes()
    if count == 1 or not tensors:
        return tensors
    present = torch.tensor([t is not None for t in tensors], device=get_device()).int()
    distributed.all_reduce(present)
    means = []
    for i, (tensor, variable) in enumerate(zip(tensors, variables, strict=True)):
        if tensor is None and present[i]:
            tensor = variable.value
            tensor = tensor if variable_for_none else torch.zeros_like(tensor)
        if tensor is not None:
            # `all_reduce` needs contiguous memory. Division comes first, because a sum
            # of float16 may overflow; gloo has no mean.
            tensor = (tensor.detach() / count).contiguous()
            distributed.all_reduce(tensor)
        means.append(tensor)
    return means


def _largest(tensors: Gradients, variables: list[keras.Variable]) -> Gradients:
    """Returns the maxima of tensors over processes, for overwritten variables.

    Where a process has None, the value of the variable is used.
    """
    largest = list(tensors)
    for i, variable in enumerate(variables):
        if variable.overwrite_with_gradient:
            tensor = largest[i]
            tensor = (variable.value if tensor is None else tensor).detach()
            tensor = tensor.clone(memory_format=torch.contiguous_format)
            distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
            largest[i] = tensor
    return largest


def _generators() -> list:
    # A Dropout without a seed uses PyTorch's own generator of its device.
    accelerator = getattr(torch, get_device().partition(":")[0])
    return [torch, accelerator] if hasattr(accelerator, "set_rng_state") else [torch]


# torch.compile does not support generators; see keras/src/backend/torch/random.py.
@torch.compiler.disable
def _random_state() -> list[Tensor]:
    return [generator.get_rng_state() for generator in _generators()]


@torch.compiler.disable
def _set_random_state(states: list[Tensor]) -> None:
    for generator, state in zip(_generators(), states, strict=True):
        generator.set_rng_state(state)
