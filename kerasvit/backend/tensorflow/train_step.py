"""Train step on TensorFlow; subclasses define the gradients."""

from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from kerasvit.types import Gradients, Tensor

from ..in_place_step import StatefulStep
from ..keras_private import clipped
from ..train_step import batch_size, loss_scale, training_pass
from ..update import Update
from .scope import PassScope


class TrainStep(StatefulStep):
    """`keras.Model` whose train step uses the gradients of `step_gradients`.

    Under `tf.distribute.MirroredStrategy` each replica computes gradients on its part
    of the batch, and the optimizer sums them.

    Follows keras/src/backend/tensorflow/trainer.py.
    """

    def make_train_function(self, force: bool = False) -> None:
        """Makes Keras's train function.

        Raises:
            ValueError: TensorFlow does not support the configuration.
        """
        steps, strategy = self._accumulated(), self.distribute_strategy
        several = strategy.num_replicas_in_sync > 1
        received = f"{strategy.num_replicas_in_sync} x {type(strategy).__name__}."
        mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
        if steps > 1 and (several or mirrored):
            raise ValueError(
                "Keras cannot accumulate gradients over steps under a strategy that "
                "mirrors variables. Use `micro_batches`, which need the memory of a "
                "part of the batch, or no strategy. Received: "
                f"gradient_accumulation_steps={steps}, {received}"
            )
        if self.jit_compile and several:
            raise ValueError(
                "XLA cannot compile a step over several replicas, whose variables are "
                'on several devices. Pass `jit_compile="auto"` or False. Received: '
                f"jit_compile={self.jit_compile}, {received}"
            )
        super().make_train_function(force)

    def steps_on_host(self) -> bool:
        """Returns whether the host calls the steps of one execution one by one.

        It does with several replicas too: TensorFlow cannot sum over replicas in a
        loop.
        """
        several = self.distribute_strategy.num_replicas_in_sync > 1
        return several or super().steps_on_host()

    def one_of(self, iterator: Any) -> list:
        """Returns one batch in a list.

        Raises:
            StopIteration: There is no further batch.
        """
        if not hasattr(iterator, "get_next_as_optional"):
            return [next(iterator)]
        batch = iterator.get_next_as_optional()
        if not batch.has_value():
            raise StopIteration
        return [batch.get_value()]

    def variables_scope(self) -> AbstractContextManager:
        """Returns the scope of the distribution strategy."""
        return self.distribute_strategy.scope()

    def values_of(self, variables: list[keras.Variable]) -> list[Tensor]:
        """Returns copies of the variables of this replica."""
        return [tf.convert_to_tensor(v.value) for v in variables]

    def gradients_of(
        self, values: list[Tensor], seeds: list, batch: Any
    ) -> tuple[Tensor, Gradients, Any, keras.StatelessScope]:
        """Returns (loss, gradients, outputs, scope) of a pass at given weights."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            mapping = [*zip(self.trainable_variables, values, strict=True), *seeds]
            scope = PassScope(mapping, tape)
            with training_pass(self, scope, *batch) as (y_pred, loss):
                scaled = self.optimizer.scale_loss(loss)
                gradients = tape.gradient(scaled, values)
        self.check_unwritten(scope, values)
        # The gradient of an embedding is a sparse `tf.IndexedSlices`.
        gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        if _replicas() > 1:
            gradients = self._zero_if_empty(batch, gradients, scope)
        # Keras divides the loss by the number of replicas, for the sum that follows.
        return loss * tf.cast(_replicas(), loss.dtype), gradients, y_pred, scope

    def gradients_by_variables(
        self, variables: list[keras.Variable], seeds: list, batch: Any
    ) -> Gradients:
        """Returns the gradients of Keras's own step, without substituted variables."""
        gradients: Gradients = []

        def compute() -> None:
            tf_variables = [variable.value for variable in variables]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(tf_variables)
                # The scope substitutes the seeds only: layers read the variables.
                scope = keras.StatelessScope(seeds, collect_losses=True)
                with training_pass(self, scope, *batch) as (_, loss):
                    gradients.extend(tape.gradient(loss, tf_variables))

        if tf.executing_eagerly() or _replicas() > 1:
            compute()
        else:  # a separate graph that never runs: only None or not None matters
            tf.function(compute, autograph=False).get_concrete_function()
        return gradients

    def _zero_if_empty(
        self, batch: Any, gradients: Gradients, scope: keras.StatelessScope
    ) -> Gradients:
        """Returns zero gradients for an empty batch, whose state is reset too."""
        some = batch_size(batch) > 0
        for variable in self.non_trainable_variables:
            value = scope.get_current_value(variable)
            if value is not None and value.dtype.is_floating:
                scope.add_update((variable, tf.where(some, value, variable.value)))
        return [g if g is None else tf.where(some, g, 0) for g in gradients]

    def loss_factor(self) -> Tensor | None:
        """Returns the loss scale, divided by the number of replicas for their sum."""
        scale = loss_scale(self.optimizer)
        if _replicas() == 1:
            return scale
        return (1.0 if scale is None else scale) / _replicas()

    def apply(self, gradients: Gradients, variables: list[keras.Variable]) -> None:
        """Applies the optimizer, which sums over replicas."""
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def device_number(self) -> Any:
        """Returns the number of this replica."""
        if _replicas() == 1:
            return 0
        return tf.distribute.get_replica_context().replica_id_in_sync_group

    def mean_over_devices(self, tensors: Gradients) -> Gradients:
        """Returns the means of tensors over replicas; None stays None."""
        present = [t for t in tensors if t is not None]
        if _replicas() == 1 or not present:
            return tensors
        context = tf.distribute.get_replica_context()
        # A tensor that was read from a variable may be on no device, on which
        # `all_reduce` would put its sum.
        present = [tf.identity(t) for t in present]
        means = iter(context.all_reduce(tf.distribute.ReduceOp.MEAN, present))
        return [t if t is None else next(means) for t in tensors]

    def across_devices(self, update: Update) -> Update:
        """Averages slots and moving statistics, and gradients where needed.

        The optimizer sums gradients itself. Before that it would clip them, or check
        them for an overflow on one replica only; they are averaged here in these cases.
        """
        if _replicas() == 1:
            return update
        gradients = update.gradients
        optimizer = self._inner()
        clips = optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue
        if clips or optimizer is not self.optimizer:
            gradients = self.mean_over_devices(gradients)
        if clips:
            # The optimizer does not clip again: each replica passes a share of these.
            shortened = clipped(optimizer, gradients)
            # Clipping an infinity to a finite number would hide an overflow.
            gradients = [
                g if g is None else tf.where(tf.math.is_finite(g), short, g)
                for g, short in zip(gradients, shortened, strict=True)
            ]
        floats = [
            v if v is not None and v.dtype.is_floating else None for v in update.state
        ]
        means = self.mean_over_devices(floats)
        return update._replace(
            gradients=gradients,
            slots=self.mean_over_devices(update.slots),
            overwritten=[t if t is None else _largest(t) for t in update.overwritten],
            state=[
                v if mean is None else mean
                for v, mean in zip(update.state, means, strict=True)
            ],
        )

    def after(self, total: Update, micro_batch: Any) -> Any:
        """Returns the micro-batch such that it is computed after `total`."""
        done = [t for t in tf.nest.flatten(total) if t is not None]
        with tf.control_dependencies(done if tf.inside_function() else []):
            return tf.nest.map_structure(
                lambda t: t if t is None else tf.identity(t), micro_batch
            )


def _replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync


def _largest(tensor: Tensor) -> Tensor:
    """Returns the elementwise maximum over replicas."""
    context = tf.distribute.get_replica_context()
    return tf.reduce_max(context.all_gather(tensor[tf.newaxis], axis=0), axis=0)
