"""`model.preprocessing`, the transform of the record."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit import Preprocessing
from tests.models.tiny import TINY, tiny

OWN = Preprocessing(16, crop=0.5, mean=(0.1, 0.2, 0.3), std=0.4)
NORMALIZATION = {"mean": [0.1, 0.2, 0.3], "std": [0.4] * 3}


def vit(**changes):
    return tiny("VisionTransformer", **changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_it_is_that_of_the_record_and_of_the_features(name):
    model = tiny(name)
    found = model.preprocessing
    assert found == Preprocessing.from_config(model.record["preprocessing"])
    assert found == kerasvit.features(model).preprocessing
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype("uint8")
    assert found(pixels).shape == model.input_shape[1:]
    assert kerasvit.SAM(model, 0.1).model.preprocessing == found


def test_a_new_one_is_written_into_the_record_and_into_files(tmp_path):
    model = vit()
    model.preprocessing = OWN
    assert model.record["preprocessing"] == OWN.to_config()
    model.save(tmp_path / "vit.keras")
    for again in (
        keras.saving.load_model(tmp_path / "vit.keras"),
        kerasvit.from_pretrained(kerasvit.save_pretrained(model, tmp_path / "vit")),
        keras.models.clone_model(model),
    ):
        assert again.preprocessing == OWN
    assert kerasvit.resize(model, 24).preprocessing == OWN.with_size(24)
    model.preprocessing = None
    assert model.preprocessing is model.record["preprocessing"] is None
    with pytest.raises(ValueError, match="model.preprocessing = kerasvit.Prepro"):
        kerasvit.classify(model, np.zeros((8, 8, 3), "uint8"))


def test_a_change_of_the_record_is_seen():
    model = vit()
    model.record["preprocessing"]["crop"] = 0.25
    assert model.preprocessing == Preprocessing(16, crop=0.25)
    model.record["preprocessing"].pop("crop")
    with pytest.raises(ValueError, match="must be a dict of antialias, crop"):
        _ = model.preprocessing


def test_a_model_for_any_size_takes_any():
    model = kerasvit.resize(vit(), (None, None))
    model.preprocessing = OWN.with_size((24, 32))
    assert model.preprocessing.size == (24, 32)


@pytest.mark.parametrize(
    "value, message",
    [
        ({"size": 16}, "must be a kerasvit.Preprocessing or None"),
        (224, "must be a kerasvit.Preprocessing or None"),
        (Preprocessing(24), "24 × 24, and the model takes 16 × 16"),
    ],
)
def test_a_wrong_one_is_refused(value, message):
    model = vit()
    before = model.preprocessing
    with pytest.raises(ValueError, match=message):
        model.preprocessing = value
    assert model.preprocessing == before


def test_it_has_the_mean_and_deviation_that_are_built_in():
    model = vit(normalization=NORMALIZATION)
    model.preprocessing = OWN
    assert model.preprocessing.crop == 0.5
    with pytest.raises(ValueError, match="the model normalises images itself"):
        model.preprocessing = Preprocessing(16)


def test_a_clone_without_a_record_says_so():
    clone = keras.models.clone_model(vit())
    clone.record = None
    assert clone.preprocessing is None
    with pytest.raises(ValueError, match="no record of kerasvit"):
        clone.preprocessing = OWN


def test_a_config_may_be_the_transform_itself():
    assert Preprocessing.from_config(OWN) is OWN
