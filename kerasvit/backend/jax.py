"""Keras's train step on JAX, with the gradient left to the subclass."""

import contextlib
import functools

import jax
import keras
from jax.sharding import PartitionSpec

from .masks import masked, masks_of
from .micro_batches import seed_shifts
from .overwritten import put_back, take_out
from .stateless import batch_size, training_pass
from .step import Step, loss_scale, remembered, times
from .update import Update, add_part, is_float


class TrainStep(Step):
    """Train step with the gradients of `step_gradients`; a base before `keras.Model`.

    Follows keras/src/backend/jax/trainer.py.
    """

    @property
    def non_trainable_variables(self):
        """Keras's and `step_constants`, whose values would else be compiled in."""
        return [*super().non_trainable_variables, *self.step_constants()]

    def step_constants(self) -> list:
        """Variables outside `variables` that a step reads and does not write."""
        return []

    def assign_between_steps(self, variable, value):
        """Assigns a variable of the trainer, also during `fit`."""
        # There Keras has all values elsewhere, and writes them back later.
        self.jax_state_sync()
        variable.assign(value)

    def compute_loss_and_updates(
        self,
        trainable_variables,
        non_trainable_variables,
        metrics_variables,
        x,
        y,
        sample_weight,
        training=False,
        optimizer_variables=None,
    ):
        """As Keras's method, within one scope; Keras calls it in test steps too."""
        named = (
            (self.trainable_variables, trainable_variables),
            (self.non_trainable_variables, non_trainable_variables),
            (self.metrics_variables, metrics_variables),
        )
        if optimizer_variables is not None:  # for a loss that goes by its iterations
            named = (*named, (self.optimizer.variables, optimizer_variables))
        mapping = [
            pair for names, values in named for pair in zip(names, values, strict=True)
        ]
        batch = (x, y, sample_weight)
        scope = keras.StatelessScope(mapping, collect_losses=True)
        with (
            traced_anew(not self.run_eagerly),
            training_pass(self, scope, *batch, training) as (y_pred, loss),
        ):
            state = [scope.get_current_value(v) for v in self.non_trainable_variables]
            metrics = [scope.get_current_value(v) for v in self.metrics_variables]
        scaled = loss
        if training and self.optimizer is not None:
            # The loss scale of mixed_float16 is one of the optimizer's variables.
            mapping = list(
                zip(self.optimizer.variables, optimizer_variables, strict=True)
            )
            with keras.StatelessScope(mapping):
                scaled = self.optimizer.scale_loss(loss)
        return scaled, (loss, y_pred, state, metrics)

    @property
    def train_step(self):
        """Returns the step as a new function, which JAX compiles again.

        It would take an equal one for one that it has compiled, before `rho` was
        assigned or for the other kind of step.
        """
        return functools.partial(self._step_in_scope)

    def _step_in_scope(self, state, data):
        """One optimizer step: (state, batch) → (logs, new state)."""
        with self.step_scope():
            return self._train_step(state, data)

    def _train_step(self, state, data):
        weights, before, optimizer_variables, metrics = state
        batch = x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        update, outputs = self._on_devices(state, batch)
        y_pred = masked(*outputs)
        after = list(update.state)
        places = self._places_of_memory()
        old = [before[place] for place in places]
        for place, value in zip(places, remembered(old, update.memory), strict=True):
            after[place] = before[place] if value is None else value
        for place in self._places(self.step_constants()):
            after[place] = before[place]  # the mean over parts is rounded
        gradients = put_back(update.gradients, update.overwritten)
        weights, optimizer_variables = self.optimizer.stateless_apply(
            optimizer_variables, gradients, weights
        )
        logs, metrics = self._update_metrics_variables(
            update.metrics, update.loss, x, y, y_pred, sample_weight
        )
        return logs, (weights, after, optimizer_variables, metrics)

    def batches_taken(self, state) -> int:
        """Number of batches that the optimizer has counted."""
        ((_, _, optimizer_variables, _),) = state
        indices = {id(v): i for i, v in enumerate(self.optimizer.variables)}
        return int(optimizer_variables[indices[id(self._inner()._iterations)]])

    def _on_devices(self, state, batch):
        """Returns (update, outputs, masks) of a batch, split over devices or not."""
        spread = self._spread()
        if spread is None:  # also "global": JAX sums over devices by itself
            return self._in_parts(state, batch)
        mesh, axis = spread

        def on_one(state, batch):
            update, y_pred = self._in_parts(state, batch, jax.lax.axis_index(axis))
            mean = functools.partial(jax.lax.pmean, axis_name=axis)
            metrics = [
                before + jax.lax.psum(after - before, axis)
                for before, after in zip(state[3], update.metrics, strict=True)
            ]
            state = [mean(v) if is_float(v) else v for v in update.state]
            gradients, memory = mean(update.gradients), mean(update.memory)
            overwritten = jax.lax.pmax(update.overwritten, axis)
            loss = mean(update.loss)
            return Update(loss, gradients, memory, state, metrics, overwritten), y_pred

        one, parts = PartitionSpec(), PartitionSpec(axis)
        # With its check of replication, JAX sums gradients over devices unasked.
        return jax.shard_map(
            on_one,
            mesh=mesh,
            in_specs=(one, parts),
            out_specs=(one, parts),
            check_vma=False,
        )(state, batch)

    def _spread(self):
        """Returns the mesh and the axis of devices with separate gradients, or None."""
        distribution = keras.distribution.distribution()
        if self.perturbation == "global" or distribution is None:
            return None
        mesh, axis = distribution.device_mesh, distribution.batch_dim_name
        if dict(zip(mesh.axis_names, mesh.shape, strict=True))[axis] == 1:
            return None
        if isinstance(distribution, keras.distribution.ModelParallel):
            raise ValueError(
                '`perturbation` must be "global" where batches are spread over devices '
                f"beside a ModelParallel. Received: perturbation={self.perturbation!r} "
                f"and {mesh}. Pass it, or a mesh with 1 along {axis!r}."
            )
        return mesh.backend_mesh, axis

    def _in_parts(self, state, batch, device=0):
        """Returns (update, outputs, masks) of the batch of one device."""
        _, before, optimizer_variables, metrics = state
        mapping = list(zip(self.optimizer.variables, optimizer_variables, strict=True))
        constants = self.step_constants()
        values = [before[place] for place in self._places(constants)]
        mapping += zip(constants, values, strict=True)
        # For the learning rate, the number of updates, the loss scale, the radius.
        with keras.StatelessScope(mapping):
            scale = loss_scale(self.optimizer)
            update = functools.partial(self._part, state, scale)
            total, y_pred = self.in_parts(update, batch, metrics, device)
        if scale is not None:
            total = total._replace(gradients=times(total.gradients, scale))
        return total, y_pred

    def in_parts(self, update, batch, metrics, device=0):
        """As in `Step`, with one compiled function for all parts of one size."""
        samples = batch_size(batch)
        parts = min(self.micro_batches, samples)
        if parts == 1:
            return update(batch, device * self.micro_batches)
        numbers = device * self.micro_batches + jax.numpy.arange(parts)
        total, outputs = None, []
        for pieces, share in _equal_pieces((batch, numbers), samples, parts):

            def step(total, piece, share=share):
                one, y_pred = update(*piece)
                return add_part(total, one, share, metrics), y_pred

            if total is None:
                total, _ = jax.eval_shape(update, *jax.tree.map(lambda a: a[0], pieces))
                total = jax.tree.map(lambda a: jax.numpy.zeros(a.shape, a.dtype), total)
                total = total._replace(metrics=metrics)
            total, y_pred = jax.lax.scan(step, total, pieces)
            outputs.append(jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), y_pred))
        return total, jax.tree.map(
            lambda *values: jax.numpy.concatenate(values), *outputs
        )

    def _part(self, state, scale, batch, part):
        """Returns (update, outputs, masks) of one part of the batch."""
        weights, before, optimizer_variables, metrics = state
        x, y, sample_weight = batch
        shifts = seed_shifts(self.non_trainable_variables, part)
        start = [v + shifts[i] if i in shifts else v for i, v in enumerate(before)]

        def compute(*arguments, **options):
            scaled, kept = self.compute_loss_and_updates(*arguments, **options)
            # JAX hands the numbers on, and not what Keras has attached to them.
            return scaled, (*kept, masks_of(kept[1]))

        differentiate = jax.value_and_grad(compute, has_aux=True)
        first = []

        def loss_and_gradients(values):
            (_, kept), gradients = differentiate(
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
                first.append((*kept, overwritten))
            return kept[0], gradients if scale is None else times(gradients, 1 / scale)

        memory = [before[place] for place in self._places_of_memory()]
        gradients, memory = self.part_gradients(loss_and_gradients, weights, memory)
        loss, y_pred, after, metrics, masks, overwritten = first[0]
        after = [v - shifts[i] if i in shifts else v for i, v in enumerate(after)]
        update = Update(loss, gradients, memory, after, metrics, overwritten)
        return update, (y_pred, masks)

    def _places_of_memory(self):
        return self._places(self.memory_of(self.trainable_variables))

    def _places(self, variables):
        """Returns the positions of variables among `non_trainable_variables`."""
        indices = {id(v): i for i, v in enumerate(self.non_trainable_variables)}
        return [indices[id(v)] for v in variables]


# Part of the key under which JAX keeps what it has traced.
_traces = jax.make_user_context()


def traced_anew(traced=True):
    """Context in which JAX reuses no trace of a function.

    Functions of `jax.checkpoint`, which is `keras.remat`, and of `jax.jit` that a layer
    keeps are traced once and used again: the second pass of a step would compute with
    the weights of the first.
    """
    return _traces(object()) if traced else contextlib.nullcontext()


def _equal_pieces(batch_and_numbers, samples, parts):
    """Stacks parts of equal size; the first parts may have one sample more."""
    batch, numbers = batch_and_numbers
    size, longer = divmod(samples, parts)
    middle = longer * (size + 1)
    for first, last, each in ((0, middle, size + 1), (middle, samples, size)):
        if first == last:
            continue

        def stack(a, first=first, last=last, each=each):
            return a[first:last].reshape(-1, each, *a.shape[1:])

        chosen = numbers[:longer] if each > size else numbers[longer:]
        yield (jax.tree.map(stack, batch), chosen), each / samples
