"""Keras's train step on TensorFlow, with the gradient left to the subclass."""

import keras
import tensorflow as tf

from .scope_tensorflow import PassScope
from .stateful import StatefulStep
from .stateless import batch_size, training_pass
from .step import loss_scale


class TrainStep(StatefulStep):
    """Train step with the gradients of `step_gradients`; a base before `keras.Model`.

    Under `tf.distribute.MirroredStrategy` each replica asks for gradients on its part
    of the batch, and the optimizer sums them.

    Follows keras/src/backend/tensorflow/trainer.py.
    """

    def make_train_function(self, force=False):
        """As Keras's; raises where the step cannot be taken."""
        steps, strategy = self._accumulated(), self.distribute_strategy
        several = strategy.num_replicas_in_sync > 1
        received = f"{strategy.num_replicas_in_sync} x {type(strategy).__name__}."
        mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
        if steps > 1 and (several or mirrored):
            raise ValueError(
                "Keras cannot accumulate gradients over steps under a strategy that "
                "mirrors variables. Use `micro_batches` for a large batch in the "
                "memory of a small one, or no strategy. Received: "
                f"gradient_accumulation_steps={steps}, {received}"
            )
        if self.jit_compile and several:
            raise ValueError(
                "XLA cannot compile a step over several replicas, whose variables are "
                'on several devices. Leave `jit_compile` "auto" or False. Received: '
                f"jit_compile={self.jit_compile}, {received}"
            )
        super().make_train_function(force)

    def steps_on_host(self):
        """Also with several replicas: TensorFlow cannot sum over replicas in a loop."""
        several = self.distribute_strategy.num_replicas_in_sync > 1
        return several or super().steps_on_host()

    def one_of(self, iterator):
        """Returns an iterator of one batch; raises at the end before a step begins."""
        if not hasattr(iterator, "get_next_as_optional"):
            return [next(iterator)]
        batch = iterator.get_next_as_optional()
        if not batch.has_value():
            raise StopIteration
        return [batch.get_value()]

    def variables_scope(self):
        """Returns the scope of the distribution strategy."""
        return self.distribute_strategy.scope()

    def values_of(self, variables):
        """Returns copies of the variables of this replica."""
        return [tf.convert_to_tensor(v.value) for v in variables]

    def gradients_of(self, values, seeds, batch):
        """Returns (loss, gradients, outputs, scope) of a pass at given weights."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            mapping = [*zip(self.trainable_variables, values, strict=True), *seeds]
            scope = PassScope(mapping, tape)
            with training_pass(self, scope, *batch) as (y_pred, loss):
                scaled = self.optimizer.scale_loss(loss)
                gradients = tape.gradient(scaled, values)
        self.check_unwritten(scope, values)
        # An embedding's gradient comes as rows; the mathematics wants an array.
        gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        if _replicas() > 1:
            gradients = self._unless_empty(batch, gradients, scope)
        # Keras divides the loss by the number of replicas, for the sum that follows.
        return loss * tf.cast(_replicas(), loss.dtype), gradients, y_pred, scope

    def gradients_by_variables(self, variables, seeds, batch):
        """Returns the gradients of Keras's own step, without substituted variables."""
        found = []

        def compute():
            of_tensorflow = [variable.value for variable in variables]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(of_tensorflow)
                # Reads that a scope does not substitute are those of the variable.
                scope = keras.StatelessScope(seeds, collect_losses=True)
                with training_pass(self, scope, *batch) as (_, loss):
                    found.extend(tape.gradient(loss, of_tensorflow))

        if tf.executing_eagerly() or _replicas() > 1:
            compute()
        else:  # A graph that is thrown away, for no step is to compute this.
            tf.function(compute, autograph=False).get_concrete_function()
        return found

    def _unless_empty(self, batch, gradients, scope):
        """Returns zero gradients and no new state for an empty batch."""
        some = batch_size(batch) > 0
        for variable in self.non_trainable_variables:
            value = scope.get_current_value(variable)
            if value is not None and value.dtype.is_floating:
                scope.add_update((variable, tf.where(some, value, variable.value)))
        return [g if g is None else tf.where(some, g, 0) for g in gradients]

    def loss_factor(self):
        """Returns the loss scale, divided for the sum over replicas."""
        scale = loss_scale(self.optimizer)
        if _replicas() == 1:
            return scale
        return (1.0 if scale is None else scale) / _replicas()

    def apply(self, gradients, variables):
        """Applies the optimizer, which sums over replicas."""
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def device_number(self):
        """Number of this replica."""
        if _replicas() == 1:
            return 0
        return tf.distribute.get_replica_context().replica_id_in_sync_group

    def mean_over_devices(self, tensors):
        """Returns the means of tensors over replicas; None stays None."""
        kept = [t for t in tensors if t is not None]
        if _replicas() == 1 or not kept:
            return tensors
        context = tf.distribute.get_replica_context()
        means = iter(context.all_reduce(tf.distribute.ReduceOp.MEAN, kept))
        return [t if t is None else next(means) for t in tensors]

    def across_devices(self, update):
        """Averages memory and moving statistics, and gradients where needed.

        Sums are left to the optimizer, unless it clips first, or looks for an overflow,
        which it does on one replica.
        """
        if _replicas() == 1:
            return update
        gradients = update.gradients
        optimizer = self._inner()
        clips = optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue
        if clips or optimizer is not self.optimizer:
            gradients = self.mean_over_devices(gradients)
        if clips:
            # Then what each replica hands over is too short to be clipped again.
            clipped = optimizer._clip_gradients(gradients)
            # An infinity that is cut to a number would hide an overflow.
            gradients = [
                g if g is None else tf.where(tf.math.is_finite(g), short, g)
                for g, short in zip(gradients, clipped, strict=True)
            ]
        floats = [
            v if v is not None and v.dtype.is_floating else None for v in update.state
        ]
        means = self.mean_over_devices(floats)
        return update._replace(
            gradients=gradients,
            memory=self.mean_over_devices(update.memory),
            overwritten=[t if t is None else _largest(t) for t in update.overwritten],
            state=[
                v if mean is None else mean
                for v, mean in zip(update.state, means, strict=True)
            ],
        )

    def after(self, total, piece):
        """Returns a part of the batch that is read after the parts before it."""
        done = [t for t in tf.nest.flatten(total) if t is not None]
        with tf.control_dependencies(done if tf.inside_function() else []):
            return tf.nest.map_structure(
                lambda t: t if t is None else tf.identity(t), piece
            )


def _replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


def _largest(tensor):
    """Returns the elementwise maximum over replicas."""
    context = tf.distribute.get_replica_context()
    return tf.reduce_max(context.all_gather(tensor[tf.newaxis], axis=0), axis=0)
