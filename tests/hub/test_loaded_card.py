"""The card of a loaded model stands in the card of its copies."""

import keras
import numpy as np
import pytest
from huggingface_hub import RepoCard

import kerasvit
from kerasvit.hub.front_matter import split_page
from kerasvit.loaded_card import LIMIT
from tests.once import mainly_on_last, on_last_backend
from tests.tiny_vit import random_model

from . import accidents
from .test_front_matter import HOSTILE, page

pytestmark = pytest.mark.slow

ACCURACY = {"value": 0.760753, "dataset": "pets", "split": "test", "images": 411}
FACTS = {"metrics": {"accuracy": ACCURACY}, "training": {"epochs": 3}}
MINE = "The photographs are mine."
TIMM = """---
# A comment.
license: apache-2.0
library_name: timm
tags: [image-classification, timm, lora]
datasets:
- imagenet-1k
model-index:
- name: vit
  results: []
---
# Model card for a ViT

    model = timm.create_model("vit", pretrained=True)
"""


def saved(folder, **facts):
    """The folder of a model, to whose card a user has added licence and text."""
    kerasvit.save_pretrained(random_model(1), folder, **{**FACTS, **facts})
    text = card(folder)
    assert text.count("library_name") == 1
    text = text.replace("library_name", "license: mit\nlanguage: en\nlibrary_name")
    (folder / "README.md").write_text(f"{text}\n{MINE}\n")
    return folder


def card(folder):
    return (folder / "README.md").read_text()


def metadata(folder):
    return split_page(card(folder))[0]


def copied(model, folder, **facts):
    """The metadata and the text of a copy."""
    kerasvit.save_pretrained(model, folder, **facts)
    return split_page(card(folder))


def trained(model):
    """The model after a step of training."""
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(np.ones((2, 8, 8, 3)), np.array([0, 1]), verbose=0)
    return model


def through_a_keras_file(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.saving.load_model(tmp_path / "model.keras")


SAME = {
    "loaded": lambda model, _: model,
    "a .keras file": through_a_keras_file,
    "a trainer": lambda model, _: kerasvit.SAM(model, 0.1).model,
    "fresh adapters": lambda model, _: kerasvit.add_lora(model, 2) or model,
}
CHANGED = {
    "trained": lambda model, _: trained(model),
    "resized": lambda model, _: kerasvit.resize(model, 16),
    "quantised": lambda model, _: model.quantize("int8") or model,
    "another transform": lambda model, _: (
        model.record["preprocessing"].update({"crop": 0.5}) or model
    ),
    "trained and saved": lambda model, path: through_a_keras_file(trained(model), path),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_a_copy_of_the_same_model_keeps_all(change, tmp_path):
    model = kerasvit.from_pretrained(saved(tmp_path / "vit"))
    found, text = copied(change(model, tmp_path), tmp_path / "copy")
    assert found == metadata(tmp_path / "vit")
    assert (found["license"], found["language"]) == ("mit", "en")
    assert found["model-index"][0]["results"][0]["metrics"][0]["value"] == 0.760753
    assert text.count("| accuracy | 76.1 % (pets, test, 411 images) |") == 1
    assert text.count("| epochs | 3 |") == 1 and text.count(MINE) == 1
    assert "# copy\n" in text and 'from_pretrained("copy")' in text
    assert '"vit"' not in text and "Licence: mit." in text
    assert "have changed since" not in text


def test_a_card_of_an_editor_of_windows_is_the_same(tmp_path):
    card = saved(tmp_path / "vit") / "README.md"
    content = card.read_bytes()
    card.write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"))
    model = kerasvit.from_pretrained(tmp_path / "vit")
    found, text = copied(model, tmp_path / "copy")
    assert found["license"] == "mit" and text.count(MINE) == 1
    assert "| accuracy |" not in copied(trained(model), tmp_path / "trained")[1]


@pytest.mark.parametrize("change", mainly_on_last(CHANGED))
def test_results_of_other_weights_are_left_out(change, tmp_path, caplog):
    model = kerasvit.from_pretrained(saved(tmp_path / "vit"))
    found, text = copied(CHANGED[change](model, tmp_path), tmp_path / "copy")
    assert found["license"] == "mit" and found["language"] == "en"
    assert "model-index" not in found and "metrics" not in found
    assert "76.1" not in text and MINE in text and "| epochs | 3 |" in text
    assert text.count("**The weights or the image size have changed since") == 1
    assert "The results in the card were measured with other weights" in caplog.text
    again = kerasvit.from_pretrained(tmp_path / "copy")
    assert copied(again, tmp_path / "again")[1].count("have changed since") == 1


@on_last_backend
def test_stated_facts_replace_those_of_the_card(tmp_path, caplog):
    model = kerasvit.from_pretrained(saved(tmp_path / "vit"))
    found, text = copied(
        trained(model),
        tmp_path / "copy",
        license="apache-2.0",
        metrics={"accuracy": {"value": 0.8, "dataset": "pets"}},
        training={"epochs": 5},
        label_names=["x", "y", "z"],
        base_model="me/vit",
    )
    [result] = found["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": 0.8}]
    assert (found["license"], found["base_model"]) == ("apache-2.0", "me/vit")
    assert "| accuracy | 80.0 % (pets) |" in text and "76.1" not in text
    assert "| epochs | 5 |" in text and "| epochs | 3 |" not in text
    assert "Licence: apache-2.0." in text and "Classes: x, y, z." in text
    assert "but for its table of metrics and its table of training settings" in text
    assert "measured with other weights" not in caplog.text


@on_last_backend
def test_a_generated_card_of_a_training_has_no_note(tmp_path):
    kerasvit.save_pretrained(random_model(1), tmp_path / "vit", **FACTS)
    model = trained(kerasvit.from_pretrained(tmp_path / "vit"))
    text = copied(model, tmp_path / "copy", **FACTS)[1]
    assert "have changed" not in text and text.count("| epochs | 3 |") == 1
    # It counts as generated, and is replaced.
    kerasvit.save_pretrained(random_model(1), tmp_path / "copy")
    assert "epochs" not in card(tmp_path / "copy")


@on_last_backend
def test_a_model_for_other_classes_keeps_the_licence_alone(tmp_path):
    folder = saved(tmp_path / "vit")
    for classes in (5, 0):
        model = kerasvit.from_pretrained(folder, num_classes=classes)
        found, text = copied(model, tmp_path / f"{classes}")
        assert found["license"] == "mit" and "Licence: mit." in text
        assert not {"language", "model-index", "metrics"} & found.keys()
        assert MINE not in text and "epochs" not in text


@on_last_backend
@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"image_size": 8, "dropout": 0.1, "num_classes": 3}, True),
        ({"include_preprocessing": True}, True),
        ({"dtype": "mixed_bfloat16"}, True),
        ({"image_size": 16}, False),
        ({"preprocessing": {"crop": 1.0}}, False),
        ({"activation": "gelu_tanh"}, False),
    ],
    ids=str,
)
def test_arguments_of_the_call_may_change_the_results(options, same, tmp_path):
    model = kerasvit.from_pretrained(saved(tmp_path / "vit"), **options)
    found, text = copied(model, tmp_path / "copy")
    assert ("model-index" in found) == same == ("76.1" in text)
    assert MINE in text


