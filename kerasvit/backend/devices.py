"""The devices on which the backend computes."""

import keras


def device_names() -> list[str]:
    """Returns the name of each device of this process, such as "NVIDIA H200".

    Without an accelerator it is one name, that of the processor's kind.
    """
    name = keras.backend.backend()
    if name == "jax":
        import jax

        return [device.device_kind for device in jax.local_devices()]
    if name == "tensorflow":
        import tensorflow as tf

        config = tf.config
        devices = config.list_physical_devices("GPU")
        details = map(config.experimental.get_device_details, devices)
        return [each.get("device_name", "GPU") for each in details] or ["cpu"]
    if name == "torch":
        import torch

        from .keras_private import get_device

        count = torch.cuda.device_count()
        return [*map(torch.cuda.get_device_name, range(count))] or [get_device()]
    return ["cpu"]  # OpenVINO's by Keras
