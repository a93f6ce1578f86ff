"""The argument `dtype` of every builder and variant."""

import keras
import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy
from tests.models.tiny import TINY, tiny
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT

HALF = {"mean": [0.5] * 3, "std": [0.5] * 3}
BUILDERS = kerasvit.models.BUILDERS


def images(size=16):
    rng = np.random.default_rng(1)
    return rng.normal(size=(2, size, size, 3)).astype("float32")


def policies(model):
    """(layer, layer inside, policy) of all layers that compute."""
    return [
        (outer.name, layer.name, layer.dtype_policy.name)
        for outer in model.layers[1:]
        for layer in outer._flatten_layers()
    ]


def under(policy, build):
    keras.config.set_dtype_policy(policy)
    try:
        return build()
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float16"])
def test_every_layer_has_it_as_under_a_global_policy(name, dtype):
    model = tiny(name, dtype=dtype, normalization=HALF)
    same = under(dtype, lambda: tiny(name, normalization=HALF))
    assert policies(model) == policies(same)
    assert {policy for *_, policy in policies(tiny(name))} == {"float32"}
    assert keras.config.dtype_policy().name == "float32"
    assert "dtype" not in model.record["kwargs"]


@on_last_backend
@pytest.mark.parametrize(
    "dtype",
    [
        np.float64,
        np.dtype("float64"),
        keras.dtype_policies.serialize(keras.DTypePolicy("float64")),
    ],
)
def test_dtypes_of_keras_layers_are_accepted(dtype):
    model = tiny("VisionTransformer", dtype=dtype)
    assert {v.dtype for v in model.weights} == {"float64"}


def test_no_builder_is_forgotten():
    assert set(TINY) == set(BUILDERS)
    for builder in BUILDERS.values():
        with pytest.raises(ValueError, match="`dtype` must be one of float32, mixed"):
            builder(dtype="int8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", ["mixed_bfloat16", keras.DTypePolicy("mixed_float16"), "bfloat16"]
)
def test_it_computes_in_the_given_dtype(dtype):
    model, exact = tiny("VisionTransformer", dtype=dtype), tiny("VisionTransformer")
    variables = {v.dtype for v in model.weights}
    assert variables == ({"bfloat16"} if dtype == "bfloat16" else {"float32"})
    block = model.get_layer("encoder_block_0")
    assert (
        block.compute_dtype
        == keras.DTypePolicy(getattr(dtype, "name", dtype)).compute_dtype
    )
    difference = to_numpy(model(images())) - to_numpy(exact(images()))
    scale = np.abs(to_numpy(exact(images()))).max()
    assert 0 < np.abs(difference).max() < 0.1 * scale


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float16", "bfloat16"])
def test_keras_files_keep_the_dtype_and_folders_do_not(dtype, tmp_path):
    model = tiny("VisionTransformer", dtype=dtype)
    logits = to_numpy(model(images()))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert sorted(policies(again)) == sorted(policies(model))
    np.testing.assert_array_equal(to_numpy(again(images())), logits)
    kerasvit.save_pretrained(model, tmp_path / "folder")
    again = kerasvit.from_pretrained(tmp_path / "folder")
    assert {v.dtype for v in again.weights} == {"float32"}
    again = kerasvit.from_pretrained(tmp_path / "folder", dtype=dtype)
    assert sorted(policies(again)) == sorted(policies(model))
    np.testing.assert_array_equal(to_numpy(again(images())), logits)


def test_with_weights_another_head_and_size(tmp_path):
    model = TinyViT(num_classes=3, image_size=8)
    kerasvit.save_pretrained(model, tmp_path)
    made = TinyViT(tmp_path, num_classes=5, image_size=16, dtype="mixed_bfloat16")
    assert made.get_layer("encoder_block_0").compute_dtype == "bfloat16"
    assert made.get_layer("head").compute_dtype == "float32"
    table = to_numpy(made.get_layer("class_token").tokens)
    np.testing.assert_array_equal(table, model.get_layer("class_token").tokens)
    resized = kerasvit.resize(made, 12)
    assert policies(resized) == policies(made)


@on_last_backend
@pytest.mark.parametrize(
    "wrong",
    [
        *("int8", "nonsense", "float8_e4m3fn", 16, object(), {"name": "float16"}),
        keras.dtype_policies.get("int8_from_float32"),
        keras.dtype_policies.DTypePolicyMap(),
    ],
)
def test_an_invalid_policy_raises(wrong, tmp_path):
    with pytest.raises(ValueError, match="`dtype` must be one of.*quantise"):
        kerasvit.ViTS16(dtype=wrong)
    assert keras.config.dtype_policy().name == "float32"


@on_last_backend
def test_a_file_does_not_set_the_dtype(tmp_path):
    import json

    kerasvit.save_pretrained(TinyViT(num_classes=3, image_size=8), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["kerasvit"]["kwargs"]["dtype"] = "float64"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="newer kerasvit.*no argument dtype"):
        TinyViT(tmp_path)


@on_last_backend
def test_an_error_leaves_the_global_policy():
    with pytest.raises(ValueError, match="multiple"):
        tiny("VisionTransformer", image_size=17, dtype="float16")
    assert keras.config.dtype_policy().name == "float32"
