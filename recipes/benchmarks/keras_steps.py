"""Steps of Keras models, and the random images that all steps take."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from devices import device_name

import kerasvit

from .settings import Config


def batch(config: Config) -> tuple[Any, Any]:
    """Returns random images and labels, on the accelerator if there is one."""
    rng = np.random.default_rng(0)
    classes = getattr(kerasvit, config.name).defaults["num_classes"]
    shape = (config.batch_size, config.image_size, config.image_size, 3)
    images = rng.normal(size=shape).astype("float32")
    labels = rng.integers(0, classes, config.batch_size)
    if device_name.accelerator() is None:
        return images, labels
    return keras.ops.convert_to_tensor(images), keras.ops.convert_to_tensor(labels)


def kerasvit_model(config: Config, **arguments) -> keras.Model:
    """Returns a new model; takes further arguments of it."""
    return getattr(kerasvit, config.name)(image_size=config.image_size, **arguments)


def kerasvit_step(config: Config, model, images, labels, jit="auto") -> Callable:
    """Returns a step of a model or trainer of kerasvit, with its AdamW."""
    return keras_step(config, model, images, labels, kerasvit.AdamW(1e-4), jit)


def keras_step(
    config: Config, model, images, labels, optimizer=None, jit="auto"
) -> Callable:
    """Returns a step of a Keras model or trainer, by default with Keras's AdamW."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = optimizer or keras.optimizers.AdamW(1e-4)
    model.compile(optimizer, loss, jit_compile=jit or "auto")
    if config.what == "forward":
        return lambda: model.predict_on_batch(images)
    return lambda: model.train_on_batch(images, labels)
