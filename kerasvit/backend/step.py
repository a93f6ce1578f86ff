"""Base of the three train steps: which gradients the optimizer gets, and when."""

import contextlib

import keras
from keras import ops

from .micro_batches import MicroBatches


class Step(MicroBatches):
    """Base of the train steps; a base class before `keras.Model`.

    Attributes:
        perturbation: "local", where every part asks for gradients on its own, or
            "global", where every gradient is the mean over devices.
        period: Every how many updates by the optimizer `step_gradients` is asked;
            `gradients_between` at the others.
        batches: How many the optimizer has taken, which `period` goes by; it takes none
            in which `mixed_float16` overflows.
    """

    perturbation = "local"
    period = 1
    batches = 0
    _full = True  # whether this step is one for `step_gradients`

    def step_gradients(self, loss_and_gradients, weights, memory):
        """Returns gradients of one part of a batch for the optimizer; for subclasses.

        Args:
            loss_and_gradients: Function of a list of values of the weights. Every call
                starts from the state before the step, so random masks repeat; logs and
                state (moving statistics, seeds) are those of the **first** call.
            weights: Tensors, one a trainable variable.
            memory: Values of the variables that `memory_of` returns.

        Returns:
            Gradients, one a weight or None, and new values of the memory. Both are
            averaged over parts and devices.
        """
        raise NotImplementedError

    def gradients_between(self, loss_and_gradients, weights, memory):
        """As `step_gradients`, at the steps that `period` skips: plain gradients."""
        return loss_and_gradients(weights)[1], memory

    def memory_of(self, variables) -> list:
        """Returns the trainer's variables that a step changes."""
        return []

    def step_scope(self):
        """Returns the context of a whole step, in training and evaluation."""
        return contextlib.nullcontext()

    def test_step(self, *arguments):
        """Keras's."""
        with self.step_scope():
            return super().test_step(*arguments)

    def variables_scope(self):
        """Returns the context in which the trainer creates its variables."""
        return contextlib.nullcontext()

    def part_gradients(self, loss_and_gradients, weights, memory):
        """Returns the gradients of one part of the batch, of this step's kind."""
        find = self.step_gradients if self._full else self.gradients_between
        return find(loss_and_gradients, weights, memory)

    def make_train_function(self, force=False):
        """As Keras's; with a period, the host calls one of two functions.

        The host chooses: a branch in a compiled step costs memory and time (JAX), and
        has no place for sums over devices (TensorFlow).
        """
        if self.train_function is not None and not force:
            return
        self._full = True
        super().make_train_function(force=True)
        if not self.steps_on_host():
            return
        # Only then is the optimizer asked, for it answers when the step is done.
        skips = isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer)
        at_once, self.steps_per_execution = self.steps_per_execution, 1
        functions = {}
        for full in (True, False):
            super().make_train_function(force=True)
            functions[full] = self.train_function
        self.steps_per_execution = at_once

        def train_function(*arguments):
            *state, iterator = arguments  # the state is JAX's
            for i in range(at_once):
                self._full = self.batches // self._accumulated() % self.period == 0
                before = self.batches_taken(state) if skips else 0
                try:
                    result = functions[self._full](*state, self.one_of(iterator))
                except StopIteration:
                    if i == 0:
                        raise
                    break
                state = result[1:] if state else state
                after = self.batches_taken(state) if skips else 1
                self.batches += after - before
            return result

        self.train_function = train_function

    def steps_on_host(self):
        """Whether the host calls the steps of one execution one by one."""
        return self.period > 1

    def batches_taken(self, state) -> int:
        """Returns the number of batches that the optimizer has counted."""
        return int(ops.convert_to_numpy(self._inner()._iterations))

    def one_of(self, iterator):
        """Returns an iterator of one batch."""
        return iterator

    def _accumulated(self):
        return self._inner().gradient_accumulation_steps or 1

    def _inner(self):
        """Returns the optimizer inside a `LossScaleOptimizer`."""
        return getattr(self.optimizer, "inner_optimizer", self.optimizer)


def loss_scale(optimizer):
    """Returns the factor with which the optimizer scales the loss, or None."""
    scale = optimizer.scale_loss(1.0)
    return None if isinstance(scale, float) and scale == 1.0 else scale


def times(gradients, factor):
    """Multiplies gradients by a number."""
    return [g if g is None else g * ops.cast(factor, g.dtype) for g in gradients]


def remembered(before, after):
    """Yields the new memory, or the old where the new one is not finite.

    None in place of a tensor says that it stays as it is.
    """
    if all(new is old for old, new in zip(before, after, strict=True)):
        return iter([None] * len(before))
    finite = ops.all(
        ops.stack([ops.all(ops.isfinite(value)) for value in after] or [True])
    )
    return (ops.where(finite, new, old) for old, new in zip(before, after, strict=True))
