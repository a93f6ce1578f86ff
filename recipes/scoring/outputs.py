"""Computes a model's outputs for all images, on any number of devices and processes."""

from collections.abc import Callable

import keras
import numpy as np
from devices.devices import Devices

from kerasvit.data import Images


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
        here: Devices, which share the batches.
        batch_size: Number of images per batch, of all processes together.
        placed: Whether the models are on the devices already, as in a training.
    """

    def __init__(self, here: Devices, batch_size: int, placed: bool = False):
        self.here, self.batch_size, self.placed = here, batch_size, placed
        self.candidate = self.model = self.collected = None

    def __call__(
        self, candidate, images, make: Callable = Images.batches
    ) -> np.ndarray:
        """Returns the outputs for images, float32 (count, outputs).

        Args:
            candidate: `candidates.Candidate` with one output (batch, outputs).
            images: `Images`, whose labels are the images' numbers.
            make: Function like `Images.batches`, for images of another kind.
        """
        here = self.here
        batches = make(
            images,
            candidate.transform,
            normalize=candidate.normalize,
            batch_size=self.batch_size,
            shard=here.shard,
            pad=here.count > 1,
        )
        with here.scope():
            if self.candidate is not candidate:
                self.candidate, self.collected = candidate, None
                model = candidate.model
                self.model = model if self.placed else here.place(model)
            if here.count == 1:
                return np.asarray(self.model.predict(batches, verbose=0), "float32")
            self._collect(len(images))
            self.model.evaluate(here.distributed(batches), verbose=0)
            here.sum_metrics(self.model)
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
