"""Base of the train steps of all backends.

It decides at which steps which gradients are computed for the optimizer.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from kerasvit.types import Gradients, LossAndGradients, Tensor

from .garbage import living
from .keras_private import (
    batches_counted,
    compute_loss,
    masked,
    masks_of,
)
from .models import KeepsValues, check_no_integers_trained
from .update import Update, add_micro_batch


class MicroBatches:
    """Splits the batch of a train step; a base of `Step`.

    Attributes:
        micro_batches: Number of parts of each device's batch. They are computed one
            after the other.
    """

    micro_batches = 1

    def sum_micro_batches(
        self,
        update: Callable[[Any, Any], tuple[Update, Any]],
        batch: Any,
        metrics: Any,
        device: Any = 0,
    ) -> tuple[Update, Any]:
        """Sums the updates of all micro-batches of a device's batch.

        Args:
            update: Function of a micro-batch and its index over all devices. It
                returns an `Update` and the outputs.
            batch: Inputs, targets and sample weights.
            metrics: Function that returns the values of the metrics' variables before
                the step. It is called after the first update, which may create metrics.
            device: Number of the device.

        Returns:
            `Update` and outputs for the whole batch.
        """
        count: int = self.micro_batches
        total: Update | None = None
        outputs: list = []
        if count == 1:
            return update(batch, device)
        samples = batch_size(batch)
        if isinstance(samples, int):
            count = min(count, samples)
        for i in range(count):
            first, last = bound(samples, count, i), bound(samples, count, i + 1)
            micro_batch = _slice(batch, first, last, samples)
            if total is not None:
                micro_batch = self.after(total, micro_batch)
            added, y_pred = update(micro_batch, device * self.micro_batches + i)
            total = add_micro_batch(total, added, (last - first) / samples, metrics())
            del added  # frees memory before the next micro-batch
            masks = masks_of(y_pred)
            outputs.append(_slice((y_pred, masks), 0, last - first))
        if total is None:
            raise ValueError("A batch must have at least one sample. Received: none.")
        return total, _joined(outputs)

    def after(self, total: Update, micro_batch: Any) -> Any:
        """Returns the micro-batch such that it is computed after `total`."""
        return micro_batch


def _slice(batch: Any, first: Any, last: Any, samples: Any = 0) -> Any:
    if not isinstance(samples, int):
        # Layers fail on an empty batch, so an empty micro-batch gets the last sample.
        # Its share of the total is 0.
        first = ops.minimum(first, samples - 1)
        last = ops.maximum(last, first + 1)

    def cut(value: Tensor | None) -> Tensor | None:
        return value if value is None else value[first:last]

    return keras.tree.map_structure(cut, batch)


def _joined(outputs: list[tuple[Any, list[Tensor | None]]]) -> Any:
    """Concatenates the outputs of micro-batches and their masks.

    Args:
        outputs: Pairs (outputs, masks), one per micro-batch.
    """

    def join(*values: Tensor | None) -> Tensor | None:
        return None if values[0] is None else keras.ops.concatenate(values)

    return masked(*keras.tree.map_structure(join, *outputs))


def batch_size(x: Any) -> Any:
    """Returns the number of samples in a batch of inputs, an int or a scalar tensor."""
    first = next(value for value in keras.tree.flatten(x) if value is not None)
    return ops.shape(first)[0]


def bound(samples: Any, count: int, i: int) -> Any:
    """Returns the first sample of micro-batch i; the first may have one more sample."""
    rest = samples % count
    early = min(i, rest) if isinstance(samples, int) else ops.minimum(i, rest)
    return i * (samples // count) + early


def seed_shifts(variables: list[keras.Variable], index: Any) -> dict[int, Tensor]:
    """Returns offsets of seeds, so that micro-batches draw different masks.

    Args:
        variables: Variables, some of which are seeds.
        index: Index of the micro-batch over all devices. The offsets do not depend on
            the device that computes it.

    Returns:
        {index of the variable: tensor}, empty for index 0.
    """
    if isinstance(index, int) and index == 0:
        return {}
    # A multiple of a large number, because the next integers may be seeds of other
    # layers.
    shift = ops.convert_to_tensor(index * 0x3C6EF372 & 0x7FFFFFFF)
    return {
        i: ops.cast(ops.stack([shift, 0 * shift]), variable.dtype)
        for i, variable in enumerate(variables)
        if variable.name == "seed_generator_state"
    }


class Setting:
    """An attribute of a trainer that its compiled steps contain as a constant.

    Assigning it again makes these steps again, so that the next one has the new value.

    Args:
        check: Function of the trainer and a value, which returns the value to keep.
    """

    def __init__(self, check: Callable[[Any, Any], Any]) -> None:
        self.check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, trainer: Any, owner: Any = None) -> Any:
        if trainer is None:
            return self
        if self.name not in vars(trainer):
            raise AttributeError(self.name)
        return vars(trainer)[self.name]

    def __set__(self, trainer: Any, value: Any) -> None:
        again = self.name in vars(trainer)
        vars(trainer)[self.name] = self.check(trainer, value)
        if again:
            trainer.step_changed()


class Step(MicroBatches, KeepsValues, keras.Model):
    """Base of the train steps of all backends.

    Attributes:
        perturbation: "local": every micro-batch of every device uses its own gradients.
            "global": every gradient is the mean over devices.
        batches: Number of batches that the optimizer has used, which determines the
            position in `_every`; it skips those that overflow under `mixed_float16`.
    """

    train_function: Any
    steps_per_execution: int
    perturbation = "local"
    batches = 0
    # Number of updates by the optimizer from one call of `step_gradients` to the next;
    # `gradients_between` is called at the steps between.
    _every = 1
    _full = True  # whether the present step calls `step_gradients`

    def step_gradients(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns gradients of one micro-batch for the optimizer; for subclasses.

        Args:
            loss_and_gradients: Function of a list of values of the weights. Every call
                starts from the state before the step, so that random masks are the
                same; logs and state (moving statistics, seeds) are those of the
                **first** call.
            weights: Tensors, one per trainable variable.
            slots: Values of the variables that `slots_of` returns.

        Returns:
            Gradients, one per weight, or None, and new values of the slots. Both are
            averaged over micro-batches and devices.
        """
        raise NotImplementedError

    def gradients_between(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Same as `step_gradients`, for the steps between: plain gradients."""
        return loss_and_gradients(weights)[1], slots

    def slots_of(self, variables: list[keras.Variable]) -> list[keras.Variable]:
        """Returns the trainer's slot variables: those that a step changes."""
        return []

    def sums(self) -> list[keras.Variable]:
        """Returns variables to which each step adds; `step_gradients` does not."""
        return []

    def step_slots(self) -> list[keras.Variable]:
        """Returns the variables whose new values `selected_gradients` returns."""
        return [*self.slots_of(self.trainable_variables), *self.sums()]

    def step_logs(self) -> dict[str, Tensor]:
        """Returns what a train step reports beside the loss and the metrics."""
        return {}

    def called(self, model: keras.Model, inputs: Any, training: bool | None) -> Any:
        """Returns the outputs of a model inside."""
        return model(inputs, training=training)

    def step_targets(self, x: Any, y: Any) -> Any:
        """Returns the targets of the passes of a step; for subclasses.

        It is called once for each micro-batch, outside of gradients. The metrics get
        `y` itself.
        """
        return y

    def step_constants(self) -> list[keras.Variable]:
        """Returns variables outside `variables` that a step only reads."""
        return []

    def step_scope(self) -> contextlib.AbstractContextManager:
        """Returns the context of a whole step, in training and evaluation."""
        return contextlib.nullcontext()

    def test_step(self, *arguments: Any) -> Any:
        """Calls Keras's test step within `step_scope`."""
        with self.step_scope():
            return super().test_step(*arguments)

    def variables_scope(self) -> contextlib.AbstractContextManager:
        """Returns the context in which the trainer creates its variables."""
        return contextlib.nullcontext()

    def selected_gradients(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns the gradients of one micro-batch for the present kind of step."""
        compute = self.step_gradients if self._full else self.gradients_between
        return compute(loss_and_gradients, weights, slots)

    def step_changed(self) -> None:
        """Makes the compiled steps with this trainer again: its own, and those around.

        Steps on PyTorch are not compiled: they read all settings.
        """
        if keras.backend.backend() == "torch":
            return
        for each in living(Step):
            made = getattr(each, "train_function", None) is not None
            if made and self in each.chain():
                each.make_train_function(force=True)

    def chain(self) -> Iterator["Step"]:
        """Returns this trainer and those inside it."""
        yield self
        inner = getattr(self, "model", None)
        if isinstance(inner, Step):
            yield from inner.chain()

    def make_train_function(self, force: bool = False) -> None:
        """Makes Keras's train function; if `_every` > 1, two; the host selects one.

        The host selects, because a branch in a compiled step costs memory and time
        (JAX) and cannot contain sums over devices (TensorFlow).
        """
        check_no_integers_trained(self)  # `quantize` may have followed an earlier `fit`
        force = trained_weights_changed(self) or force
        if self.train_function is not None and not force:
            return
        self._full = True
        super().make_train_function(force=True)
        if not self.steps_on_host():
            return
        # The optimizer's counter is read only if it may skip steps: reading it waits
        # for the end of the step.
        skips = isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer)
        at_once, self.steps_per_execution = self.steps_per_execution, 1
        functions = {}
        for full in (True, False):
            super().make_train_function(force=True)
            functions[full] = self.train_function
        self.steps_per_execution = at_once

        def train_function(*arguments: Any) -> Any:
            *state, iterator = arguments  # `state` is empty except on JAX
            for i, one in enumerate(self.iterators_of(iterator, at_once)):
                self._full = self.batches // self._accumulated() % self._every == 0
                before = self.batches_taken(state) if skips else 0
                try:
                    result = functions[self._full](*state, self.one_of(one))
                except StopIteration:
                    if i == 0:
                        raise
                    break
                state = result[1:] if state else state
                after = self.batches_taken(state) if skips else 1
                self.batches += after - before
            return result

        self.train_function = train_function

    def steps_on_host(self) -> bool:
        """Returns whether the host calls the steps of one execution one by one."""
        return self._every > 1

    def batches_taken(self, state: Any) -> int:
        """Returns the number of batches that the optimizer has counted."""
        return int(ops.convert_to_numpy(batches_counted(self._inner())))

    def iterators_of(self, iterator: Any, count: int) -> list:
        """Returns for each step of one execution the iterator of its batch."""
        return [iterator] * count

    def one_of(self, iterator: Any) -> Any:
        """Returns an iterator of one batch."""
        return iterator

    def _accumulated(self) -> int:
        return self._inner().gradient_accumulation_steps or 1

    def _inner(self) -> keras.Optimizer:
        """Returns the optimizer inside a `LossScaleOptimizer`."""
        return getattr(self.optimizer, "inner_optimizer", self.optimizer)


def trained_weights_changed(model: Any) -> bool:
    """Returns whether other weights are trained than when this was called before.

    Layers may have been frozen: a compiled step would train them all the same.

    Raises:
        ValueError: They differ, and on JAX the state of the optimizer would not fit.
    """
    before = vars(model).get("_trained_ids")
    vars(model)["_trained_ids"] = now = [id(v) for v in model.trainable_variables]
    if before in (None, now) or model.train_function is None:
        return False
    if keras.backend.backend() == "jax" and model.optimizer.built:
        vars(model)["_trained_ids"] = before
        raise ValueError(
            f"{model.name} trains other weights than before: layers were frozen or "
            "unfrozen, but on JAX an optimizer has a state for each weight that is "
            f"trained. Call `compile` again. Received: {len(now)} weights, before "
            f"{len(before)}."
        )
    return True


def loss_scale(optimizer: keras.Optimizer) -> Tensor | None:
    """Returns the factor with which the optimizer scales the loss, or None."""
    scale = optimizer.scale_loss(1.0)
    return None if isinstance(scale, float) and scale == 1.0 else scale


def times(gradients: Gradients, factor: Tensor | float) -> Gradients:
    """Multiplies gradients by a number."""
    return [g if g is None else g * ops.cast(factor, g.dtype) for g in gradients]


def new_slots(
    before: list[Tensor], after: list[Tensor | None]
) -> Iterator[Tensor | None]:
    """Returns the new values of slots, or the old values if a new one is not finite.

    All entries are None if nothing has changed.
    """
    if all(new is old for old, new in zip(before, after, strict=True)):
        return iter([None] * len(before))
    finite = ops.all(ops.stack([ops.all(ops.isfinite(value)) for value in after]))
    return (ops.where(finite, new, old) for old, new in zip(before, after, strict=True))


@contextlib.contextmanager
def training_pass(
    trainer: keras.Model,
    scope: keras.StatelessScope,
    x: Any,
    y: Any,
    sample_weight: Any,
    training: bool = True,
) -> Iterator[tuple[Any, Tensor]]:
    """Computes the outputs and the loss at given values of the variables.

    Take gradients before the context ends: a rematerialised layer runs again for them.

    Args:
        trainer: Compiled `keras.Model`.
        scope: New `keras.StatelessScope` that collects losses. It maps variables to the
            values to compute with; other variables have their present values.
        x: Inputs of one batch, as `fit` passes them to a train step.
        y: Targets, or None.
        sample_weight: Weights of the samples, or None.
        training: Whether layers behave as in training.

    Yields:
        Outputs and loss. The scope then contains the values that the pass assigned:
        moving statistics, seeds, metrics.
    """
    # One scope around call and loss, because it holds the losses of `add_loss`.
    with scope:
        y_pred = trainer(x, training=training)
        loss = compute_loss(trainer, x, y, y_pred, sample_weight, training)
        yield y_pred, loss
