"""Data sets of `evaluate.py`, and the match of their classes with a model's."""

import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets
from scoring import accuracy, catalogue, outputs, sets
from scoring.accuracy import match_classes

import kerasvit
from kerasvit.prediction import imagenet_names
from tests.once import on_last_backend

pytestmark = [pytest.mark.slow, on_last_backend]


def candidate(names, classes=None):
    names = names and list(names)
    return types.SimpleNamespace(
        name="model", label_names=names, classes=classes or len(names)
    )


def image_set(names, found=None):
    found = [[i] for i in range(len(names))] if found is None else found
    found = [np.array(each, int) for each in found]
    return sets.ImageSet("set", None, found, list(names))


ALIASES = [name for name, of in catalogue.ALIASES.items() if of in catalogue.SETS]


@pytest.mark.parametrize("name", [*catalogue.SETS, *ALIASES])
def test_published_sets(name):
    with tensorflow_datasets.testing.mock_data(num_examples=5):
        found = sets.find(name)
    published = catalogue.SETS[catalogue.ALIASES.get(name, name)]
    assert found.name == published.tfds
    assert len(found.images) == len(found.labels) == 5
    numbered = outputs.relabelled(found.images, range(5))
    assert [int(i) for _, i in numbered.once()] == [0, 1, 2, 3, 4]
    if published.classes_of == "imagenet2012":
        assert found.label_names[0] == "n01440764" and len(found.label_names) == 1000
        matched = match_classes(found, candidate(imagenet_names()))
        assert [list(x) for x in matched.labels] == [list(x) for x in found.labels]
        assert not matched.unmatched
        if published.restricted:
            assert tuple(matched.restricted) == published.restricted
        else:
            assert matched.restricted is None


def test_classes_of_a_and_r():
    for name in ("imagenet_a", "imagenet_r"):
        restricted = catalogue.SETS[name].restricted
        assert len(restricted) == len(set(restricted)) == 200
        assert list(restricted) == sorted(restricted) and restricted[-1] < 1000
    # The first class that both have, and classes that only one has.
    assert 6 in catalogue.SETS["imagenet_a"].restricted  # stingray
    assert 1 in catalogue.SETS["imagenet_r"].restricted  # goldfish


def test_a_class_that_does_not_occur_in_the_published_set():
    match = accuracy.Match([np.array([2])], np.array([1, 3]), [])
    with pytest.raises(ValueError, match="of the 2 classes that occur"):
        accuracy.scored(np.zeros((1, 5), "float32"), match)


def test_a_real_label_is_one_of_several():
    with tensorflow_datasets.testing.mock_data(num_examples=3):
        found = sets.find("real")
    assert max(len(each) for each in found.labels) > 1


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["dog", "CAT"], [1, 0]),
        (["sea_lion", "cat"], [2, 0]),
        (["wolf", "dog"], [None, 1]),
    ],
)
def test_classes_match_by_name(names, expected):
    found = match_classes(image_set(names), candidate(["Cat", "dog", "sea lion"]))
    assert [list(x) for x in found.labels] == [
        [] if i is None else [i] for i in expected
    ]
    assert found.unmatched == [n for n, i in zip(names, expected) if i is None]


def test_classes_of_imagenet_match_by_each_of_their_names():
    names = [
        "n01443537",
        "goldfish",
        "tench, Tinca tinca",
        "great white shark",
        "crane",
    ]
    found = match_classes(image_set(names), candidate(imagenet_names()))
    # Two classes have the name "crane".
    assert [list(x) for x in found.labels] == [[1], [1], [0], [2], []]
    assert list(found.restricted) == [0, 1, 2] and found.unmatched == ["crane"]


def test_classes_without_names_match_by_index():
    found = match_classes(image_set(["10", "2"]), candidate(None, classes=11))
    assert [list(x) for x in found.labels] == [[10], [2]]
    found = match_classes(image_set(["a", "b"]), candidate(None, classes=2))
    assert [list(x) for x in found.labels] == [[0], [1]] and found.restricted is None


@pytest.mark.parametrize("names", [["wolf"], ["n01443537"], ["0", "1"]])
def test_a_model_of_other_classes(names):
    with pytest.raises(ValueError, match="has none of the classes of set.*cat, dog"):
        match_classes(image_set(names), candidate(["cat", "dog"]))


def test_folders_and_tables(images, tmp_path):
    root = images("cat", 3)
    images("dog", 2)
    found = sets.find(str(root))
    assert found.label_names == ["cat", "dog"]
    assert [int(x[0]) for x in found.labels] == [0, 0, 0, 1, 1]
    sampled = found.sample(3)
    numbered = outputs.relabelled(sampled.images, range(3))
    assert [int(i) for _, i in numbered.once()] == [0, 1, 2]
    assert found.sample(3).images.items == sampled.images.items


def test_the_page_is_current():
    page = Path(catalogue.__file__).with_name("SETS.md").read_text()
    short = {name: alias for alias, name in reversed(catalogue.ALIASES.items())}
    for name, each in {**catalogue.SETS, **catalogue.CORRUPTED}.items():
        command = f"`--on {short.get(name, name)}`"
        number = str(catalogue.RESULTS["ViTB16/sam"].get(name, "–"))
        row = name, f"{each.images:,}", each.download, command, each.protocol, number
        assert f"\n| {' | '.join(row)} |\n" in page


def test_published_results_have_names_of_weights():
    for name in catalogue.RESULTS:
        variant, tag = name.split("/")
        names = repr(getattr(kerasvit, variant)).partition("weights: ")[2]
        assert tag in names.split(", ")
    assert catalogue.RESULTS["ViTB16/sam"]["imagenet_r"] == 26.4
