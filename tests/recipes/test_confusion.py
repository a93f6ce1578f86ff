"""`scoring/confusion.py`: which classes a model confuses."""

import numpy as np
import pytest
from PIL import Image
from scoring.confusion import MAX_DRAWN, Confusion, add_to_card

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
