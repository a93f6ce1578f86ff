"""Steps of Keras models, and the random images that all steps take."""

from collections.abc import Callable

import keras
import numpy as np

import kerasvit

from .settings import Config


def batch(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Returns random images and labels."""
    rng = np.random.default_rng(0)
    classes = getattr(kerasvit, config.name).defaults["num_classes"]
    shape = (config.batch_size, config.image_size, config.image_size, 3)
    images = rng.normal(size=shape).astype("float32")
    return images, rng.integers(0, classes, config.batch_size)


def kerasvit_model(config: Config, **arguments) -> keras.Model:
    """Returns a new model; takes further arguments of it."""
    return getattr(kerasvit, config.name)(image_size=config.image_size, **arguments)


def kerasvit_step(config: Config, model, images, labels) -> Callable:
    """Returns a step of a model or trainer of kerasvit, with its AdamW."""
    return keras_step(config, model, images, labels, kerasvit.AdamW(1e-4))


def keras_step(config: Config, model, images, labels, optimizer=None) -> Callable:
    """Returns a step of a Keras model or trainer, by default with Keras's AdamW."""
    if config.what in ("forward", "table"):
        return lambda: model.predict_on_batch(images)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.AdamW(1e-4), loss)
    return lambda: model.train_on_batch(images, labels)
