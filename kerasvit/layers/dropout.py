"""Dropout."""

import keras

from .layer import Layer


@keras.saving.register_keras_serializable("kerasvit")
class Dropout(Layer, keras.layers.Dropout):
    """`keras.layers.Dropout`, called without Keras's bookkeeping on PyTorch.

    Shape: any → same.

    Args: those of `keras.layers.Dropout`.
    """
