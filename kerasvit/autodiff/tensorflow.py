"""Keras's train step on TensorFlow, with the gradient left to the subclass."""

import tensorflow as tf

from .stateful import StatefulStep
from .stateless import training_pass
from .step import loss_scale


class TrainStep(StatefulStep):
    """Trains with the gradients of `step_gradients`; goes before `keras.Model`.

    Under `tf.distribute.MirroredStrategy` each replica takes a step on its part of the
    batch, and the optimizer sums gradients over them.

    Follows keras/src/backend/tensorflow/trainer.py.
    """

    def make_train_function(self, force=False):
        """Keras's, once it is known to be possible."""
        steps, strategy = self._accumulated(), self.distribute_strategy
        if steps > 1 and strategy.num_replicas_in_sync > 1:
            raise ValueError(
                "Keras cannot accumulate gradients over steps under a strategy of "
                "several replicas. Use `micro_batches` for a large batch, or one "
                f"replica. Received: gradient_accumulation_steps={steps}, {strategy}."
            )
        super().make_train_function(force)

    def one_of(self, iterator):
        """One batch of the iterator; at its end no part of a step must have run."""
        if not hasattr(iterator, "get_next_as_optional"):
            return iterator
        batch = iterator.get_next_as_optional()
        if not batch.has_value():
            raise StopIteration
        return [batch.get_value()]

    def variables_scope(self):
        """The strategy's."""
        return self.distribute_strategy.scope()

    def values_of(self, variables):
        """Copies of this replica."""
        return [tf.convert_to_tensor(v.value) for v in variables]

    def gradients_of(self, values, seeds, batch):
        """Loss, its gradients, outputs and scope of a pass at values of the weights."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            mapping = [*zip(self.trainable_variables, values, strict=True), *seeds]
            with training_pass(self, mapping, *batch) as (y_pred, loss, scope):
                scaled = self.optimizer.scale_loss(loss)
                gradients = tape.gradient(scaled, values)
        # An embedding's gradient comes as rows; the mathematics wants an array.
        gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        # Keras divides the loss by the number of replicas, for the sum that follows.
        return loss * tf.cast(_replicas(), loss.dtype), gradients, y_pred, scope

    def loss_factor(self):
        """The loss scale, divided for the sum over replicas."""
        scale = loss_scale(self.optimizer)
        if _replicas() == 1:
            return scale
        return (1.0 if scale is None else scale) / _replicas()

    def apply(self, gradients, variables):
        """Lets the optimizer write the weights; it sums over replicas."""
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def device_number(self):
        """Of this replica."""
        if _replicas() == 1:
            return 0
        return tf.distribute.get_replica_context().replica_id_in_sync_group

    def mean_over_devices(self, tensors):
        """The mean of each over the replicas; None stays."""
        kept = [t for t in tensors if t is not None]
        if _replicas() == 1 or not kept:
            return tensors
        context = tf.distribute.get_replica_context()
        means = iter(context.all_reduce(tf.distribute.ReduceOp.MEAN, kept))
        return [t if t is None else next(means) for t in tensors]

    def across_devices(self, update):
        """The mean of the memory; Keras sees to the rest."""
        return update._replace(memory=self.mean_over_devices(update.memory))

    def after(self, total, piece):
        """A part of the batch that is taken when the parts before are done."""
        done = [t for t in tf.nest.flatten(total) if t is not None]
        with tf.control_dependencies(done if tf.inside_function() else []):
            return tf.nest.map_structure(
                lambda t: t if t is None else tf.identity(t), piece
            )


def _replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync
