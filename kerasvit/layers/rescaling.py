"""Scale and offset of channels."""

from typing import Any

import keras

from kerasvit.types import Tensor


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


def with_channels_last(config: dict[str, Any]) -> dict[str, Any]:
    """Returns a functional model's configuration with this layer in Keras's place.

    Files of version 0.1 have Keras's layer for the normalisation inside a model.
    """
    ours = {"module": Rescaling.__module__, "registered_name": "kerasvit>Rescaling"}
    keras_own = ("keras.layers", "Rescaling")
    layers = [
        {**layer, **(ours if _class(layer) == keras_own else {})}
        for layer in config["layers"]
    ]
    return {**config, "layers": layers}


def _class(layer: dict[str, Any]) -> tuple:
    return layer.get("module"), layer.get("class_name")
