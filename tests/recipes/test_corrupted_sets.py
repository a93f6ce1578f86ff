"""Published sets of corrupted images, of tensorflow-datasets and of .npy files."""

import numpy as np
import pytest
from scoring import catalogue, corrupted, sets
from tensorflow_datasets.testing import mock_data

from tests.once import on_last_backend

pytestmark = [pytest.mark.slow, on_last_backend]

COUNT = 3  # images of a severity


@pytest.fixture
def folder(tmp_path):
    """A folder like CIFAR-100-C; the first pixel is 10 * severity + image."""
    root = tmp_path / "CIFAR-100-C"
    root.mkdir()
    np.save(root / "labels.npy", np.tile(np.array([5, 99, 0]), 5))
    for kind in ("fog", "spatter"):
        pixels = np.zeros((5 * COUNT, 8, 8, 3), "uint8")
        for i in range(5 * COUNT):
            pixels[i] = 10 * (i // COUNT + 1) + i % COUNT
        np.save(root / f"{kind}.npy", pixels)
    return root


@pytest.mark.parametrize(
    ("name", "clean"), [("c", "imagenet2012"), ("cifar10_corrupted", "cifar10")]
)
def test_a_set_of_tensorflow_datasets(name, clean):
    some = ("glass_blur", "fog", "elastic_transform")  # two have other names in CIFAR's
    with mock_data(num_examples=5):
        assert corrupted.is_group(name)
        group = corrupted.find(name, some)
        found = group.sample(4).open("elastic_transform", 5)
        [whole] = corrupted.find_all([name, "cifar10"], ("fog",)).values()
        assert len(whole.first.labels) == 5
    published = catalogue.CORRUPTED[catalogue.ALIASES.get(name, name)]
    assert (group.name, group.kinds, group.missing) == (published.tfds, some, {})
    assert group.clean == clean
    assert len(found.labels) == 4
    assert found.label_names[0] == ("n01440764" if name == "c" else "airplane")


@pytest.mark.parametrize(
    "name", ["imagenet2012_corrupted/fog_2", "cifar10_corrupted/elastic_1"]
)
def test_a_configuration_is_a_set(name):
    with mock_data(num_examples=5):
        assert not corrupted.is_group(name)
        found = sets.find(name)
    assert found.name == name and len(found.labels) == 5


def test_kinds_that_are_not_prepared_are_named(monkeypatch):
    def builder(name):
        if name.startswith("cifar10_corrupted/snow"):
            raise ValueError(f"{name} could not be prepared.")

    monkeypatch.setattr(corrupted, "tfds_builder", builder)
    group = corrupted.find("cifar10_corrupted", ("snow", "fog"))
    assert group.kinds == ("fog",)
    assert group.missing == {"snow": "cifar10_corrupted/snow_1 could not be prepared."}
    with pytest.raises(ValueError, match="has none of the corruptions. snow: "):
        corrupted.find("cifar10_corrupted", ("snow",))


def test_a_folder_of_npy_files(folder):
    assert corrupted.is_group(str(folder))
    group = corrupted.find(str(folder), catalogue.KINDS)
    assert (group.name, group.clean) == ("CIFAR-100-C", "cifar100")
    assert group.kinds == ("fog", "spatter") and len(group.missing) == 17
    assert group.missing["snow"] == f"there is no file {folder / 'snow.npy'}"
    for severity in catalogue.SEVERITIES:
        found = group.open("spatter", severity)
        assert [int(each[0]) for each in found.labels] == [5, 99, 0]
        pixels = [(int(x[0, 0, 0]), int(i)) for x, i in found.images.once()]
        assert pixels == [(10 * severity + i, [5, 99, 0][i]) for i in range(COUNT)]
    sample = group.sample(2).open("fog", 4)
    [first, second] = [int(x[0, 0, 0]) for x, _ in sample.images.once()]
    assert [first, second] == [40 + i for i in sample.numbers]
    assert len(found.label_names) == 100 and "apple" in found.label_names


def test_folders_of_equal_names_and_labels_are_told_apart(folder):
    first = corrupted.find(str(folder), ("fog",)).first.digest
    assert corrupted.find(str(folder), ("fog",)).first.digest == first
    pixels = np.load(folder / "fog.npy")
    np.save(folder / "fog.npy", pixels + 1)
    assert corrupted.find(str(folder), ("fog",)).first.digest != first


def test_a_folder_of_ten_classes(folder):
    root = folder.rename(folder.with_name("C"))
    np.save(root / "labels.npy", np.tile(np.array([5, 9, 0]), 5))
    assert corrupted.find(str(root), ("fog",)).clean == "cifar10"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("labels.npy", np.zeros(14, int), r"5 severities, integers \(5 n,\). Rec.*14"),
        ("labels.npy", np.zeros((15, 1), int), r"Received: int64 \(15, 1\)"),
        ("labels.npy", np.zeros(15), "Received: float64"),
        ("labels.npy", np.arange(15), "must repeat the labels of the images 5 times"),
        ("labels.npy", np.full(15, 100), "classes of cifar100, 0 to 99. Received: 100"),
        (
            "labels.npy",
            np.zeros(20, int),
            r"images \(20, height.*has 20 labels.*\(15, 8",
        ),
        (
            "fog.npy",
            np.zeros((15, 8, 8), "uint8"),
            r"uint8 images.*: uint8 \(15, 8, 8\)",
        ),
        ("fog.npy", np.zeros((15, 8, 8, 3)), r"uint8 images \(15.*: float64"),
        ("fog.npy", np.array([{}]), "fog.npy cannot be read as .npy"),
    ],
)
def test_wrong_files(folder, file, content, message):
    np.save(folder / file, content)
    with pytest.raises(ValueError, match=message):
        corrupted.find(str(folder), catalogue.KINDS)


def test_severities_must_have_the_same_labels():
    def opener(kind, severity):
        labels = [np.array([0]), np.array([int(kind == "snow")])]
        return sets.ImageSet("set", None, labels, ["a", "b"])

    group = corrupted.Group("set", "", ("fog", "snow"), {}, opener)
    assert group.open("fog", 2)
    with pytest.raises(ValueError, match="snow of severity 1 of set must have the lab"):
        group.open("snow", 1)
