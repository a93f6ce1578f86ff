"""Serialises the layers that are arguments of a layer."""

import keras


def unbuilt(layer):
    """Serialises a sublayer without its build shape; None for None.

    A part that comes back built has variables whose paths lack the whole's name.
    """
    if layer is None:
        return None
    config = keras.saving.serialize_keras_object(layer)
    config.pop("build_config", None)
    return config


def rebuilt(config):
    """Deserialises a sublayer; None for None."""
    return config and keras.saving.deserialize_keras_object(config)
