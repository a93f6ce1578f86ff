"""The batches of several processes, and evaluation on devices that divide a batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from kerasvit import Preprocessing
from kerasvit.data import (
    AUGMENTATIONS,
    Augmentation,
    IndexedImages,
    Rows,
    StreamedImages,
    training_batches,
)
from kerasvit.data import images as image_sets
from tests.once import mainly_on_last, on_last_backend, rest_long

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(256, size=(11, 16, 16, 3), dtype="uint8")
LABELS = RANDOM.integers(3, size=11)
INDEXED = IndexedImages(PIXELS, LABELS)
STREAMED = StreamedImages(
    tf.data.Dataset.from_tensor_slices((PIXELS, LABELS)), lambda image: image
)
TRANSFORM = Preprocessing((8, 12))
KINDS = pytest.mark.parametrize(
    "images", [INDEXED, STREAMED], ids=["indexed", "streamed"]
)


def training(images, count, start=0, **options):
    options = {"batch_size": 6, "seed": 0, "classes": 3, **options}
    found = training_batches(images, TRANSFORM, **options)
    found = found.with_epochs_of(start + count)
    found.start_at(start)
    return list(found.as_numpy_iterator())


def evaluation(images, **options):
    options = {"model": TRANSFORM, **options}
    return images.batches(**options)


@on_last_backend
@pytest.mark.slow
@KINDS
@pytest.mark.parametrize(
    ("augmentation", "n"), rest_long([("photo_mixed", 2), ("none", 6), ("photo", 2)])
)
def test_processes_together_have_the_batches_of_one(images, augmentation, n):
    options = {"augment": AUGMENTATIONS[augmentation], "start": 1}
    whole = training(images, 4, **options)
    parts = [training(images, 4, shard=(i, n), **options) for i in range(n)]
    for (x, y), *pieces in zip(whole, *parts):
        xs, ys = zip(*pieces)
        assert all(len(x) == 6 // n for x in xs)
        assert np.array_equal(x, np.concatenate(xs))
        assert np.array_equal(y, np.concatenate(ys))


@on_last_backend
@pytest.mark.slow
@pytest.mark.parametrize(("augmentation", "rows"), [("photo", 3), ("photo_mixed", 4)])
def test_a_process_decodes_only_its_images(augmentation, rows, tmp_path, monkeypatch):
    paths = [tmp_path / f"{i}.png" for i in range(120)]
    for path in paths:
        Image.fromarray(PIXELS[0]).save(path)
    read = set()

    def read_image(path):
        read.add(path)
        return Image.open(path)

    monkeypatch.setattr(image_sets, "read_image", read_image)
    images = IndexedImages(paths, np.arange(120) % 3)
    changes = AUGMENTATIONS[augmentation]
    second = Rows.of(6, (1, 2), pairs=bool(changes.mixing))
    epoch = images.shuffled(seed=0, first=0, rows=second).take(20 * rows)
    allowed = {paths[item] for item, _ in epoch.as_numpy_iterator()}
    assert len(allowed) == 20 * rows  # of 120 images in 20 batches
    training(images, 2, augment=changes, shard=(1, 2))
    assert len(read) >= 2 * rows and read <= allowed


@on_last_backend
@pytest.mark.parametrize(
    ("shard", "message"),
    [((0, 4), "take 4 or 8"), ((0, 8), "take 8. Received: 6"), ((2, 2), r"0 <= i < n")],
)
@pytest.mark.parametrize("make", [training, evaluation])
def test_batches_that_do_not_divide(make, shard, message):
    options = {"count": 1} if make is training else {"batch_size": 6}
    with pytest.raises(ValueError, match=message):
        make(INDEXED, shard=shard, **options)


@on_last_backend
@pytest.mark.slow
def test_batches_have_a_known_size():
    for make in (training_batches, IndexedImages.batches):
        stream = make(INDEXED, TRANSFORM, batch_size=6, shard=(1, 2))
        assert stream.element_spec[0].shape == (3, 8, 12, 3)


@on_last_backend
@pytest.mark.slow
@KINDS
@pytest.mark.parametrize(("size", "n"), [(4, 2), (4, 4), (6, 3), (24, 8), (3, 1)])
def test_padded_rows_have_every_image_once(images, size, n):
    options = {"batch_size": size, "pad": True}
    parts = [list(evaluation(images, shard=(i, n), **options)) for i in range(n)]
    assert {len(part) for part in parts} == {-(-11 // size)}
    rows = [[np.concatenate(each) for each in zip(*batch)] for batch in zip(*parts)]
    assert {len(x) for x, _, _ in rows} == {size}
    x, y, weights = (np.concatenate(each) for each in zip(*rows))
    [(whole, labels)] = evaluation(images, batch_size=11)
    assert np.array_equal(x[:11], whole) and np.array_equal(y[:11], labels)
    assert np.all(weights[11:] == 0) and np.all(np.isfinite(x))
    np.testing.assert_allclose(weights[:11], len(x) / 11, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("size", mainly_on_last([5, 4, 11, 16]))
def test_evaluate_of_padded_batches_is_that_of_the_images(size, classes):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    sparse = "" if classes else "Sparse"
    loss = getattr(keras.losses, f"{sparse}CategoricalCrossentropy")
    accuracy = getattr(keras.metrics, f"{sparse}CategoricalAccuracy")
    model.compile(
        loss=loss(from_logits=True), weighted_metrics=[accuracy(name="accuracy")]
    )
    options = {"return_dict": True, "verbose": 0}
    whole = evaluation(INDEXED, batch_size=11, classes=classes)
    expected = model.evaluate(whole, **options)
    padded = evaluation(INDEXED, batch_size=size, classes=classes, pad=True)
    found = model.evaluate(padded, **options)
    assert set(found) == {"loss", "accuracy"}
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert found["accuracy"] == pytest.approx(expected["accuracy"], rel=1e-6)
    unpadded = evaluation(INDEXED, batch_size=size, classes=classes)
    assert all(len(batch) == 2 for batch in unpadded)
    assert model.evaluate(unpadded, **options) == pytest.approx(expected, rel=1e-5)


def labels_of(images, **options):
    plain = {"augment": Augmentation(repeats=3), "classes": None}
    return [y.tolist() for _, y in training(images, 6, **{**plain, **options})]


NUMBERED = np.arange(24)
BLACK = np.zeros((24, 8, 8, 3), "uint8")
REPEATED = pytest.mark.parametrize(
    "images",
    [
        IndexedImages(BLACK, NUMBERED),
        StreamedImages(
            tf.data.Dataset.from_tensor_slices((BLACK, NUMBERED)), lambda image: image
        ),
    ],
    ids=["indexed", "streamed"],
)


@on_last_backend
@pytest.mark.slow
@REPEATED
def test_each_image_is_repeated_in_a_batch_and_once_in_an_epoch(images):
    found = labels_of(images, batch_size=12)
    for labels in found:
        assert labels == labels[:4] * 3  # neighbours, which are mixed, differ
    seen = [label for labels in found for label in labels[:4]]
    assert sorted(seen) == list(range(24))  # 6 batches of 4 images


@on_last_backend
@pytest.mark.slow
@REPEATED
def test_a_batch_that_the_repeats_do_not_divide(images):
    for labels in labels_of(images, batch_size=10):
        assert labels == (labels[:4] * 3)[:10] and len(set(labels)) == 4


@on_last_backend
@pytest.mark.slow
@REPEATED
@pytest.mark.parametrize(("size", "n"), rest_long([(10, 2), (12, 2), (10, 5), (12, 4)]))
@pytest.mark.parametrize("mixup", [0.0, 1.0])
def test_processes_and_resumption_repeat_the_images_of_one(images, size, n, mixup):
    augmentation = Augmentation(repeats=3, mixup=mixup)
    options = {"augment": augmentation, "batch_size": size, "classes": 24}
    whole = labels_of(images, **options)
    options["start"] = 2
    parts = [labels_of(images, shard=(i, n), **options) for i in range(n)]
    for expected, *pieces in zip(whole[2:], *parts, strict=False):
        assert np.array_equal(expected, np.concatenate(pieces))


@on_last_backend
@pytest.mark.slow
def test_copies_of_an_image_are_changed_separately():
    images = IndexedImages(PIXELS, np.arange(11))
    cropped = Augmentation(repeats=3, area=0.1)
    [(x, _)] = training(images, 1, augment=cropped, classes=None)
    assert len({image.tobytes() for image in x}) == 6