@on_last_backend
def test_merged_adapters_are_the_same_model(tmp_path):
    model = random_model(1)
    kerasvit.add_lora(model, 2)
    for variable in model.trainable_weights:
        variable.assign(np.random.default_rng(1).normal(size=variable.shape))
    folder = tmp_path / "vit"
    kerasvit.save_pretrained(model, folder, keep_adapters=True, **FACTS)
    model = kerasvit.from_pretrained(folder)
    assert "lora" in copied(model, tmp_path / "a", keep_adapters=True)[0]["tags"]
    found, text = copied(model, tmp_path / "b")
    assert "lora" not in found["tags"] and "timm" in found["tags"]
    assert "76.1" in text and "timm reads this model too" in text
    kerasvit.merge_lora(model)
    assert "76.1" in copied(model, tmp_path / "c")[1]


@on_last_backend
def test_the_card_of_another_tool_is_kept(tmp_path):
    kerasvit.save_pretrained(random_model(1), tmp_path / "vit")
    (tmp_path / "vit/README.md").write_text(TIMM)
    model = kerasvit.from_pretrained(tmp_path / "vit")
    found, text = copied(model, tmp_path / "copy", license="mit")
    assert text.strip() == TIMM.split("---\n")[2].strip()
    assert found["library_name"] == "kerasvit" and found["license"] == "mit"
    assert found["tags"] == ["image-classification", "timm", "keras"]
    assert found["datasets"] == ["imagenet-1k"] and "model-index" in found
    # In its own folder its text stays as it was written.
    kerasvit.save_pretrained(model, tmp_path / "vit")
    assert card(tmp_path / "vit").endswith(TIMM.split("---\n")[2])


@on_last_backend
def test_a_page_of_the_target_is_kept_and_gets_the_facts(tmp_path):
    model = kerasvit.from_pretrained(saved(tmp_path / "vit"))
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/README.md").write_text("---\nlanguage: de\n---\nOf another.\n")
    found, text = copied(model, tmp_path / "copy")
    assert text == "Of another.\n"
    assert (found["license"], found["language"]) == ("mit", "de")
    found, text = copied(model, tmp_path / "copy", card="# New")
    assert text.strip() == "# New" and found["license"] == "mit"


