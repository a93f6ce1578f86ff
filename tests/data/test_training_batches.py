"""Batches for `fit`: an epoch for each iteration, and any batch to begin at."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasvit
from kerasvit.data import (
    AUGMENTATIONS,
    IndexedImages,
    LabelledImages,
    StreamedImages,
    TrainingImages,
)
from tests.once import long_elsewhere, on_last_backend, rest_long

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(256, size=(22, 16, 16, 3), dtype="uint8")
LABELS = np.arange(22) % 2
INDEXED = TrainingImages(IndexedImages(PIXELS, LABELS))
STREAMED = TrainingImages(
    StreamedImages(
        tf.data.Dataset.from_tensor_slices((PIXELS, LABELS)), lambda image: image
    )
)
TRANSFORM = kerasvit.Preprocessing(8)
KINDS = pytest.mark.parametrize("images", [INDEXED, STREAMED], ids=["files", "stream"])


def train_batches(images=INDEXED, batch_size=4, **options):
    return images.batches(TRANSFORM, batch_size, "photo", **options)


def read(batches):
    return [x.tobytes() + y.tobytes() for x, y in batches.as_numpy_iterator()]


@pytest.mark.slow
@on_last_backend
@KINDS
def test_iterations_are_epochs(images):
    train = train_batches(images)
    assert isinstance(train, tf.data.Dataset)
    assert len(train) == int(train.cardinality()) == 6  # 5.5, rounded
    assert train.element_spec[0].shape == (4, 8, 8, 3)
    epochs = [read(train) for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [6, 6, 6]
    expected = read(train_batches(images).with_epochs_of(18))
    assert epochs[0] + epochs[1] + epochs[2] == expected
    assert len(set(expected)) == 18


@pytest.mark.slow
@on_last_backend
@KINDS
@pytest.mark.parametrize("number", rest_long([0, 6, 14, 1, 5], 3))
def test_an_iteration_begins_at_a_batch(images, number):
    expected = read(train_batches(images).with_epochs_of(24))
    train = train_batches(images)
    train.start_at(number)
    rest, next_epoch = read(train), read(train)
    end = number // 6 * 6 + 6
    assert rest == expected[number:end]
    assert next_epoch == expected[end : end + 6]
    assert len(train) == 6


@pytest.mark.slow
@on_last_backend
def test_unfinished_iterations_count_for_nothing():
    train, expected = train_batches(), read(train_batches().with_epochs_of(12))
    old = iter(train)
    for _ in range(5):
        next(old)
    assert read(train) == expected[:6]
    train.start_at(7)
    next(old)  # the last batch of its epoch
    assert read(train) == expected[7:]
    train.start_at(0)
    old = iter(train)
    next(old)
    train.start_at(0)
    assert len([*old]) == 5
    assert read(train) == expected[:6]


@pytest.mark.slow
@on_last_backend
def test_transformed_data_sets_keep_the_place():
    train, expected = train_batches(), read(train_batches().with_epochs_of(12))
    mapped = train.map(lambda x, y: (x, y)).prefetch(8)
    assert read(mapped) == expected[:6] and read(mapped) == expected[6:]
    train.start_at(4)
    assert read(train.repeat().take(8)) == expected[4:]


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("number", [-1, 1.5, "2"])
def test_a_wrong_number_of_a_batch(number):
    with pytest.raises(ValueError, match="`number` must be a whole number"):
        train_batches().start_at(number)


class Continue(keras.callbacks.Callback):
    """Trains the batches of a training from a number on, as a callback may do."""

    def __init__(self, train, number):
        super().__init__()
        self.train, self.number = train, number

    def on_epoch_begin(self, epoch, logs=None):
        self.train.start_at(self.number)

    def on_train_batch_end(self, batch, logs=None):
        self.number += 1


def compiled():
    keras.utils.set_random_seed(3)
    layers = [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    return model


def weights_after(batches, count):
    """The weights after `count` batches, in one epoch."""
    model = compiled()
    model.fit(batches.with_epochs_of(count), verbose=0)
    return model.get_weights()


def assert_equal(weights, expected):
    for each, same in zip(weights, expected):
        np.testing.assert_allclose(each, same, rtol=1e-6, atol=1e-7)


@long_elsewhere
def test_fit_trains_epochs_without_a_number_of_steps():
    model, train = compiled(), train_batches()
    model.fit(train, epochs=3, verbose=0)
    expected = weights_after(train_batches(), 18)
    assert_equal(model.get_weights(), expected)
    other = weights_after(train_batches(seed=4), 18)
    assert not np.allclose(expected[0], other[0])


@long_elsewhere
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize(("size", "first"), [(4, 9), (20, 1)])  # 6 and 1 in an epoch
def test_a_training_continues_inside_an_epoch(size, first):
    model, train = compiled(), train_batches(batch_size=size)
    begin = train.with_epochs_of(first)
    # Keras looks at a batch, which may be all of an epoch, before the first epoch.
    model.fit(begin, callbacks=[Continue(begin, 0)], verbose=0)  # interrupted here
    model.compile(model.optimizer, model.loss, metrics=["accuracy"])
    at, begun = Continue(train, first), first // len(train)
    model.fit(train, epochs=3, initial_epoch=begun, callbacks=[at], verbose=0)
    assert at.number == 3 * len(train)
    assert_equal(model.get_weights(), weights_after(train, 3 * len(train)))


def continue_on_two_devices(size, first):
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model, train = compiled(), train_batches(batch_size=size)
    at, begun = Continue(train, first), first // len(train)
    model.fit(train, epochs=3, initial_epoch=begun, callbacks=[at], verbose=0)
    assert at.number == 3 * len(train)
    rest = train_batches(batch_size=size).with_epochs_of(3 * len(train))
    rest.start_at(first)
    expected = compiled()
    expected.fit(rest, verbose=0)
    assert_equal(model.get_weights(), expected.get_weights())


TWO_DEVICES = """
import tensorflow as tf

