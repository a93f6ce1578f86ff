"""Files of distilled DeiTs, and bare files of DeiT III."""

import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit import CheckpointError
from kerasvit.layers.resampling import resample_grid
from kerasvit.loading.resolve import explain_mismatch
from tests.contract import to_numpy
from tests.once import on_last_backend

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
DISTILLED = GOLDEN / "timm_deit_distilled" / "model.safetensors"
VIT = GOLDEN / "timm_vit" / "model.safetensors"
NUMBERS = {"patch_size": 4, "width": 24, "depth": 2, "num_heads": 3, "mlp_dim": 96}
Small = kerasvit.Variant("Small", kerasvit.DistilledVisionTransformer, **NUMBERS)
SmallViT = kerasvit.Variant("SmallViT", kerasvit.VisionTransformer, **NUMBERS)
HEADS = ("head", "head_distillation")


def expected(quantity):
    with np.load(GOLDEN / "timm_deit_distilled" / "expected.npz") as arrays:
        images = np.load(GOLDEN / "timm_deit_distilled" / "input.npy")
        return images, arrays[f"{quantity}_f64"]


def test_another_number_of_classes_is_two_fresh_heads_and_one_log_line(caplog):
    with caplog.at_level(logging.WARNING):
        model = Small(DISTILLED, num_classes=3)
    assert model.output_shape == (None, 3)
    for name in HEADS:
        assert not np.any(to_numpy(model.get_layer(name).kernel))
    lines = [line for line in caplog.messages if "fresh head" in line]
    assert len(lines) == 1 and "3 classes" in lines[0] and "7" in lines[0]
    assert np.any(to_numpy(model.get_layer("distillation_token").tokens))


def test_the_same_number_keeps_both_heads():
    model = Small(DISTILLED, num_classes=7)
    assert all(np.any(to_numpy(model.get_layer(name).kernel)) for name in HEADS)


@on_last_backend
def test_no_classes_leave_both_heads_off():
    images, features = expected("prelogits")
    model = Small(DISTILLED, num_classes=0)
    np.testing.assert_allclose(to_numpy(model(images)), features, atol=1e-5)


@on_last_backend
def test_a_file_without_heads(tmp_path):
    tensors = load_file(DISTILLED)
    save_file(
        {name: a for name, a in tensors.items() if not name.startswith("head")},
        tmp_path / "model.safetensors",
    )
    assert Small(tmp_path).output_shape == (None, 24)
    assert Small(tmp_path, num_classes=4).output_shape == (None, 4)


def test_another_size_keeps_the_rows_of_both_tokens():
    table = load_file(DISTILLED)["pos_embed"][0]
    model = Small(DISTILLED, image_size=(8, 20))
    found = to_numpy(model.get_layer("position_embedding").table)[0]
    np.testing.assert_array_equal(found[:2], table[:2])
    cells = resample_grid(table[2:].reshape(4, 4, -1), (2, 5), "bicubic_antialias")
    np.testing.assert_allclose(found[2:], cells.reshape(10, -1), atol=1e-6)


@on_last_backend
def test_distilled_files_and_vits_are_distinguished():
    with pytest.raises(CheckpointError, match="holds a DistilledVisionTransformer"):
        SmallViT(DISTILLED)
    with pytest.raises(CheckpointError, match="holds a VisionTransformer"):
        Small(VIT)


def in_transformers_names(tensors):
    """As DeiTForImageClassificationWithTeacher of transformers 5.23 saves them."""
    layer = "deit.encoder.layer."
    renamed = {
        "cls_token": "deit.embeddings.cls_token",
        "dist_token": "deit.embeddings.distillation_token",
        "pos_embed": "deit.embeddings.position_embeddings",
        "patch_embed.proj.": "deit.embeddings.patch_embeddings.projection.",
        "blocks.": layer,
        ".norm1.": ".layernorm_before.",
        ".norm2.": ".layernorm_after.",
        ".attn.proj.": ".attention.output.dense.",
        ".mlp.fc1.": ".intermediate.dense.",
        ".mlp.fc2.": ".output.dense.",
        "head.": "cls_classifier.",
        "head_dist.": "distillation_classifier.",
    }
    found = {}
    for name, array in tensors.items():
        if name.startswith("norm."):
            name = f"deit.layer{name}"
        for old, new in renamed.items():
            name = name.replace(old, new)
        if ".attn.qkv." in name:
            for part, third in zip(("query", "key", "value"), np.split(array, 3)):
                name_of = name.replace(".attn.qkv.", f".attention.attention.{part}.")
                found[name_of] = np.ascontiguousarray(third)
        else:
            found[name] = array
    return found


