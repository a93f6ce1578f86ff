"""Models of features are trained, saved and loaded, alone and as a part of others."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy
from tests.models.tiny import VIT, tiny
from tests.once import long_elsewhere, mainly_on_last, on_last_backend, rest_long
from tests.test_across_backends import OTHERS

WIDE = {"image_size": (8, 16), "num_classes": 3}
X = np.random.default_rng(2).normal(size=(4, 8, 16, 3)).astype("float32")
MAPS = np.random.default_rng(3).integers(0, 2, (4, 2, 4))
FACTS = ("names", "strides", "channels", "preprocessing", "adapters")


def vit(**changes):
    return tiny("VisionTransformer", **{**VIT, **WIDE, "depth": 2, **changes})


def arrays(model, x=X):
    return [to_numpy(each) for each in keras.tree.flatten(model.predict_on_batch(x))]


def assert_same(one, other, atol=1e-6):
    for a, b in zip(arrays(one), arrays(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def segmenter(backbone):
    head = keras.layers.Conv2D(2, 1, data_format="channels_last", name="classifier")
    return keras.Sequential([backbone, head])


def train(model, rho=0.1):
    trainer = kerasvit.SAM(model, rho)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.Adam(0.01), loss)
    return trainer.fit(X, MAPS, batch_size=4, epochs=8, verbose=0).history["loss"]


@pytest.mark.slow
def test_a_file_keeps_values_and_attributes(tmp_path):
    model = vit()
    found = kerasvit.features(model, [1, 0], prefix=True)
    found.save(tmp_path / "features.keras")
    loaded = keras.saving.load_model(tmp_path / "features.keras")
    assert type(loaded) is kerasvit.FeatureModel
    for name in FACTS:
        assert getattr(loaded, name) == getattr(found, name)
    assert loaded.names == ("encoder_block_1", "encoder_block_0")
    assert loaded.strides == (4, 4) and loaded.channels == (16, 16)
    assert loaded.preprocessing == model.preprocessing
    assert_same(loaded, found)
    found.save_weights(tmp_path / "features.weights.h5")
    other = kerasvit.features(
        kerasvit.VisionTransformer(**model.record["kwargs"]), [1, 0], prefix=True
    )
    other.load_weights(tmp_path / "features.weights.h5")
    assert_same(other, found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", mainly_on_last(["VisionTransformer", "SwinTransformer"])
)
def test_a_head_on_features_learns_under_sam_and_is_saved(name, tmp_path):
    changes = {"depth": 2} if name == "VisionTransformer" else {}
    model = tiny(name, **{**WIDE, **changes})
    backbone = kerasvit.features(model, "stride_4")
    before = to_numpy(model.get_layer("embedding").kernel).copy()
    whole = segmenter(backbone)
    losses = train(whole)
    assert losses[-1] < losses[0] - 0.05
    assert np.abs(to_numpy(model.get_layer("embedding").kernel) - before).max() > 1e-4
    whole.save(tmp_path / "whole.keras")
    loaded = keras.saving.load_model(tmp_path / "whole.keras")
    assert_same(loaded, whole)
    assert loaded.layers[0].strides == (4,)
    backbone.trainable = False
    frozen = to_numpy(model.get_layer("embedding").kernel).copy()
    train(whole)
    np.testing.assert_array_equal(to_numpy(model.get_layer("embedding").kernel), frozen)


@pytest.mark.slow
@pytest.mark.parametrize("merged", mainly_on_last([False, True]))
def test_adapters_are_trained_and_saved(merged, tmp_path):
    model = vit()
    kerasvit.add_lora(model, rank=2)
    backbone = kerasvit.features(model, 0)
    assert set(backbone.adapters["layers"]) == {
        "encoder_block_0/attention/query",
        "encoder_block_0/attention/value",
    }
    whole = segmenter(backbone)
    trained = [v.path.split("/")[-1] for v in whole.trainable_weights]
    assert len(trained) == 6 and trained.count("lora_kernel_b") == 2
    base = to_numpy(model.get_layer("encoder_block_0").mlp.dense_0.kernel).copy()
    train(whole)
    np.testing.assert_array_equal(
        to_numpy(model.get_layer("encoder_block_0").mlp.dense_0.kernel), base
    )
    if merged:
        kerasvit.merge_lora(model)
    whole.save(tmp_path / "whole.keras")
    loaded = keras.saving.load_model(tmp_path / "whole.keras")
    assert_same(loaded, whole, atol=1e-5)
    paths = [v.path for v in loaded.layers[0].trainable_weights]
    assert paths == [v.path for v in backbone.trainable_weights]
    assert bool(loaded.layers[0].adapters) is not merged


@pytest.mark.slow
@on_last_backend
def test_a_clone_keeps_the_attributes_and_the_adapters():
    model = vit()
    kerasvit.add_lora(model, rank=2)
    found = kerasvit.features(model, [0, 1])
    clone = keras.models.clone_model(found)
    assert type(clone) is kerasvit.FeatureModel
    for name in FACTS:
        assert getattr(clone, name) == getattr(found, name)
    clone.set_weights(found.get_weights())
    assert_same(clone, found)
    paths = [v.path for v in clone.trainable_weights]
    assert paths == [v.path for v in found.trainable_weights]


@pytest.mark.slow
@on_last_backend
def test_models_in_mixed_precision_and_without_a_head_are_trained(tmp_path):
    model = vit(num_classes=0, dtype="mixed_bfloat16")
    backbone = kerasvit.features(model)
    whole = segmenter(backbone)
    losses = train(whole)
    assert losses[-1] < losses[0]
    backbone.save(tmp_path / "features.keras")
    loaded = keras.saving.load_model(tmp_path / "features.keras")
    assert loaded.outputs[0].dtype == "bfloat16"
    for a, b in zip(arrays(loaded), arrays(backbone), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("mlp", mainly_on_last(["swiglu", "plain"]))
def test_features_are_quantised_by_one_call_and_not_trained(mlp, tmp_path):
    backbone = kerasvit.features(vit(mlp=mlp))
    expected = arrays(backbone)[0]
    backbone.quantize("int8")
    error = np.abs(arrays(backbone)[0] - expected).max() / np.abs(expected).max()
    assert 0 < error < 0.05
    backbone.save(tmp_path / "features.keras")
    assert_same(keras.saving.load_model(tmp_path / "features.keras"), backbone)
    with pytest.raises(ValueError, match="quantised already"):
        backbone.quantize("int8")
    backbone.compile("sgd", "mse")
    with pytest.raises(ValueError, match="integers have no gradient"):
        backbone.fit(X, arrays(backbone)[0], verbose=0)


@on_last_backend
def test_a_folder_takes_the_whole_model_only(tmp_path):
    model = vit()
    with pytest.raises(ValueError, match="pass the whole model, and call `features`"):
        kerasvit.save_pretrained(kerasvit.features(model), tmp_path)
    kerasvit.save_pretrained(model, tmp_path)
    loaded = kerasvit.from_pretrained(tmp_path)
    assert_same(kerasvit.features(loaded), kerasvit.features(model))


LOAD = """
import sys, keras, numpy as np, kerasvit
folder = sys.argv[1]
x = np.load(folder + "/x.npy")
whole = keras.saving.load_model(folder + "/whole.keras")
assert whole.layers[0].strides == (8,), whole.layers[0].strides
levels = keras.saving.load_model(folder + "/levels.keras")
assert levels.names == ("stage_0_block_1", "stage_1_block_0")
np.savez(folder + "/found.npz", whole.predict(x, verbose=0), *levels.predict(x))
"""


@long_elsewhere
@pytest.mark.parametrize("other", rest_long(OTHERS))
def test_files_load_on_other_backends(other, tmp_path):
    model = tiny("SwinTransformer", image_size=(16, 32))
    levels = kerasvit.features(model)
    whole = segmenter(kerasvit.features(model, -1))
    x = np.random.default_rng(4).normal(size=(2, 16, 32, 3)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    levels.save(tmp_path / "levels.keras")
    whole.save(tmp_path / "whole.keras")
    subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path)],
        env={**os.environ, "KERAS_BACKEND": other, "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd=Path(__file__).parents[1],
        check=True,
        capture_output=True,
    )
    expected = [*arrays(whole, x), *arrays(levels, x)]
    with np.load(tmp_path / "found.npz") as found:
        for array, name in zip(expected, found, strict=True):
            np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-4)
