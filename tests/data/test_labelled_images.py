import dataclasses
import gzip
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets

from kerasvit import data
from kerasvit.data import StreamedImages, folders, installed_sets, splits
from tests.once import on_last_backend

pytestmark = on_last_backend  # all of it is tf.data


def test_digits_are_split_without_overlap():
    digits = data.built_in("digits")
    assert sum(digits.counts.values()) == 1797
    assert digits.counts["test"] == pytest.approx(0.2 * 1797, abs=5)


@pytest.mark.slow
def test_mnist_subset_keeps_most_for_the_test():
    subset = data.built_in("mnist_subset")
    assert subset.counts == {"train": 1000, "validation": 500, "test": 3500}
    assert np.bincount(subset.train.images.labels).tolist() == [100] * 10
    assert subset.train.images.items.shape == (1000, 28, 28)
    assert (
        subset.train.images.items.dtype == "uint8"
        and subset.train.images.items.max() == 255
    )


@pytest.fixture
def clothes(monkeypatch, tmp_path):
    """Files in the format of Fashion-MNIST: 40 training and 10 test images."""
    monkeypatch.setattr(installed_sets, "FASHION", tmp_path)
    source = dataclasses.replace(
        installed_sets.BUILT_IN["debian_fashion_mnist"], test_images=10
    )
    monkeypatch.setitem(installed_sets.BUILT_IN, "debian_fashion_mnist", source)
    for part, count in (("train", 40), ("t10k", 10)):
        pixels = np.repeat(np.arange(count, dtype="uint8"), 28 * 28)
        labels = np.arange(count, dtype="uint8") % 10
        files = {"images-idx3": bytes(16) + pixels.tobytes()}
        files["labels-idx1"] = bytes(8) + labels.tobytes()
        for name, content in files.items():
            file = tmp_path / f"{part}-{name}-ubyte.gz"
            file.write_bytes(gzip.compress(content))


def test_fashion_mnist_keeps_its_test(clothes):
    dataset = data.built_in.__wrapped__("debian_fashion_mnist")
    assert dataset.counts == {"train": 30, "validation": 10, "test": 10}
    assert dataset.test.items[:, 5, 7].tolist() == list(range(10))
    assert dataset.test.labels.tolist() == list(range(10))
    assert dataset.class_names[9] == "Ankle boot"


def test_every_class_has_the_same_share_of_every_part():
    parts = splits.split(np.repeat([0, 1], [10, 100]))
    assert [len(indices) for indices in parts.values()] == [77, 11, 22]
    assert np.sum(parts["test"] < 10) == 2


def test_split_is_the_same_every_time():
    labels = np.arange(90) % 9
    first, second = splits.split(labels), splits.split(labels)
    assert all(np.array_equal(first[part], second[part]) for part in first)


def test_split_holds_every_example_once():
    parts = splits.split(np.arange(90) % 9)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(90))


def test_folder_without_splits_is_split(images):
    images("cat", 10)
    dataset = data.from_folder(images("dog", 10))
    assert dataset.class_names == ["cat", "dog"]
    assert dataset.counts == {"train": 14, "validation": 2, "test": 4}


@pytest.mark.parametrize("validation", ["val", "valid", "validation"])
def test_given_splits_are_kept(images, validation):
    for split, count in (("train", 4), (validation, 2), ("test", 3)):
        for name in ("cat", "dog"):
            root = images(f"{split}/{name}", count)
    dataset = data.from_folder(root)
    assert dataset.counts == {"train": 8, "validation": 4, "test": 6}


def test_a_table_may_name_files_elsewhere(images, tmp_path):
    root = images("cat", 10)
    files = [*root.glob("cat/*"), *images("dog", 10).glob("dog/*")]
    table = tmp_path / "tables" / "table.csv"
    table.parent.mkdir()
    lines = ["path,label", *(f"{path},{path.parent.name}" for path in files)]
    table.write_text("\n".join(lines))
    assert data.from_table(table).class_names == ["cat", "dog"]


def test_without_test_images_the_validation_is_the_test(images):
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            root = images(f"{split}/{name}", 4)
    dataset = data.from_folder(root)
    assert dataset.counts == {"train": 8, "validation": 8, "test": 8}
    assert dataset.test_name == "val"


def test_without_validation_images_some_of_train_are(images):
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            root = images(f"{split}/{name}", 10)
    assert data.from_folder(root).counts == {"train": 18, "validation": 2, "test": 20}


def test_train_alone_is_split(images):
    for name in ("cat", "dog"):
        root = images(f"train/{name}", 10)
    assert data.from_folder(root).counts == {"train": 14, "validation": 2, "test": 4}


def test_other_and_hidden_files_are_ignored(images):
    images("cat", 10)
    root = images("dog", 10)
    (root / "dog" / "notes.txt").write_text("a dog")
    (root / "dog" / "._0.jpg").write_text("macOS")
    (root / ".cache").mkdir()
    assert sum(data.from_folder(root).counts.values()) == 20


def test_missing_folder(tmp_path):
    with pytest.raises(ValueError, match="no folder .*nowhere"):
        data.from_folder(tmp_path / "nowhere")