@on_last_backend
def test_no_card_of_files_without_a_configuration(tmp_path):
    """The README.md beside a single file may be about anything."""
    folder = saved(tmp_path / "vit")
    assert kerasvit.from_pretrained(folder / "model.safetensors").card
    (folder / "config.json").unlink()
    size = {"image_size": 8, "num_heads": 2}
    variant = kerasvit.Variant(
        "T", kerasvit.VisionTransformer, patch_size=4, width=16, depth=1, mlp_dim=24
    )
    assert variant(folder / "model.safetensors", **size).card is None
    assert random_model(1).card is None


@on_last_backend
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_card_is_not_spread(name, tmp_path, caplog):
    block = HOSTILE[name]
    readable = {"alias": 10 * ["lol"], "merge": {"b": 1}}.get(name)
    folder = kerasvit.save_pretrained(random_model(1), tmp_path / "vit")
    (folder / "README.md").write_text(page(block))
    model = kerasvit.from_pretrained(folder)
    found, text = copied(model, tmp_path / "copy", license="mit")
    assert text.strip() == "Mine." and found["license"] == "mit"
    assert found.get("a") == readable and not {"b", "c"} & found.keys()
    assert caplog.text.count("of the loaded card are left out") == 1
    kerasvit.save_pretrained(model, folder)
    assert card(folder) == page(block)
    kerasvit.from_pretrained(folder, num_classes=5)


@on_last_backend
def test_what_can_be_read_of_metadata_is_kept(tmp_path, caplog):
    folder = kerasvit.save_pretrained(random_model(1), tmp_path / "vit")
    block = "license: mit\ntitle: a: b\ntags:\n- pets\n# Mine.\ndatasets:\n  [pets]\n"
    (folder / "README.md").write_text(page(block))
    model = kerasvit.from_pretrained(folder)
    found, text = copied(model, tmp_path / "copy")
    assert (found["license"], found["datasets"]) == ("mit", ["pets"])
    assert "pets" in found["tags"] and "title" not in found
    assert "left out, but for license, tags, datasets, for it is not" in caplog.text
    kerasvit.save_pretrained(model, folder)
    assert card(folder) == page(block)
    model = kerasvit.from_pretrained(folder, num_classes=5)
    assert copied(model, tmp_path / "other")[0]["license"] == "mit"


@on_last_backend
def test_a_card_that_is_not_utf_8_or_too_long(tmp_path, caplog):
    folder = kerasvit.save_pretrained(random_model(1), tmp_path / "vit")
    content = b"---\r\nlicense: mit\r\n---\r\nM\xfcller\r\n"
    (folder / "README.md").write_bytes(content)
    model = through_a_keras_file(kerasvit.from_pretrained(folder), tmp_path)
    kerasvit.save_pretrained(model, tmp_path / "copy", license="apache-2.0")
    found = (tmp_path / "copy/README.md").read_bytes()
    assert b"M\xfcller" in found and b'license: "apache-2.0"' in found
    (folder / "README.md").write_bytes(b"x" * (LIMIT + 1))
    assert kerasvit.from_pretrained(folder).card is None
    assert "has 1,000,001 bytes, and is not kept" in caplog.text
    (folder / "README.md").unlink()
    (folder / "README.md").mkdir()
    assert kerasvit.from_pretrained(folder).card is None


def test_from_a_repository_to_another(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "good")
    folder = saved(tmp_path / "vit")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.add("me/pets-vit", files)
    model = kerasvit.from_pretrained("hf://me/pets-vit")
    kerasvit.push_to_hub(model, "me/copy", datasets=["pets"])
    text = hub.repositories["me/copy"].files["README.md"].decode()
    found = RepoCard(text).data
    assert (found.license, found.datasets) == ("mit", ["pets"])
    assert "model-index" in text and "76.1 %" in text and MINE in text
    assert '"hf://me/copy"' in text and '"hf-hub:me/copy"' in text
    assert "by the path of this folder" not in text
    kerasvit.push_to_hub(model, "me/pets-vit")  # the page there is the same
    assert MINE in hub.repositories["me/pets-vit"].files["README.md"].decode()
    kerasvit.add_lora(model, 2)
    kerasvit.push_to_hub(model, "me/lora", adapters_only=True)
    text = hub.repositories["me/lora"].files["README.md"].decode()
    assert "license: " in text and MINE not in text and "76.1" not in text


def test_a_repository_whose_card_cannot_be_downloaded_loads(hub, tmp_path, caplog):
    folder = saved(tmp_path / "vit")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.add("me/vit", files)
    broken = accidents.status(500, ("head",))

    def fault(handler, kind):
        return broken(handler, kind) if handler.path.endswith("README.md") else None

    hub.faults = accidents.always(fault)
    assert kerasvit.from_pretrained("hf://me/vit").card is None
    assert "The model is loaded without its card" in caplog.text
    hub.faults = []
    assert MINE in kerasvit.from_pretrained("hf://me/vit").card["text"]
    hub.add("me/bare", {k: v for k, v in files.items() if k != "README.md"})
    caplog.clear()
    assert kerasvit.from_pretrained("hf://me/bare").card is None
    assert not caplog.text
