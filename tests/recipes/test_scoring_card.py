"""Scores in model cards: `evaluate.py --card`."""

import json

import evaluate
import keras
import pytest
from command import command_line
from huggingface_hub import ModelCard
from scoring import card
from scoring.settings import Config

import kerasvit
from kerasvit.hub.card import is_generated
from kerasvit.hub.front_matter import split_page
from tests.once import on_last_backend

from .test_evaluate import save, vit

pytestmark = [pytest.mark.slow, on_last_backend]

DIGITS = [str(i) for i in range(10)]
USER = """---
# A comment
license: mit  # another
model-index:
- name: mine
  results:
  - task: {type: image-classification}
    dataset: {type: photos, name: my photos}
    metrics:
    - type: accuracy
      value: 0.5
# about the data
datasets: [a, b]
---
# My model

Text of mine.
"""


def entry(value):
    return {
        "task": {"type": "image-classification"},
        "dataset": {"type": "digits", "name": "digits"},
        "metrics": [{"type": "accuracy", "value": value}],
    }


def updated(text, value, section="## Scores"):
    return card.updated(text.encode(), "vit", [entry(value)], section).decode()


def values(page):
    [model] = split_page(page)[0]["model-index"]
    return [each["metrics"][0]["value"] for each in model["results"]]


def test_what_the_user_wrote_is_kept():
    page = updated(USER, 0.25)
    for line in USER.splitlines():
        if line and "model-index" not in line and not line.startswith((" ", "- ")):
            assert line in page.splitlines()
    metadata, body = split_page(page)
    assert metadata["license"] == "mit" and metadata["datasets"] == ["a", "b"]
    assert metadata["model-index"][0]["name"] == "mine"
    assert values(page) == [0.5, 0.25]
    assert body.startswith("# My model\n\nText of mine.\n\n<!-- Written by")


def test_earlier_scores_are_replaced():
    page = updated(USER, 0.25, "## Old").replace("Text of mine.", "Other text.")
    page = f"{page}\nA last word.\n"
    again = updated(page, 0.75, "## New")
    assert values(again) == [0.5, 0.75]
    assert again.count("## New") == 1 and "## Old" not in again
    assert "Other text." in again and again.endswith("\nA last word.\n")
    assert updated(again, 0.75, "## New") == again


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", {}),
        ("# Only text\n", {}),
        ("---\n# nothing\n---\ntext\n", {}),
        ("---\n{license: mit, tags: [a]}\n---\n", {"license": "mit", "tags": ["a"]}),
        ("---\r\nlicense: mit\r\n---\r\ntext\r\n", {"license": "mit"}),
        ("---\nmodel-index: []\nlicense: mit\n---\n", None),
        ("---\nmodel-index:\n- name: a\n---\n", None),
    ],
)
def test_other_pages(text, kept):
    if kept is None:
        with pytest.raises(ValueError, match="`model-index` must be a list"):
            updated(text, 0.5)
        return
    page = updated(text, 0.5)
    metadata, body = split_page(page)
    assert {k: v for k, v in metadata.items() if k != "model-index"} == kept
    assert values(page) == [0.5] and "## Scores" in body
    assert ("# vit" in body) == (not split_page(text)[1].strip())
    assert updated(page, 0.5) == page


def test_the_card_of_a_folder(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    save(vit(), "model", DIGITS)
    config = Config(("model",), on=("digits",), images=50, card=True)
    [result] = evaluate.evaluate(config)
    page = (tmp_path / "model/README.md").read_bytes()
    card = ModelCard.load("model/README.md")  # as the Hub's client reads it
    found = {each.metric_type: each for each in card.data.eval_results}
    top1 = result.parts["all"].scores["top1"]
    assert found["accuracy"].metric_value == round(top1.value, 6)
    interval = [round(each, 6) for each in (top1.low, top1.high)]
    assert found["accuracy"].metric_args["interval_95"] == interval
    assert found["accuracy"].metric_args["images"] == 50
    assert found["accuracy"].dataset_name == "digits" and len(found) == 4
    text = " ".join(card.text.split())
    assert f"| digits | 10 | 50 | {100 * top1.value:.2f} [" in text
    assert f"keras {keras.__version__}" in text and "top-1 of all classes" in text
    assert json.dumps(kerasvit.Preprocessing(16).to_config()) in text
    loaded = kerasvit.from_pretrained("model")  # the hash of the weights fits
    evaluate.evaluate(config)
    assert (tmp_path / "model/README.md").read_bytes() == page
    assert is_generated(page)  # with other weights it is replaced without a warning
    kerasvit.save_pretrained(loaded, "model")
    kept = (tmp_path / "model/README.md").read_text()
    assert "## Scores" in kept and "(confusion_digits.png)" in kept
    kerasvit.save_pretrained(loaded, "copy")
    kept = (tmp_path / "copy/README.md").read_text()
    assert "## Scores" in kept and "## Confusion, digits" in kept
    assert "confusion_digits.png" not in kept  # the picture stays behind
    assert not caplog.records
    loaded.get_layer("head").bias.assign_add(range(10))
    kerasvit.save_pretrained(loaded, "model")
    page = (tmp_path / "model/README.md").read_text()
    assert (
        "Scores" not in page and "Confusion" not in page and is_generated(page.encode())
    )
    assert "measured with other weights" in caplog.text


def test_the_card_tells_what_the_features_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(vit(), "model", DIGITS)
    config = Config(("model",), on=("digits",), frozen=("knn", "probe"), card=True)
    evaluate.evaluate(config)
    text = (tmp_path / "model/README.md").read_text()
    assert (
        "- digits, k-NN and linear probe: of frozen features, the input of the head; "
        "1,259 training and 179 validation images.\n"
    ) in text


def test_the_cards_of_a_training_and_of_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = vit(normalization={"mean": [0.5] * 3, "std": [0.5] * 3})
    save(model, "run/model", DIGITS)
    (tmp_path / "run/result.json").write_text("{}")
    model.save("whole.keras")
    config = Config(("run", "whole.keras"), on=("digits",), images=50, card=True)
    evaluate.evaluate(config)
    assert not (tmp_path / "run/README.md").exists()
    printed = capsys.readouterr().out
    paths = ("run/model/README.md", "scores/whole/README.md")
    for path in paths:
        assert f"Card: {path}." in printed
        assert "## Scores" in (tmp_path / path).read_text()
    [name] = split_page((tmp_path / paths[1]).read_text())[0]["model-index"]
    assert name["name"] == "whole"


@pytest.mark.parametrize("text", ["---\na: [\n---\n", "---\nmodel-index: 3\n---\n"])
def test_a_card_that_cannot_be_changed(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(vit(), "model", DIGITS)
    (tmp_path / "model/README.md").write_text(text)
    monkeypatch.setattr(evaluate.Predictor, "__call__", None)  # nothing is computed
    with pytest.raises(command_line.BadInput, match="`card`: .* cannot be changed: .*"):
        evaluate.evaluate(Config(("model",), on=("digits",), images=50, card=True))
    assert (tmp_path / "model/README.md").read_text() == text