def transformers_folder(tmp_path, change=lambda tensors: None):
    tensors = in_transformers_names(load_file(DISTILLED))
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    config = {"layer_norm_eps": 1e-6, "num_attention_heads": 3, "image_size": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@on_last_backend
def test_transformers_names(tmp_path):
    model = Small(transformers_folder(tmp_path))
    assert model.record["origin"] == "transformers"
    images, logits = expected("logits")
    np.testing.assert_allclose(to_numpy(model(images)), logits, atol=1e-5)
    with pytest.raises(CheckpointError, match="num_heads 3, not 4"):
        Small(tmp_path, num_heads=4)


@on_last_backend
def test_transformers_classifier_of_the_class_token_only(tmp_path):
    def change(tensors):
        for part in ("weight", "bias"):
            tensors[f"classifier.{part}"] = tensors.pop(f"cls_classifier.{part}")
            del tensors[f"distillation_classifier.{part}"]

    images, logits = expected("logits_cls")
    model = SmallViT(transformers_folder(tmp_path, change))
    np.testing.assert_allclose(to_numpy(model(images)), logits, atol=1e-5)
    assert model.record["kwargs"]["register_tokens"] == 1
    table = to_numpy(model.get_layer("position_embedding").table)
    resized = SmallViT(tmp_path, image_size=(8, 20)).get_layer("position_embedding")
    np.testing.assert_array_equal(to_numpy(resized.table)[:, :2], table[:, :2])
    again = kerasvit.from_pretrained(tmp_path)
    np.testing.assert_allclose(to_numpy(again(images)), logits, atol=1e-5)
    with pytest.raises(CheckpointError, match="holds a VisionTransformer"):
        Small(tmp_path)


@on_last_backend
def test_transformers_pooler_is_ignored(tmp_path):
    def change(tensors):
        for name in list(tensors):
            array = tensors.pop(name)
            if "classifier" not in name:
                tensors[name.removeprefix("deit.")] = array
        tensors["pooler.dense.weight"] = np.ones((24, 24), "float32")
        tensors["pooler.dense.bias"] = np.ones(24, "float32")

    images, features = expected("prelogits")
    model = Small(transformers_folder(tmp_path, change))
    np.testing.assert_allclose(to_numpy(model(images)), features, atol=1e-5)


@on_last_backend
def test_a_bare_file_of_deit_3_has_position_rows_for_the_patches_only(tmp_path):
    soft = {"positions": "patches", "layer_scale": 1e-6}
    assert soft.items() <= kerasvit.DeiT3B16.defaults.items()
    row = kerasvit.Variant("Row", kerasvit.VisionTransformer, **NUMBERS, **soft)
    model = row(image_size=8, num_classes=3)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    kerasvit.save_pretrained(model, tmp_path)
    os.remove(tmp_path / "config.json")
    x = rng.normal(size=(2, 8, 8, 3)).astype("float32")
    again = row(tmp_path)
    np.testing.assert_allclose(to_numpy(again(x)), to_numpy(model(x)), atol=1e-5)
    with pytest.raises(CheckpointError, match="3 patch rows.*`positions`"):
        SmallViT(tmp_path)


@on_last_backend
@pytest.mark.parametrize(
    "row, numbers, fitting",
    [
        ("ViTB16", {"layer_scale": None}, "Build DeiTS16 or ViTS16 with it."),
        ("ViTB16", {"layer_scale": 1e-5}, "Build DeiTS16 or ViTS16 with it."),
        (
            "ViTB16",
            {"layer_scale": 1e-5, "positions": "patches"},
            "Build DeiT3S16 or DeiTS16 or ViTS16 with it.",
        ),
        ("DeiTB16Distilled", {}, "Build DeiTS16Distilled with it."),
    ],
)
def test_rows_of_another_file_of_the_zoo_are_suggested(row, numbers, fitting):
    numbers = {"positions": "tokens", **kerasvit.ViTS16.numbers, **numbers}
    assert fitting in explain_mismatch(getattr(kerasvit, row), numbers, {})
