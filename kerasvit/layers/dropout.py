"""Dropout."""

import keras

from .layer import InnerLayer


@keras.saving.register_keras_serializable("kerasvit")
class Dropout(InnerLayer, keras.layers.Dropout):
    """`keras.layers.Dropout`, called without Keras's bookkeeping on PyTorch.

    Shape: any → same.

    Args: those of `keras.layers.Dropout`.
    """
