"""Dropout."""

import keras

from kerasvit.backend.direct_calls import DirectCalls


@keras.saving.register_keras_serializable("kerasvit")
class Dropout(DirectCalls, keras.layers.Dropout):
    """`keras.layers.Dropout`, called without Keras's bookkeeping on PyTorch.

    Shape: any → same.

    Args: those of `keras.layers.Dropout`.
    """