[cpu] = tf.config.list_physical_devices("CPU")
parts = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, parts)

from tests.data import test_training_batches

test_training_batches.continue_on_two_devices(4, 9)
test_training_batches.continue_on_two_devices(20, 1)
"""


@pytest.mark.long
@pytest.mark.only_on("tensorflow", reason="of its MirroredStrategy")
def test_devices_of_tensorflow_continue():
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@on_last_backend
def test_a_transform_a_model_and_a_trainer_give_the_same_batches():
    model = kerasvit.VisionTransformer(
        num_classes=2,
        image_size=8,
        patch_size=4,
        width=8,
        depth=1,
        num_heads=1,
        mlp_dim=8,
    )
    model.preprocessing = TRANSFORM
    expected = read(INDEXED.batches(TRANSFORM, 4))
    assert read(INDEXED.batches(model, 4)) == expected
    assert read(INDEXED.batches(kerasvit.SAM(model, rho=0.1), 4)) == expected
    [(x, _)] = INDEXED.images.batches(TRANSFORM, 22, normalize=False)
    [(same, _)] = INDEXED.images.batches(TRANSFORM, 22)
    np.testing.assert_allclose(x / 127.5 - 1, same, atol=1e-6)


@on_last_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be a whole number ≥ 1"),
        ({"batch_size": 23}, "23 images is larger than the training set of 22"),
        ({"augment": "foto"}, "there is no 'foto'. Close: photo"),
        ({"augment": "photo_mixed"}, "must be one-hot: give `classes="),
        ({"augment": "deit", "batch_size": 3, "classes": 2}, "copies of one image"),
        ({"seed": -1}, "`seed` must be a whole number ≥ 0"),
        ({"model": "vit"}, "`model` must be a model of kerasvit"),
        ({"shard": (0, 3)}, "multiple of the 3 processes"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        INDEXED.batches(**{"model": TRANSFORM, "batch_size": 4, **options})


@on_last_backend
def test_validation_has_the_same_checks():
    images = INDEXED.images
    with pytest.raises(ValueError, match="`batch_size` must be a whole number"):
        images.batches(TRANSFORM, 0)
    assert len([*images.batches(TRANSFORM, 100)]) == 1
    assert isinstance(LabelledImages(INDEXED, images, images, ["a", "b"]).kind, str)


@pytest.mark.slow
@on_last_backend
def test_an_augmentation_of_ones_own():
    own = AUGMENTATIONS["photo"]
    assert read(INDEXED.batches(TRANSFORM, 4, own)) == read(train_batches())
