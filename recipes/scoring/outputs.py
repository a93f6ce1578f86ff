"""Computes a model's outputs for all images, on any number of devices and processes."""

import keras
import numpy as np
import tensorflow as tf
from devices.devices import Devices

from kerasvit.data import Images, IndexedImages, StreamedImages

ROUNDING = 1e-3  # by which the sums of probabilities may differ from 1


class Outputs(keras.metrics.Metric):
    """Collects the outputs of a model in a variable.

    Replicas and processes add up metrics, and each image is added by one of them. This
    makes the collection exact on any number of devices, where `predict` of Keras needs
    one. Each step writes all rows, so that `predict` is faster.

    Args:
        shape: (number of images, outputs of an image).
    """

    def __init__(self, shape: tuple[int, int]):
        super().__init__(name="outputs", dtype="float32")
        self.rows = self.add_variable(shape, initializer="zeros", name="rows")

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds the outputs `y_pred` of the images of numbers `y_true`."""
        numbers = keras.ops.cast(keras.ops.reshape(y_true, (-1, 1)), "int32")
        outputs = keras.ops.cast(y_pred, self.dtype)
        if sample_weight is not None:  # 0 for images that fill the last batch
            weights = keras.ops.reshape(sample_weight, (-1, 1))
            outputs = keras.ops.where(weights > 0, outputs, 0.0)
        self.rows.assign_add(keras.ops.scatter(numbers, outputs, self.rows.shape))

    def result(self):
        """Returns 0: the outputs are in `rows`."""
        return keras.ops.zeros(())


class Predictor:
    """Computes the outputs of models on devices.

    Args:
        devices: Devices, which share the batches.
        batch_size: Number of images per batch, of all processes together.
        placed: Whether the models are on the devices already, as in a training.
    """

    def __init__(self, devices: Devices, batch_size: int, placed: bool = False):
        self.devices, self.batch_size, self.placed = devices, batch_size, placed
        self.given = self.model = self.collected = None

    def __call__(
        self, model: keras.Model, images, transform, normalize: bool | None = None
    ) -> np.ndarray:
        """Returns the outputs for images, float32 (count, outputs).

        Args:
            model: Model with one output (batch, outputs).
            images: `Images`; or others with such `batches`, whose labels are numbers.
            transform, normalize: As `model` and `normalize` of `Images.batches`.
        """
        devices = self.devices
        if isinstance(images, Images):
            images = relabelled(images, np.arange(len(images)))
        batches = images.batches(
            transform,
            self.batch_size,
            normalize=normalize,
            shard=devices.shard,
            pad=devices.count > 1,
        )
        with devices.scope():
            if self.given is not model:
                self.given, self.collected = model, None
                self.model = model if self.placed else devices.place(model)
            if devices.count == 1:
                return np.asarray(self.model.predict(batches, verbose=0), "float32")
            self._collect(len(images))
            self.model.evaluate(devices.distributed(batches), verbose=0)
            devices.sum_metrics(self.model)
            return keras.ops.convert_to_numpy(self.collected.rows)

    def _collect(self, count):
        """Compiles the model with a collection, unless it has one of this shape."""
        shape = (count, self.model.output_shape[-1])
        if self.collected is None or self.collected.rows.shape != shape:
            self.collected = Outputs(shape)
            # `evaluate` needs a loss.
            self.model.compile(loss=_zeros, weighted_metrics=[self.collected])


def _zeros(y_true, y_pred):
    return keras.ops.zeros_like(y_pred[:, 0])


def relabelled(images: Images, labels) -> Images:
    """Returns images with other labels, int (count,)."""
    if isinstance(images, IndexedImages):
        return type(images)(images.items, labels, images.names, images.channels)
    labels = tf.constant(labels, tf.int32)
    stored = images.stored.enumerate()
    stored = stored.map(lambda i, pair: (pair[0], labels[i]))
    count = tf.data.experimental.assert_cardinality(len(images))
    return StreamedImages(stored.apply(count), images.decode)


def are_probabilities(outputs: np.ndarray) -> bool:
    """Whether the outputs (count, classes) of a model are not logits."""
    sums = outputs.sum(axis=1)
    return bool((outputs >= 0).all() and np.allclose(sums, 1, atol=ROUNDING))


def as_logits(outputs: np.ndarray) -> np.ndarray:
    """Returns logits; of probabilities, as of models of Keras, the logarithm."""
    if are_probabilities(outputs):
        return np.log(np.maximum(outputs, np.finfo("float32").tiny))
    return outputs
