"""Serialises the layers that are arguments of a layer."""

from typing import Any

import keras


def serialize(layer: keras.layers.Layer | None) -> dict[str, Any] | None:
    """Serialises a sublayer without its build shape; None for None.

    If deserialisation built the sublayer, the paths of its variables would lack the
    name of the outer layer.
    """
    if layer is None:
        return None
    config = keras.saving.serialize_keras_object(layer)
    config.pop("build_config", None)
    return config


def deserialize(config: dict[str, Any] | None) -> Any:
    """Deserialises a sublayer; None for None."""
    return config and keras.saving.deserialize_keras_object(config)
