"""Keras's train step on TensorFlow, with the gradient left to the subclass."""

import warnings

import keras
import tensorflow as tf

from .stateless import batch_size, training_pass, write_updates


class TrainStep:
    """Trains with the gradients of `step_gradients`; goes before `keras.Model`.

    `step_gradients(loss_and_gradients, weights)` is the subclass's. It may call
    `loss_and_gradients(values)` for this batch at any values of the weights. Every
    call starts from the state before the step, so random masks repeat; the logs and
    the state (moving statistics, seeds) are those of the **first** call.

    Follows keras/src/backend/tensorflow/trainer.py.
    """

    def train_step(self, data):
        """One optimizer step on one batch (of one replica); returns the logs."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        variables = self.trainable_variables
        first = []

        def loss_and_gradients(values):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(values)
                mapping = zip(variables, values, strict=True)
                with training_pass(self, mapping, x, y, sample_weight) as passed:
                    y_pred, loss, scope = passed
                    scaled = self.optimizer.scale_loss(loss)
                    gradients = tape.gradient(scaled, values)
            if not first:
                first.append((loss, y_pred, scope))
            # An embedding's gradient comes as rows; the mathematics wants an array.
            return loss, [
                g if g is None else tf.convert_to_tensor(g) for g in gradients
            ]

        # Copies of this replica: nothing here is written until the step is known.
        weights = [tf.convert_to_tensor(v.value) for v in variables]
        gradients = self.step_gradients(loss_and_gradients, weights)
        loss, y_pred, scope = first[0]
        write_updates(self, scope)
        # Keras divides the loss by the number of replicas, for the sum that follows.
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self._loss_tracker.update_state(
            loss * tf.cast(replicas, loss.dtype), sample_weight=batch_size(x)
        )
        if variables:
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        else:
            warnings.warn(
                "The model does not have any trainable weights.", stacklevel=2
            )
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
