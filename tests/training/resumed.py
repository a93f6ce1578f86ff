"""A training that `Resume` continues, and a script of a user that trains it.

    python -m tests.training.resumed FOLDER KIND

Run as a script, this file trains until it is interrupted or done, and then leaves the
weights in FOLDER/weights_0.npz. KIND is "one" or "two" devices.
"""

import contextlib
import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import kerasvit
from kerasvit.layers import StochasticDepth

LENGTH, SIZE = 5, 8  # batches of an epoch, and their samples


def samples(number):
    """Batch `number` of a training."""
    rng = np.random.default_rng([7, number])
    x = rng.normal(size=(SIZE, 6)).astype("float32")
    return x, rng.integers(0, 3, SIZE)


def batches(rows=slice(None), length=LENGTH):
    """A double of the batches of kerasvit.data, which also are a `tf.data.Dataset`."""
    position = [0]

    def from_position():
        first = position[0]
        end = (first // length + 1) * length
        for number in range(first, end):
            x, y = samples(number)
            yield x[rows], y[rows]
        position[0] = end

    kinds = [tf.TensorSpec(a[rows].shape, a.dtype) for a in samples(0)]
    dataset = tf.data.Dataset.from_generator(
        from_position, output_signature=tuple(kinds)
    )

    class Batches(type(dataset)):
        def __init__(self):
            vars(self).update(vars(dataset))

        def cardinality(self):
            return tf.constant(length, "int64")

        def __len__(self):
            return length

        def start_at(self, number):
            position[0] = number

    return Batches()


def network(seed):
    """A model with batch statistics and two kinds of masks."""
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((6,))
    x = layers.Dense(8, activation="tanh", name="first")(inputs)
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.Dropout(0.3, name="dropout")(x)
    branch = layers.Dense(8, name="second")(x)
    x = layers.Add()([x, StochasticDepth(0.3, name="depth")(branch)])
    return keras.Model(inputs, layers.Dense(3, name="head")(x))


def compiled(trainer, optimizer=None, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = optimizer or keras.optimizers.Adam(0.01)
    trainer.compile(optimizer, loss, weighted_metrics=["accuracy"], **options)
    return trainer


class Slowly(keras.callbacks.Callback):
    """Leaves time for a signal in each batch."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)


def place(kind):
    """Returns (scope, rows of each batch) of the devices of this process."""
    everything, backend = slice(None), keras.backend.backend()
    if kind == "one":
        return contextlib.nullcontext(), everything
    if backend == "jax":
        distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
        return distribution.scope(), everything
    if backend == "tensorflow":
        cpu = tf.config.list_physical_devices("CPU")[0]
        half = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpu, [half, half])
        return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope(), everything
    import torch

    torch.distributed.init_process_group("gloo")
    rows = slice(torch.distributed.get_rank(), None, 2)
    return contextlib.nullcontext(), rows


def train(folder, kind):
    scope, rows = place(kind)
    with scope:
        trainer = compiled(kerasvit.SAM(network(seed=1), rho=0.05))
        data = batches(rows)
        resume = kerasvit.Resume(f"{folder}/states", data, minutes=0.002)
        trainer.fit(
            data, epochs=8, shuffle=False, verbose=0, callbacks=[Slowly(), resume]
        )
    number = os.environ.get("RANK", "0")
    np.savez(f"{folder}/weights_{number}.npz", *trainer.get_weights())


if __name__ == "__main__":
    train(*sys.argv[1:])
