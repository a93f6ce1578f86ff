import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasvit import Preprocessing
from kerasvit.data import (
    AUGMENTATIONS,
    Augmentation,
    IndexedImages,
    StreamedImages,
    operations,
    training_batches,
)
from kerasvit.data import (
    images as image_sets,
)
from tests.once import on_last_backend, rest_long

pytestmark = [on_last_backend, pytest.mark.slow]  # all of it is tf.data
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(256, size=(10, 16, 16, 3), dtype="uint8")
INDEXED = IndexedImages(PIXELS, np.arange(10))
STREAMED = StreamedImages(
    tf.data.Dataset.from_tensor_slices((PIXELS, np.arange(10))), lambda image: image
)
TRANSFORM = Preprocessing((8, 12))


def training(images, count, start=0, **options):
    options = {"batch_size": 4, "seed": 0, **options}
    found = training_batches(images, TRANSFORM, **options)
    found = found.with_epochs_of(start + count)
    found.start_at(start)
    return list(found.as_numpy_iterator())


@pytest.mark.parametrize("images", [INDEXED, STREAMED], ids=["indexed", "streamed"])
@pytest.mark.parametrize(
    "augmentation",
    rest_long(["cifar_mixed", "photo", "none", "shift", "deit", "resize_crop"]),
)
def test_batches_depend_only_on_their_number(images, augmentation):
    options = {"augment": AUGMENTATIONS[augmentation], "classes": 10}
    whole = training(images, 5, **options)
    rest = training(images, 2, start=3, **options)
    for (x, y), (x_again, y_again) in zip(whole[3:], rest, strict=True):
        assert np.array_equal(x, x_again) and np.array_equal(y, y_again)


def test_an_epoch_holds_every_image_once():
    labels = np.concatenate([y for _, y in training(INDEXED, 5)])
    assert sorted(labels[:10]) == sorted(labels[10:]) == list(range(10))


def test_epochs_differ_in_order():
    labels = np.concatenate([y for _, y in training(INDEXED, 5)])
    assert list(labels[:10]) != list(labels[10:])


def test_seeds_differ():
    assert not np.array_equal(
        training(INDEXED, 1)[0][1], training(INDEXED, 1, seed=1)[0][1]
    )


def test_images_of_a_batch_are_augmented_separately():
    same = IndexedImages(np.repeat(PIXELS[:1], 4, axis=0), np.arange(4))
    for name in ("shift", "photo"):
        [(x, _)] = training(same, 1, augment=AUGMENTATIONS[name])
        assert not np.array_equal(x[0], x[1])


def test_mixed_images_have_mixed_labels():
    mixed = AUGMENTATIONS["cifar_mixed"]
    found = [y for _, y in training(INDEXED, 8, augment=mixed, classes=10)]
    assert all(np.allclose(y.sum(axis=1), 1, atol=1e-5) for y in found)
    assert any(np.max(y) < 0.99 for row in found for y in row)


def test_drawn_changes_differ_within_a_batch():
    ramp = np.tile(np.arange(0, 256, 16, dtype="uint8")[:, None, None], (1, 16, 3))
    same = IndexedImages(np.stack([ramp] * 16), np.arange(16))
    drawn = operations.one_of(operations.solarize(0.5), operations.translate(0.5, 0.0))
    one_of = Augmentation(moves=(drawn,))
    [(x, _)] = training(same, 1, augment=one_of, batch_size=16)
    assert len({image.tobytes() for image in x}) > 4


def test_training_without_augmentation_equals_evaluation():
    [(x, y)] = training(INDEXED, 1)
    expected = np.stack([TRANSFORM(PIXELS[i]) for i in y])
    np.testing.assert_allclose(x, expected, atol=1e-6)


def test_evaluation_is_the_transform_of_the_weights():
    stream = INDEXED.batches(TRANSFORM, 4)
    x = np.concatenate([x for x, _ in stream.as_numpy_iterator()])
    assert np.array_equal(x, np.stack([TRANSFORM(pixels) for pixels in PIXELS]))


def test_model_with_normalisation_gets_pixels():
    [(x, _)] = training(INDEXED, 1, normalize=False)
    assert x.max() > 100


def test_images_in_memory_are_those_that_are_read(monkeypatch):
    [(quick, _)] = training(INDEXED, 1)
    monkeypatch.setattr(image_sets, "MAX_IN_MEMORY", 0)
    [(read, _)] = training(IndexedImages(INDEXED.items, INDEXED.labels), 1)
    assert np.array_equal(quick, read)


def test_grey_arrays_become_rgb():
    grey = IndexedImages(PIXELS[..., 0], np.arange(10))
    [(x, _)] = training(grey, 1)
    assert x.shape == (4, 8, 12, 3)


def test_changes_keep_their_precision_under_a_mixed_policy():
    keras.config.set_dtype_policy("mixed_bfloat16")
    [(x, _)] = training(INDEXED, 1, augment=AUGMENTATIONS["shift"])
    assert x.dtype == "float32"


def test_few_images_of_many():
    labels = np.repeat(np.arange(5), [100, 50, 25, 20, 5])
    items = [f"{i}.jpg" for i in range(200)]
    some = IndexedImages(items, labels).sample(40, seed=0)
    np.testing.assert_allclose(np.bincount(some.labels), [20, 10, 5, 4, 1], atol=1)
    assert len(set(some.items)) == 40
    for item, label in zip(some.items, some.labels, strict=True):
        assert labels[int(item[:-4])] == label
    assert IndexedImages(items, labels).sample(300, 0).items is items
    assert IndexedImages(items, labels).sample(40, 0).items == some.items


def test_few_images_of_a_stream():
    stream = StreamedImages(
        tf.data.Dataset.from_tensor_slices(
            (np.zeros((50, 4, 4, 3), "uint8"), range(50))
        ),
        lambda image: image,
    )
    some = stream.sample(20, seed=3)
    labels = [int(y) for _, y in some.once()]
    assert len(some) == 20 == len(set(labels)) and labels != list(range(20))
    assert labels == [int(y) for _, y in some.once()]
    assert stream.sample(50, seed=3) is stream
