"""Keras's train step on JAX, with the gradient left to the subclass."""

import jax
import keras

from .stateless import training_pass


class TrainStep:
    """Trains with the gradients of `step_gradients`; goes before `keras.Model`.

    `step_gradients(loss_and_gradients, weights)` is the subclass's. It may call
    `loss_and_gradients(values)` for this batch at any values of the weights. Every
    call starts from the state before the step, so random masks repeat; the logs and
    the state (moving statistics, seeds) are those of the **first** call.

    Follows keras/src/backend/jax/trainer.py.
    """

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
        """As Keras's, which calls it in test steps too, with one scope for all."""
        named = (
            (self.trainable_variables, trainable_variables),
            (self.non_trainable_variables, non_trainable_variables),
            (self.metrics_variables, metrics_variables),
        )
        mapping = [
            pair for names, values in named for pair in zip(names, values, strict=True)
        ]
        batch = (x, y, sample_weight)
        with training_pass(self, mapping, *batch, training) as (y_pred, loss, scope):
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

    def train_step(self, state, data):
        """One optimizer step: state and batch in, logs and new state out."""
        weights, before, optimizer_variables, metrics = state
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        differentiate = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)
        first = []

        def loss_and_gradients(values):
            (_, kept), gradients = differentiate(
                values,
                before,
                metrics,
                x,
                y,
                sample_weight,
                training=True,
                optimizer_variables=optimizer_variables,
            )
            if not first:
                first.append(kept)
            return kept[0], gradients

        mapping = list(zip(self.optimizer.variables, optimizer_variables, strict=True))
        with keras.StatelessScope(mapping):  # for who asks for the learning rate
            gradients = self.step_gradients(loss_and_gradients, weights)
        loss, y_pred, after, metrics = first[0]
        weights, optimizer_variables = self.optimizer.stateless_apply(
            optimizer_variables, gradients, weights
        )
        logs, metrics = self._update_metrics_variables(
            metrics, loss, x, y, y_pred, sample_weight
        )
        return logs, (weights, after, optimizer_variables, metrics)
