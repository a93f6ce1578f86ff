"""`scoring/confusion.py`: which classes a model confuses."""

import warnings

import numpy as np
import pytest
from PIL import Image
from scoring.confusion import MAX_DRAWN, MAX_SHOWN, Confusion, add_to_card
from sklearn.metrics import precision_score, recall_score

from kerasvit.hub.card import is_generated, signed
from tests.once import on_last_backend

pytestmark = on_last_backend

NAMES = ["cat", "dog | puppy", "a\nbird"]
FOUND = Confusion(
    np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 0, 2]), NAMES, "t"
)


def test_counts_and_the_most_frequent_pairs():
    assert FOUND.counts.tolist() == [[1, 2, 0], [1, 1, 0], [0, 0, 1]]
    assert FOUND.pairs() == [
        ("cat", "dog | puppy", 2, 2 / 3),
        ("dog | puppy", "cat", 1, 1 / 2),
    ]
    assert "| cat | dog \\| puppy | 2 | 66.7 % |" in FOUND.section(None)


def test_classes_that_do_not_occur_are_left_out():
    """A model of many classes on images of few."""
    names = [f"class {i}" for i in range(1000)]
    found = Confusion(np.array([7, 7]), np.array([7, 900]), names, "t")
    assert found.classes.tolist() == [7, 900] and found.is_drawn
    assert found.counts.tolist() == [[1, 1], [0, 0]]
    assert found.pairs() == [("class 7", "class 900", 1, 0.5)]


def test_the_table_of_the_classes_is_that_of_scikit_learn():
    true, predicted = np.random.default_rng(0).integers([[7], [8]], size=(2, 200))
    found = Confusion(true, predicted, [f"c{i}" for i in range(9)], "t")
    expected = recall_score(true, predicted, labels=range(7), average="macro")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = found.section(None)
    assert found.balanced_accuracy == pytest.approx(expected)
    share = f"{100 * expected:.1f} %"
    assert f"Balanced accuracy: {share}, the mean of the recall of 7 classes." in text
    assert "Without images, and left out: c7, c8." in text
    for i in range(7):
        precision = precision_score(true == i, predicted == i)
        recall = recall_score(true == i, predicted == i)
        row = (
            f"| {np.sum(true == i)} | {100 * precision:.1f} % | {100 * recall:.1f} % |"
        )
        assert f"| c{i} {row}" in text
    assert "| c7 | 0 |" not in text


def test_a_class_that_is_never_predicted_has_no_precision():
    found = Confusion(np.array([0, 0, 1]), np.array([0, 0, 0]), ["a", "b"], "t")
    assert "| b | 1 | – | 0.0 % |" in found.section(None)
    assert found.balanced_accuracy == 0.5


def test_many_classes_are_not_all_shown():
    true = np.repeat(np.arange(150), np.where(np.arange(150) < 40, 1, 2))
    found = Confusion(true, true, [f"c{i}" for i in range(300)], "t").section(None)
    assert found.count("| 100.0 % | 100.0 % |") == MAX_SHOWN == 100
    assert "| c139 | 2 |" in found and "| c39 | 1 |" not in found
    assert "of the recall of 150 classes. Without images, and left out: c150" in found
    assert "c169 and 130 more." in found and "The 100 classes with the most" in found


def test_all_right():
    found = Confusion(np.arange(3), np.arange(3), NAMES, "t")
    assert found.pairs() == []
    assert "All 3 images are classified correctly." in found.section(None)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, MAX_DRAWN])
def test_a_picture_is_drawn(classes, tmp_path):
    names = [f"a long name of class {i}, which is cut" for i in range(classes)]
    found = Confusion(np.arange(classes), np.zeros(classes, int), names, "$test$")
    found.draw(tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").width > 400
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.slow
def test_a_card_has_one_section_a_set(tmp_path):
    card = tmp_path / "README.md"
    card.write_text(signed("---\nlicense: mit\n---\n# vit\n\nText.\n"))
    for of in ("test", "my photos", "test"):
        add_to_card(card, Confusion(FOUND.true, FOUND.predicted, NAMES, of))
    text = card.read_text()
    assert (
        text.count("## Confusion, test") == text.count("## Confusion, my photos") == 1
    )
    assert "(confusion_my_photos.png)" in text and "Text.\n" in text
    assert is_generated(text.encode())
    assert {path.name for path in tmp_path.iterdir()} == {
        *("README.md", "confusion_test.png", "confusion_my_photos.png"),
    }
    many = np.arange(MAX_DRAWN + 1)
    add_to_card(card, Confusion(many, many[::-1], [*map(str, many)], "test"))
    assert "confusion_test.png" not in card.read_text()
