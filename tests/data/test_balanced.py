"""Batches in which classes take turns."""

import numpy as np
import pytest

import kerasvit
from kerasvit import data
from tests.once import on_last_backend

pytestmark = on_last_backend
COUNTS = {"ant": 3, "bat": 8, "cat": 25}


@pytest.fixture
def found(images):
    for name, count in COUNTS.items():
        root = images(f"train/{name}", count)
        images(f"val/{name}", 2)
    return data.from_folder(root)


def labels_and_pixels(batches, epochs=1):
    seen = [each for _ in range(epochs) for each in batches.as_numpy_iterator()]
    return np.concatenate([y for _, y in seen]), np.concatenate([x for x, _ in seen])


@pytest.mark.slow
def test_classes_are_equally_frequent(found):
    batches = found.train.batches(kerasvit.Preprocessing(8), 6, balanced=True)
    assert len(batches) == 6  # 36 images
    for _, y in batches.as_numpy_iterator():
        assert np.bincount(y).tolist() == [2, 2, 2]


@pytest.mark.slow
def test_each_image_of_a_class_has_its_turn(found):
    batches = found.train.batches(kerasvit.Preprocessing(8), 6, balanced=True, seed=3)
    y, x = labels_and_pixels(batches, epochs=10)  # 120 of each class
    for label, count in enumerate(COUNTS.values()):
        seen = [each.tobytes() for each in x[y == label]]
        rounds = [seen[i : i + count] for i in range(0, 120 // count * count, count)]
        assert all(len(set(each)) == count for each in rounds)
        assert len({tuple(each) for each in rounds}) > 1  # in another order


@pytest.mark.slow
def test_shards_make_the_batches_of_one(found):
    transform = kerasvit.Preprocessing(8)
    whole = next(iter(found.train.batches(transform, 6, balanced=True)))
    parts = [
        next(iter(found.train.batches(transform, 6, balanced=True, shard=(i, 2))))
        for i in range(2)
    ]
    for i in (0, 1):
        joined = np.concatenate([part[i] for part in parts])
        np.testing.assert_array_equal(joined, whole[i])


def test_several_labels_cannot_be_balanced(found, tmp_path):
    images = found.train.images
    several = data.IndexedImages(images.items, np.ones((36, 2)))
    with pytest.raises(ValueError, match="several labels. Give a loss such as"):
        data.TrainingImages(several).batches(
            kerasvit.Preprocessing(8), 6, balanced=True
        )
