import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets

from kerasvit import data
from kerasvit.data import IndexedImages, StreamedImages, TrainingImages
from kerasvit.data.splits import share_of
from tests.once import on_last_backend

pytestmark = on_last_backend  # all of it is tf.data


def names_of(found):
    images = getattr(found, "train", TrainingImages(found)).images
    return {str(name) for name in images.names}


@pytest.fixture
def photos(images):
    images("cat", 40)
    return images("dog", 20)


def test_every_class_has_its_share(photos):
    dataset = data.from_folder(photos).of_share(0.25)
    assert dataset.class_names == ["cat", "dog"]
    assert np.bincount(dataset.train.images.labels).tolist() == [7, 4]  # of 28 and 14
    assert dataset.whole == 42
    for path, name in zip(
        dataset.train.images.items, dataset.train.images.names, strict=True
    ):
        assert path == photos / name and path.parent.name == name.split("/")[0]


def test_a_half_is_rounded_up():
    images = IndexedImages(np.zeros((5, 2, 2), "uint8"), np.zeros(5))
    assert len(share_of(images, 0.5, 0, ["one"])) == 3
    assert len(share_of(images, 0.1, 0, ["one"])) == 1


def test_smaller_shares_are_nested_and_other_seeds_differ():
    shares = [0.05, 0.1, 0.5, 0.9]
    chosen = [names_of(data.built_in("digits").of_share(share)) for share in shares]
    assert all(small < large for small, large in zip(chosen, chosen[1:], strict=False))
    other = names_of(data.built_in("digits").of_share(0.1, seed=1))
    assert len(other) == len(chosen[1]) and len(other & chosen[1]) < len(other) / 2


def test_a_share_leaves_validation_and_test_as_they_are():
    whole = data.built_in("digits")
    some = whole.of_share(0.1)
    assert some.validation is whole.validation and some.test is whole.test
    held_out = names_of(whole.test)
    held_out |= names_of(whole.validation)
    assert names_of(some) < names_of(whole) and not names_of(some) & held_out
    for pixels, name in zip(
        some.train.images.items, some.train.images.names, strict=True
    ):
        [number] = np.flatnonzero(np.asarray(whole.train.images.names) == name)
        assert np.array_equal(pixels, whole.train.images.items[number])


def test_the_choice_does_not_depend_on_other_files_or_the_place(images, tmp_path):
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            root = images(f"{part}/{name}", 10)
    before = names_of(data.from_folder(root).of_share(0.5))
    assert before == names_of(data.from_folder(root).of_share(0.5))
    moved = shutil.copytree(root, tmp_path / "moved")
    shutil.copytree(moved / "train" / "dog", moved / "train" / "ant")
    shutil.copytree(moved / "val" / "dog", moved / "val" / "ant")
    chosen = sorted(name for name in before if name.startswith("cat/"))
    for number in range(10):  # of cats, half of those that were not chosen
        if f"cat/{number}.jpg" not in chosen and number % 2:
            (moved / "train" / "cat" / f"{number}.jpg").unlink()
    after = names_of(data.from_folder(moved).of_share(0.5))
    cats = {name for name in after if name.startswith("cat/")}
    assert cats <= set(chosen) and len(cats) >= 3
    assert {name for name in after if name.startswith("dog/")} == before - set(chosen)


def test_records_of_a_stream_are_chosen_as_items_with_numbers():
    labels = np.arange(100) % 3
    stored = tf.data.Dataset.from_tensor_slices((np.arange(100), labels))
    stream = StreamedImages(stored, lambda item: item)
    items = IndexedImages(np.arange(100), labels)
    options = {"share": 0.2, "seed": 4, "class_names": ["a", "b", "c"]}
    some, same = (each.part(share_of(each, **options)) for each in (stream, items))
    assert len(some) == 7 + 7 + 7 and np.array_equal(some.labels, same.labels)
    found = [(int(i), int(label)) for i, label in some.listed()]
    assert found == list(zip(same.items, same.labels, strict=True))
    epochs = [int(i) for i, _ in some.shuffled(seed=0, first=0).take(42)]
    assert sorted(epochs[:21]) == sorted(epochs[21:]) == [i for i, _ in found]


@pytest.mark.slow
def test_a_dataset_of_tensorflow_datasets():
    with tensorflow_datasets.testing.mock_data(num_examples=60):
        whole = data.from_tfds("mnist")
        some = whole.of_share(0.3)
        counts = np.bincount(whole.train.images.labels, minlength=10)
        kept = np.bincount(some.train.images.labels, minlength=10)
    assert kept.tolist() == np.floor(0.3 * counts + 0.5).astype(int).tolist()


def test_the_images_of_some_classes():
    whole = data.built_in("digits")
    some = whole.of_classes(["7", "2"])
    assert some.class_names == ["7", "2"]
    for part in (some.train.images, some.validation, some.test):
        assert set(part.labels) == {0, 1}
    labels = whole.test.labels
    assert np.array_equal(some.test.labels, (labels[np.isin(labels, (7, 2))] == 2) * 1)
    assert names_of(some) < names_of(whole)


def test_some_classes_of_a_stream_are_those_of_items():
    labels = np.arange(60) % 3
    stored = tf.data.Dataset.from_tensor_slices((np.arange(60), labels))
    streamed = StreamedImages(stored, lambda item: item)
    found = []
    for images in (streamed, IndexedImages(np.arange(60), labels)):
        train = TrainingImages(images)
        whole = data.LabelledImages(train, images, images, ["a", "b", "c"])
        some = whole.of_classes(["c", "a"])
        assert some.test is some.validation and len(some.train) == 40
        found.append(some.train.images)
    pairs = [(int(i), int(label)) for i, label in found[0].listed()]
    assert pairs[:3] == [(0, 1), (2, 0), (3, 1)]
    assert pairs == list(zip(found[1].items, found[1].labels, strict=True))


def test_classes_that_a_part_has_not_and_classes_of_a_share():
    found = [IndexedImages(np.arange(6), labels) for labels in ([0, 1] * 3, [2] * 6)]
    train = TrainingImages(found[0])
    whole = data.LabelledImages(train, found[1], found[1], ["a", "b", "c"])
    with pytest.raises(ValueError, match="validation or test images have none of a, b"):
        whole.of_classes(["a", "b"])
    with pytest.raises(ValueError, match="classes first, and then the share"):
        data.built_in("digits").of_share(0.5).of_classes(["1", "2"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["0", "ten"], "no class 'ten'.*0, 1, 2"),
        (["1"], "two or more different names. Received: 1"),
        (["1", "1"], "Received: 1, 1"),
    ],
)
def test_wrong_classes_are_named(names, message):
    with pytest.raises(ValueError, match=message):
        data.built_in("digits").of_classes(names)


@pytest.mark.parametrize("count", [3, 7, 37, 999])
def test_a_share_that_leaves_a_class_empty_names_it_and_the_smallest(count):
    images = IndexedImages(np.arange(count + 1000), [0] * 1000 + [1] * count)
    with pytest.raises(ValueError, match=f"class 'dog', which has {count}") as error:
        share_of(images, 0.4 / count, 0, ["cat", "dog"])
    least = float(str(error.value).split("Give ")[1].split()[0])
    assert least == pytest.approx(0.5 / count, rel=0.02)
    assert np.sum(share_of(images, least, 0, ["cat", "dog"]) >= 1000) == 1
