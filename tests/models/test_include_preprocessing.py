"""The argument `include_preprocessing`."""

import json

import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy
from tests.once import on_last_backend
from tests.random_weights import randomised
from tests.tiny_vit import TinyViT

pytestmark = pytest.mark.slow

MEAN_STD = {"mean": [0.5, 0.4, 0.3], "std": [0.5, 0.25, 0.2]}
PIXELS = np.random.default_rng(1).integers(0, 256, (2, 8, 8, 3)).astype("uint8")


def normalised(pixels, mean, std):
    return (pixels.astype("float32") / 255 - np.float32(mean)) / np.float32(std)


def logits(model, images):
    return to_numpy(model(np.asarray(images, "float32")))


def random_model(**changes):
    return randomised(TinyViT(image_size=8, num_classes=3, **changes))


@pytest.fixture(params=["included", "own numbers", "own numbers, old folder"])
def folder(request, tmp_path):
    """Folder of a model that normalises by `MEAN_STD`."""
    if request.param != "included":
        model = random_model(normalization=MEAN_STD)
    else:
        plain = kerasvit.save_pretrained(random_model(), tmp_path / "plain")
        config = json.loads((plain / "config.json").read_text())
        config["kerasvit"]["preprocessing"].update(MEAN_STD)
        (plain / "config.json").write_text(json.dumps(config))
        model = TinyViT(plain, include_preprocessing=True)
    saved = kerasvit.save_pretrained(model, tmp_path / "vit")
    if "old" in request.param:  # older records had the defaults
        config = json.loads((saved / "config.json").read_text())
        config["kerasvit"]["preprocessing"].update(mean=[0.5] * 3, std=[0.5] * 3)
        (saved / "config.json").write_text(json.dumps(config))
    return saved


def check_outside(model, expected):
    """Checks that the model takes images normalised as its record states."""
    assert model.record["kwargs"]["normalization"] is None
    transform = model.preprocessing
    images = normalised(PIXELS, transform.mean, transform.std)
    np.testing.assert_allclose(logits(model, images), expected, atol=1e-5)
    assert {key: list(getattr(transform, key)) for key in MEAN_STD} == MEAN_STD


@pytest.mark.parametrize("load", [TinyViT, kerasvit.from_pretrained])
def test_false_takes_the_normalisation_out_of_a_saved_model(folder, load, tmp_path):
    inside = load(folder)
    assert inside.record["kwargs"]["normalization"] == MEAN_STD
    expected = logits(inside, PIXELS)
    outside = load(folder, include_preprocessing=False)
    check_outside(outside, expected)
    assert logits(outside, PIXELS).tolist() != expected.tolist()
    # The saved model has no preprocessing, for kerasvit and for timm.
    again = kerasvit.save_pretrained(outside, tmp_path / "again")
    check_outside(load(again), expected)
    check_outside(load(again, include_preprocessing=False), expected)
    timm = json.loads((again / "config.json").read_text())["pretrained_cfg"]
    assert {key: timm[key] for key in MEAN_STD} == MEAN_STD
    assert "for normalised images" not in (again / "README.md").read_text()
    back = load(again, include_preprocessing=True)
    np.testing.assert_allclose(logits(back, PIXELS), expected, atol=1e-5)


@on_last_backend
@pytest.mark.parametrize("load", [TinyViT, kerasvit.from_pretrained])
def test_true_keeps_the_normalisation_of_a_saved_model(folder, load):
    for choice in ({}, {"include_preprocessing": True}):
        model = load(folder, **choice)
        assert model.record["kwargs"]["normalization"] == MEAN_STD
        assert model.record["preprocessing"]["mean"] == MEAN_STD["mean"]
    assert list(TinyViT.preprocessing(folder).mean) == MEAN_STD["mean"]


@on_last_backend
def test_classify_answers_alike(folder):
    inside, outside = (
        kerasvit.from_pretrained(folder, include_preprocessing=include)
        for include in (True, False)
    )
    for (name, odds), (other, others) in zip(
        kerasvit.classify(inside, PIXELS[0]), kerasvit.classify(outside, PIXELS[0])
    ):
        assert name == other and abs(odds - others) < 1e-5


@on_last_backend
def test_a_row_of_the_zoo(tmp_path):
    model = kerasvit.ViTTi16(num_classes=3, image_size=16, include_preprocessing=True)
    folder = kerasvit.save_pretrained(model, tmp_path)
    outside = kerasvit.ViTTi16(folder, include_preprocessing=False)
    assert outside.record["kwargs"]["normalization"] is None
    pixels = PIXELS.repeat(2, 1).repeat(2, 2)
    images = normalised(pixels, [0.5] * 3, [0.5] * 3)
    np.testing.assert_allclose(
        logits(outside, images), logits(model, pixels), atol=1e-5
    )


@on_last_backend
def test_the_choice_is_checked(folder):
    for wrong in ("no", 0, [True]):
        with pytest.raises(ValueError, match="`include_preprocessing` must be True"):
            TinyViT(folder, include_preprocessing=wrong)
    with pytest.raises(ValueError, match="pass only one of them"):
        TinyViT(include_preprocessing=False, normalization=MEAN_STD)
