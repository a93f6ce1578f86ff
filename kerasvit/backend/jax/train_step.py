"""Train step on JAX; subclasses define the gradients."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
from jax.sharding import PartitionSpec

from kerasvit.types import Gradients, Tensor

from ..keras_private import (
    batches_counted,
    iterators_of_execution,
    masked,
    masks_of,
    updated_metrics,
)
from ..train_step import (
    Step,
    batch_size,
    loss_scale,
    new_slots,
    seed_shifts,
    times,
    training_pass,
)
from ..update import (
    Update,
    add_micro_batch,
    assigned_or,
    is_float,
    only_assigned,
    put_back,
    take_out,
)
from .derivatives import fresh_trace


class TrainStep(Step):
    """`keras.Model` whose train step uses the gradients of `step_gradients`.

    Follows keras/src/backend/jax/trainer.py.
    """

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        """Keras's list and `step_constants`: arguments of the compiled step."""
        return [*super().non_trainable_variables, *self.step_constants()]

    def assign_between_steps(self, variable: keras.Variable, value: Any) -> None:
        """Assigns a variable of the trainer, also during `fit`."""
        # During `fit` Keras holds all values outside the variables, and would later
        # overwrite the new value.
        self.jax_state_sync()
        variable.assign(value)

    def compute_loss_and_updates(
        self,
        trainable_variables: list[Tensor],
        non_trainable_variables: list[Tensor],
        metrics_variables: list[Tensor],
        x: Any,
        y: Any,
        sample_weight: Any,
        training: bool = False,
        optimizer_variables: list[Tensor] | None = None,
    ) -> tuple[Tensor, tuple]:
        """Overrides Keras's method with one scope; Keras calls it in test steps too."""
        mapping = [
            *zip(self.trainable_variables, trainable_variables, strict=True),
            *zip(self.non_trainable_variables, non_trainable_variables, strict=True),
            *zip(self.metrics_variables, metrics_variables, strict=True),
        ]
        optimizer_mapping = []
        if optimizer_variables is not None:
            pairs = zip(self.optimizer.variables, optimizer_variables, strict=True)
            optimizer_mapping = list(pairs)
        mapping += optimizer_mapping  # for a loss that depends on its iterations
        batch = (x, y, sample_weight)
        scope = keras.StatelessScope(mapping, collect_losses=True)
        with (
            fresh_trace(not self.run_eagerly),
            training_pass(self, scope, *batch, training) as (y_pred, loss),
        ):
            state = [scope.get_current_value(v) for v in self.non_trainable_variables]
            metrics = [scope.get_current_value(v) for v in self.metrics_variables]
        scaled = loss
        if training and self.optimizer is not None:
            # The loss scale of mixed_float16 is one of the optimizer's variables.
            with keras.StatelessScope(optimizer_mapping):
                scaled = self.optimizer.scale_loss(loss)
        return scaled, (loss, y_pred, state, metrics)

    @property
    def train_step(self) -> Callable[[tuple, Any], tuple]:
        """The step as a new function, so that JAX compiles it again.

        JAX would reuse the compilation of an equal function, which may be older than
        the present `rho` or belong to the other kind of step.
        """
        return functools.partial(self._step_in_scope)

    def _step_in_scope(self, state: tuple, data: Any) -> tuple:
        """Takes one optimizer step: (state, batch) → (logs, new state)."""
        with self.step_scope():
            return self._train_step(state, data)

    def _train_step(self, state: tuple, data: Any) -> tuple:
        weights, before, optimizer_variables, metrics = state
        batch = x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        update, outputs = self._on_devices(state, batch)
        y_pred = masked(*outputs)
        after = assigned_or(before, update.state)
        indices = self._slot_indices()
        old = [before[i] for i in indices]
        for i, value in zip(indices, new_slots(old, update.slots), strict=True):
            after[i] = before[i] if value is None else value
        gradients = put_back(update.gradients, update.overwritten)
        weights, optimizer_variables = self.optimizer.stateless_apply(
            optimizer_variables, gradients, weights
        )
        logs, metrics = updated_metrics(
            self, update.metrics, update.loss, x, y, y_pred, sample_weight
        )
        slots = zip(self.step_slots(), (after[i] for i in indices), strict=True)
        with keras.StatelessScope(slots):
            logs = {**logs, **self.step_logs()}
        return logs, (weights, after, optimizer_variables, metrics)

    def batches_taken(self, state: Any) -> int:
        """Returns the number of batches that the optimizer has counted."""
        ((_, _, optimizer_variables, _),) = state
        indices = {id(v): i for i, v in enumerate(self.optimizer.variables)}
        return int(optimizer_variables[indices[id(batches_counted(self._inner()))]])

    def iterators_of(self, iterator: Any, count: int) -> list:
        """Returns for each step of one execution the iterator of its batch."""
        return iterators_of_execution(iterator, count)

    def _on_devices(self, state: tuple, batch: Any) -> tuple[Update, Any]:
        """Returns (update, outputs) of a batch, which devices may share."""
        mesh_and_axis = self._mesh_and_axis()
        if mesh_and_axis is None:  # also for "global": JAX itself sums over devices
            return self._device_update(state, batch)
        mesh, axis = mesh_and_axis

        def on_device(state: tuple, batch: Any) -> tuple[Update, Any]:
            update, y_pred = self._device_update(state, batch, jax.lax.axis_index(axis))
            mean = functools.partial(jax.lax.pmean, axis_name=axis)
            metrics = [
                before + jax.lax.psum(after - before, axis)
                for before, after in zip(state[3], update.metrics, strict=True)
            ]
            after = [mean(v) if is_float(v) else v for v in update.state]
            gradients, slots = mean(update.gradients), mean(update.slots)
            overwritten = jax.lax.pmax(update.overwritten, axis)
            loss = mean(update.loss)
            return Update(loss, gradients, slots, after, metrics, overwritten), y_pred

        same, split = PartitionSpec(), PartitionSpec(axis)
        # `check_vma=True` would make JAX sum the gradients over devices.
        return jax.shard_map(
            on_device,
            mesh=mesh,
            in_specs=(same, split),
            out_specs=(same, split),
            check_vma=False,
        )(state, batch)

    def _mesh_and_axis(self) -> tuple[Any, str] | None:
        """Returns the mesh and the axis of devices with separate gradients, or None."""
        distribution = keras.distribution.distribution()
        if self.perturbation == "global" or distribution is None:
            return None
        mesh, axis = distribution.device_mesh, distribution.batch_dim_name
        if dict(zip(mesh.axis_names, mesh.shape, strict=True))[axis] == 1:
            return None
        if isinstance(distribution, keras.distribution.ModelParallel):
            raise ValueError(
                '`perturbation` must be "global" if a ModelParallel also distributes '
                f"batches. Received: perturbation={self.perturbation!r} and {mesh}. "
                f'Pass perturbation="global", or a mesh with 1 along {axis!r}.'
            )
        return mesh.backend_mesh, axis

    def _device_update(
        self, state: tuple, batch: Any, device: Any = 0
    ) -> tuple[Update, Any]:
        """Returns (update, outputs) of the batch of one device."""
        _, before, optimizer_variables, metrics = state
        mapping = list(zip(self.optimizer.variables, optimizer_variables, strict=True))
        constants = self.step_constants()
        values = [before[i] for i in self._indices(constants)]
        mapping += zip(constants, values, strict=True)
        # The step reads the learning rate, the number of updates, the loss scale and
        # the radius.
        with keras.StatelessScope(mapping):
            scale = loss_scale(self.optimizer)
            update = functools.partial(self._micro_batch_update, state, scale)
            total, y_pred = self.sum_micro_batches(update, batch, metrics, device)
        if scale is not None:
            total = total._replace(gradients=times(total.gradients, scale))
        return total, y_pred

    def sum_micro_batches(
        self,
        update: Callable[[Any, Any], tuple[Update, Any]],
        batch: Any,
        metrics: Any,
        device: Any = 0,
    ) -> tuple[Update, Any]:
        """Same as in `MicroBatches`, as compiled loops.

        Here `metrics` are the values themselves.
        """
        samples = batch_size(batch)
        count = min(self.micro_batches, samples)
        if count == 1:
            return update(batch, device * self.micro_batches)
        numbers = device * self.micro_batches + jax.numpy.arange(count)
        total: Any = None
        outputs = []
        for stacked, share in _equal_micro_batches((batch, numbers), samples, count):

            def step(total: Any, micro_batch: Any, share: float = share) -> tuple:
                one, y_pred = update(*micro_batch)
                return add_micro_batch(total, one, share, metrics), y_pred

            if total is None:
                first = jax.tree.map(lambda a: a[0], stacked)
                total, _ = jax.eval_shape(update, *first)
                total = jax.tree.map(lambda a: jax.numpy.zeros(a.shape, a.dtype), total)
                total = total._replace(metrics=metrics)
            total, y_pred = jax.lax.scan(step, total, stacked)
            outputs.append(jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), y_pred))
        return total, jax.tree.map(
            lambda *values: jax.numpy.concatenate(values), *outputs
        )

    def _micro_batch_update(
        self, state: tuple, scale: Tensor | None, batch: Any, index: Any
    ) -> tuple[Update, Any]:
        """Returns (update, (outputs, masks)) of one micro-batch."""
        weights, before, optimizer_variables, metrics = state
        x, y, sample_weight = batch
        y = self._targets(before, x, y)
        shifts = seed_shifts(self.non_trainable_variables, index)
        start = [v + shifts[i] if i in shifts else v for i, v in enumerate(before)]

        def compute(*arguments: Any, **options: Any) -> tuple:
            scaled, results = self.compute_loss_and_updates(*arguments, **options)
            loss, y_pred, state, metrics = results
            state = only_assigned(start, state)  # a mean of others would be rounded
            # JAX returns new arrays, without the masks that Keras has attached.
            return scaled, (loss, y_pred, state, metrics, masks_of(y_pred))

        differentiate = jax.value_and_grad(compute, has_aux=True)
        first: list[tuple] = []  # results of the first pass

        def loss_and_gradients(values: list[Tensor]) -> tuple[Tensor, Gradients]:
            (_, results), gradients = differentiate(
                values,
                start,
                metrics,
                x,
                y,
                sample_weight,
                training=True,
                optimizer_variables=optimizer_variables,
            )
            gradients, overwritten = take_out(gradients, self.trainable_variables)
            if not first:
                first.append((*results, overwritten))
            if scale is not None:
                gradients = times(gradients, 1 / scale)
            return results[0], gradients

        slots = [before[i] for i in self._slot_indices()]
        gradients, slots = self.selected_gradients(loss_and_gradients, weights, slots)
        loss, y_pred, after, metrics, masks, overwritten = first[0]
        after = [
            v - shifts[i] if i in shifts and v is not None else v
            for i, v in enumerate(after)
        ]
        update = Update(loss, gradients, slots, after, metrics, overwritten)
        return update, (y_pred, masks)

    def _targets(self, before: list[Tensor], x: Any, y: Any) -> Any:
        """Returns `step_targets`; what a layer assigns there is not kept."""
        constants = self.step_constants()
        values = [before[i] for i in self._indices(constants)]
        scope = keras.StatelessScope(zip(constants, values, strict=True))
        with scope, fresh_trace(not self.run_eagerly):
            return self.step_targets(x, y)

    def _slot_indices(self) -> list[int]:
        return self._indices(self.step_slots())

    def _indices(self, variables: list[keras.Variable]) -> list[int]:
        """Returns the positions of variables in `non_trainable_variables`."""
        indices = {id(v): i for i, v in enumerate(self.non_trainable_variables)}
        return [indices[id(v)] for v in variables]


def _equal_micro_batches(
    batch_and_numbers: tuple[Any, Tensor], samples: int, count: int
) -> Iterator[tuple[Any, float]]:
    """Stacks micro-batches of equal size; the first may have one more sample."""
    batch, numbers = batch_and_numbers
    size, longer = divmod(samples, count)
    middle = longer * (size + 1)
    for first, last, each in ((0, middle, size + 1), (middle, samples, size)):
        if first == last:
            continue

        def stack(
            a: Tensor, first: int = first, last: int = last, each: int = each
        ) -> Tensor:
            return a[first:last].reshape(-1, each, *a.shape[1:])

        chosen = numbers[:longer] if each > size else numbers[longer:]
        yield (jax.tree.map(stack, batch), chosen), each / samples
