"""AdamW whose update on TensorFlow is one operation for each weight."""

import keras
import tensorflow as tf

from kerasvit.types import Tensor


class FusedAdamW(keras.optimizers.AdamW):
    """Keras's AdamW, with TensorFlow's own update of weights in 32 or 64 bits.

    Keras's takes a dozen operations, each of which reads and writes the weight or a
    slot. It remains for `amsgrad`, sparse gradients and weights in 16 bits, to which
    TensorFlow's would round β₁ and β₂: 0.999 is 1 in bfloat16.
    """

    def update_step(
        self, gradient: Tensor, variable: tf.Variable, learning_rate: Tensor
    ) -> None:
        """Updates a weight and its slots."""
        dtype = variable.dtype
        exact = dtype in (tf.float32, tf.float64)
        if self.amsgrad or not exact or isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, learning_rate)
            return
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, dtype)
        # `tf.cast` would round Python's numbers to float32 first.
        beta_1, beta_2, epsilon = (
            tf.constant(number, dtype)
            for number in (self.beta_1, self.beta_2, self.epsilon)
        )
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta_1**step,
            beta2_power=beta_2**step,
            lr=tf.cast(learning_rate, dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=epsilon,
            grad=tf.cast(gradient, dtype),
        )
