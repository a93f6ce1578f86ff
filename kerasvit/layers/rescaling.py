"""Scale and offset of channels."""

import keras

from kerasvit.typing import Tensor


@keras.saving.register_keras_serializable("kerasvit")
class Rescaling(keras.layers.Rescaling):
    """`keras.layers.Rescaling` with the channels last, whatever Keras's image format.

    Keras's layer reads `keras.config.image_data_format()` in each call, and under
    "channels_first" scales the rows of (batch, H, W, C).

    Shape: (..., C) → same.

    Args:
        scale: One number, or C.
        offset: One number, or C, added to the product.
    """

    def call(self, inputs: Tensor) -> Tensor:
        # `self.backend` is TensorFlow's in a tf.data pipeline.
        x, scale, offset = (
            self.backend.cast(value, self.compute_dtype)
            for value in (inputs, self.scale, self.offset)
        )
        return x * scale + offset
