"""Layers whose kernels are integers, which have no gradient."""

import keras

from .keras_private import layers_in


def integer_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers that are quantised, without those of float8."""
    modes = (None, "float8")
    return [x for x in layers_in(model) if x.quantization_mode not in modes]


def check_no_integers_trained(model: keras.Model) -> None:
    """Checks that training a model would not leave out its quantised kernels.

    Raises:
        ValueError: A quantised layer is not frozen.
    """
    layers = [layer for layer in integer_layers(model) if layer.trainable]
    if layers:
        raise ValueError(
            f"{model.name} cannot be trained: the kernels of {len(layers)} layers, "
            f"such as {layers[0].path}, are {layers[0].quantization_mode}, and "
            "integers have no gradient. Train the model before `quantize`. To train "
            "its other layers only, set `trainable = False` on the quantised ones."
        )
