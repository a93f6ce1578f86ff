"""AdamW whose update on TensorFlow is one operation for each weight."""

import keras
import tensorflow as tf

from kerasvit.typing import Tensor


class FusedAdamW(keras.optimizers.AdamW):
    """Keras's AdamW, with TensorFlow's own update.

    Keras's takes a dozen operations, each of which reads and writes the weight or a
    slot.
    """

    def update_step(
        self, gradient: Tensor, variable: tf.Variable, learning_rate: Tensor
    ) -> None:
        """Updates a weight and its slots."""
        if self.amsgrad or isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, learning_rate)
            return
        dtype = variable.dtype
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, dtype)
        beta_1, beta_2 = (tf.cast(beta, dtype) for beta in (self.beta_1, self.beta_2))
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta_1**step,
            beta2_power=beta_2**step,
            lr=tf.cast(learning_rate, dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.cast(self.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )
