"""Preprocessing and label names that the caller passes."""

import json
import logging

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from tests.models.tiny import TINY
from tests.once import on_last_backend
from tests.random_weights import randomised
from tests.tiny_vit import TinyViT

pytestmark = pytest.mark.slow

PHOTO = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype("uint8")
NAMES = ["ant", "bee", "cat"]
STATED = kerasvit.Preprocessing(
    16, crop=0.5, mode="squash", kernel="bilinear", mean=0.25, std=0.75
)


def written(tmp_path, **changes):
    """A file of tensors with timm's names, without a configuration."""
    model = randomised(TinyViT(num_classes=3, image_size=16, **changes), seed=1)
    kerasvit.save_pretrained(model, tmp_path / "folder")
    path = tmp_path / "bare.safetensors"
    save_file(load_file(tmp_path / "folder" / "model.safetensors"), path)
    return path, model


def test_a_bare_file_with_both_classifies_by_name(tmp_path, caplog):
    path, model = written(tmp_path)
    with caplog.at_level(logging.WARNING, "kerasvit"):
        made = TinyViT(path, preprocessing=STATED, label_names=NAMES)
    assert "preprocessing" not in caplog.text
    assert made.record["preprocessing"] == STATED.to_config()
    assert made.record["label_names"] == NAMES
    answers = kerasvit.classify(made, PHOTO)
    logits = keras.ops.convert_to_numpy(model(STATED(PHOTO)[None]))[0]
    assert answers[0][0] == NAMES[int(logits.argmax())]
    assert {name for name, _ in answers} == set(NAMES)


@on_last_backend
def test_folders_keep_both_and_the_caller_wins_over_them(tmp_path):
    path, _ = written(tmp_path)
    made = TinyViT(path, preprocessing=STATED, label_names=NAMES)
    folder = kerasvit.save_pretrained(made, tmp_path / "saved")
    again = kerasvit.from_pretrained(folder)
    assert again.record["preprocessing"] == STATED.to_config()
    assert again.record["label_names"] == NAMES
    config = json.loads((folder / "config.json").read_text())
    assert config["label_names"] == NAMES
    assert config["pretrained_cfg"]["crop_mode"] == "squash"
    other = kerasvit.from_pretrained(
        folder, preprocessing={"crop": 1.0}, label_names=("x", "y", "z")
    )
    assert other.record["preprocessing"] == (
        kerasvit.Preprocessing(16, crop=1.0).to_config()
    )
    assert other.record["label_names"] == ["x", "y", "z"]
    assert kerasvit.classify(other, PHOTO)[0][0] in "xyz"


@on_last_backend
@pytest.mark.parametrize("name", TINY)
def test_every_family_takes_both_without_weights(name):
    variant = kerasvit.Variant(None, getattr(kerasvit, name), **TINY[name])
    model = variant(preprocessing={"mean": 0.1}, label_names=NAMES)
    assert model.record["preprocessing"]["mean"] == [0.1] * 3
    assert model.record["preprocessing"]["size"] == [16, 16]
    assert {label for label, _ in kerasvit.classify(model, PHOTO)} == set(NAMES)
    assert variant().record["label_names"] is None


@on_last_backend
def test_names_from_a_text_file(tmp_path):
    file = tmp_path / "names.txt"
    file.write_bytes("ant\r\nbumble bee\ncät\n\n".encode())
    model = TinyViT(num_classes=3, image_size=16, label_names=file)
    assert model.record["label_names"] == ["ant", "bumble bee", "cät"]
    assert TinyViT(num_classes=3, image_size=16, label_names=str(file)).record[
        "label_names"
    ] == ["ant", "bumble bee", "cät"]
    thousand = TinyViT(image_size=16, label_names="imagenet1k")
    assert thousand.record["label_names"] == "imagenet1k"


@on_last_backend
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], "each class of the head, 3. Received: 2"),
        ("imagenet1k", "each class of the head, 3. Received: 1000"),
        (["a", "b", "a"], r"must be unique.*\['a'\]"),
        (["a", "b", 3], "must be a list of names"),
        (["a", "b", " "], "none of them empty"),
        ([], "must be a list of names"),
        ({"a": 0}, "must be a list of names"),
        (7, "must be a list of names"),
        ("nowhere.txt", "cannot be read"),
        (".", "cannot be read"),
    ],
)
def test_wrong_label_names_raise(names, message, tmp_path):
    path, _ = written(tmp_path)
    for weights in (None, path):
        with pytest.raises(ValueError, match=message):
            TinyViT(weights, num_classes=3, image_size=16, label_names=names)
    with pytest.raises(ValueError, match="each class of the head, 0|" + message):
        TinyViT(num_classes=0, label_names=names)


@on_last_backend
def test_arrays_of_names_are_accepted_and_lone_surrogates_raise(tmp_path):
    model = TinyViT(num_classes=2, image_size=8, label_names=np.array(["a", "b"]))
    assert model.record["label_names"] == ["a", "b"]
    broken = ["a", "\ud800"]
    with pytest.raises(ValueError, match="text that UTF-8 can encode"):
        TinyViT(num_classes=2, image_size=8, label_names=broken)
    model.record["label_names"] = broken
    with pytest.raises(ValueError, match="`label_names` must be text"):
        kerasvit.save_pretrained(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@on_last_backend
def test_a_names_file_with_a_gap_or_other_bytes_raises(tmp_path):
    file = tmp_path / "names.txt"
    for content, message in ((b"a\n\nb", "none of them empty"), (b"\xff\xfe", "utf-8")):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            TinyViT(num_classes=3, image_size=16, label_names=file)


@on_last_backend
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (kerasvit.Preprocessing(20), "20 × 20, and the model takes 16 × 16"),
        ({"size": 20}, "20 × 20, and the model takes 16 × 16"),
        ({"sice": 16}, "dict of its fields, antialias, crop.*sice"),
        ({"crop": 7}, "`crop`"),
        ("bilinear", "must be a kerasvit.Preprocessing or a dict"),
        (lambda image: image, "must be a kerasvit.Preprocessing or a dict"),
    ],
)
def test_wrong_preprocessing_raises(given, message, tmp_path):
    path, _ = written(tmp_path)
    for weights in (None, path):
        with pytest.raises(ValueError, match=message):
            TinyViT(weights, image_size=16, preprocessing=given)
    with pytest.raises(ValueError, match=message):
        kerasvit.from_pretrained(path, num_heads=2, preprocessing=given)


@on_last_backend
def test_names_are_counted_before_a_download(monkeypatch):
    from kerasvit.loading import load

    monkeypatch.setattr(load, "find", lambda *given: 1 / 0)
    with pytest.raises(ValueError, match="each class of the head, 1000. Received: 2"):
        kerasvit.ViTB16("sam", label_names=["a", "b"])


def test_the_normalisation_in_a_model_is_the_stated_one(tmp_path):
    path, _ = written(tmp_path)
    plain = TinyViT(path, preprocessing=STATED, label_names=NAMES)
    within = TinyViT(
        path, preprocessing=STATED, label_names=NAMES, include_preprocessing=True
    )
    folder = kerasvit.save_pretrained(within, tmp_path / "within")
    other = kerasvit.Preprocessing(16, mean=0.1, std=0.2)
    changed = kerasvit.from_pretrained(folder, preprocessing=other)
    assert changed.record["kwargs"]["normalization"]["mean"] == [0.1] * 3
    expected = TinyViT(path, preprocessing=other, label_names=NAMES)
    for one, two in ((within, plain), (changed, expected)):
        for (name, chance), (wanted, probability) in zip(
            kerasvit.classify(one, PHOTO), kerasvit.classify(two, PHOTO), strict=True
        ):
            assert name == wanted and abs(chance - probability) < 1e-5
    half = {"mean": [0.5] * 3, "std": [0.5] * 3}
    with pytest.raises(ValueError, match="both state a mean"):
        TinyViT(path, preprocessing=STATED, normalization=half)