def test_folder_without_images(tmp_path):
    with pytest.raises(ValueError, match="no folders of images. Expected"):
        data.from_folder(tmp_path)


def test_one_class_only(images):
    with pytest.raises(ValueError, match="one class only, 'cat'"):
        data.from_folder(images("cat", 4))


def test_class_folder_without_images(images):
    root = images("cat", 4)
    (root / "dog").mkdir()
    with pytest.raises(ValueError, match="no images in dog"):
        data.from_folder(root)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
def test_a_class_name_with_a_lone_surrogate_raises(images):
    images("cat", 3)
    root = images("dog", 3)
    (root / "caf\udce9").mkdir()
    with pytest.raises(ValueError, match="is not UTF-8.* Rename it"):
        data.from_folder(root)


def test_links_are_followed_and_other_files_are_counted(images):
    images("cat", 3)
    root = images("dog", 3)
    (root / "dog" / "3.heic").write_bytes(b"")
    (root / "dog" / ".hidden").write_bytes(b"")
    shutil.copy(root / "dog" / "0.jpg", root / "4.jpg")
    shutil.copy(root / "dog" / "0.jpg", root / "dog" / "5.JFIF")
    (root / "cat" / "round").symlink_to(root / "cat")
    (root / "linked").symlink_to(root / "cat")
    found = folders.classes(root)
    assert {name: len(files) for name, files in found.items()} == {
        "cat": 3,
        "dog": 4,
        "linked": 3,
    }
    assert sorted(folders.unread_files(root).split(", ")) == ["1 .heic", "1 .jpg"]


def test_class_missing_in_a_split(images):
    images("train/cat", 2)
    images("train/dog", 2)
    with pytest.raises(ValueError, match="same class folders. Only in one: dog"):
        data.from_folder(images("val/cat", 2))


def test_split_without_train(images):
    with pytest.raises(ValueError, match="holds val but no train"):
        data.from_folder(images("val/cat", 2))


def test_too_few_images_to_split(images):
    images("cat", 10)
    with pytest.raises(ValueError, match="needs 3 images or more.* dog has 2"):
        data.from_folder(images("dog", 2))


@pytest.mark.parametrize("content", ["truncated", "text", "empty"])
def test_damaged_file_is_named(images, content):
    images("cat", 10)
    root = images("dog", 10)
    file = root / "dog" / "3.jpg"
    half = file.read_bytes()[: file.stat().st_size // 2]
    file.write_bytes({"truncated": half, "text": b"no image", "empty": b""}[content])
    with pytest.raises(ValueError, match=r"dog\W3\.jpg cannot be read as an image"):
        data.from_folder(root)


def test_each_process_reads_its_share_to_find_damage(images):
    images("cat", 10)
    root = images("dog", 10)
    (root / "dog" / "3.jpg").write_bytes(b"no image")
    message = r"dog\W3\.jpg cannot be read as an image"
    data.from_folder(root, shard=(0, 3))
    data.from_folder(root, shard=(2, 3))
    with pytest.raises(ValueError, match=message):  # 3.jpg is the 14th file
        data.from_folder(root, shard=(1, 3))


def test_unknown_data_set_names_close_ones():
    with pytest.raises(ValueError, match="there is no 'oxford_pet'.*oxford_iiit_pet"):
        data.from_tfds("oxford_pet")


def test_failed_download(monkeypatch):
    def fail(self, **options):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(
        tensorflow_datasets.core.DatasetBuilder, "download_and_prepare", fail
    )
    with pytest.raises(ValueError, match="cifar10 could not be.*no route to host"):
        data.from_tfds("cifar10")


def test_data_set_that_is_no_classification():
    with tensorflow_datasets.testing.mock_data(num_examples=4):
        with pytest.raises(ValueError, match="no image classification"):
            data.from_tfds("ag_news_subset")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["oxford_iiit_pet", "mnist"])
def test_tensorflow_datasets(name):
    with tensorflow_datasets.testing.mock_data(num_examples=6):
        dataset = data.from_tfds(name)
        image, label = next(iter(dataset.train.images.once()))
    assert dataset.counts == {"train": 6, "validation": 6, "test": 6}
    assert image.dtype == "uint8" and label.dtype == "int32"
    assert len(dataset.class_names) == {"oxford_iiit_pet": 37, "mnist": 10}[name]


def test_builder_of_a_folder(images):
    for split, count in (("train", 5), ("validation", 2), ("test", 3)):
        for name in ("cat", "dog"):
            root = images(f"{split}/{name}", count)
    dataset = data.from_tfds(tensorflow_datasets.folder_dataset.ImageFolder(root))
    assert dataset.class_names == ["cat", "dog"]
    assert dataset.counts == {"train": 10, "validation": 4, "test": 6}


def test_streamed_epochs_hold_every_image_once():
    encoded = tf.data.Dataset.range(5).map(lambda i: (i, i))
    stream = StreamedImages(encoded, lambda i: i).shuffled(seed=0, first=0)
    indices = [int(i) for i, _ in stream.take(15)]
    epochs = [indices[:5], indices[5:10], indices[10:]]
    assert all(sorted(epoch) == list(range(5)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
