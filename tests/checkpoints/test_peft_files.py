"""Folders of adapters that are written for PEFT."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import kerasvit
from tests.contract import to_numpy
from tests.models.tiny import tiny
from tests.once import on_last_backend

from .peft_folders import ROOT
from .test_peft_folders import CONFIG, PREFIX, TENSORS, base, images

pytestmark = on_last_backend


def trained(model, rank=3, **options):
    """The model with adapters, all trained weights random."""
    kerasvit.add_lora(model, rank, **options)
    rng = np.random.default_rng(0)
    for variable in model.trainable_weights:
        variable.assign(rng.normal(size=variable.shape, scale=0.2))
    return model


def written(model, folder):
    """(settings, tensors) of the folder."""
    assert kerasvit.save_adapters(model, folder, format="peft") == folder
    assert {path.name for path in folder.iterdir()} == {CONFIG, TENSORS}
    return json.loads((folder / CONFIG).read_text()), load_file(folder / TENSORS)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["vit", "dinov2", "dinov2_classifier"])
def test_what_peft_wrote_is_written_again(case, tmp_path):
    model = base(case)
    kerasvit.load_adapters(model, ROOT / case)
    settings, tensors = written(model, tmp_path / "folder")
    expected = load_file(ROOT / case / TENSORS)
    assert tensors.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(tensors[name], expected[name])
    first = json.loads((ROOT / case / CONFIG).read_text())
    assert settings["modules_to_save"] == first["modules_to_save"]
    again = base(case)
    kerasvit.load_adapters(again, tmp_path / "folder")
    np.testing.assert_allclose(
        to_numpy(again(images(case))), to_numpy(model(images(case))), atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "options", "names"),
    [
        ("vit", {"layers": "block_1/mlp", "alpha": 6}, ["mlp.fc1", "mlp.fc2"]),
        ("vit", {"layers": "block_1/attention/(key|out)"}, ["k_proj", "o_proj"]),
        ("vit", {"layers": "1/attention/q", "train_norms": True}, ["q_proj"]),
    ],
)
def test_names_of_transformers(case, options, names, tmp_path):
    settings, tensors = written(trained(base(case), **options), tmp_path / "folder")
    modules = settings["target_modules"]
    assert [m.startswith("vit.layers.1.") for m in modules] == [True] * len(names)
    assert all(map(str.endswith, modules, names))
    assert (settings["r"], settings["lora_alpha"]) == (3, options.get("alpha", 3))
    for module in modules:
        assert tensors[f"{PREFIX}{module}.lora_A.weight"].shape[0] == 3
        assert tensors[f"{PREFIX}{module}.lora_B.weight"].shape[1] == 3
    whole = ["classifier"]
    if options.get("train_norms"):
        whole += [
            f"vit.layers.{i}.layernorm_{p}" for i in "01" for p in ("after", "before")
        ]
        whole.insert(1, "vit.layernorm")
    assert settings["modules_to_save"] == sorted(whole)
    again = base(case)
    kerasvit.load_adapters(again, tmp_path / "folder")
    assert len(again.trainable_weights) == len(tensors)


def test_query_and_value_of_timm_are_one_module(tmp_path):
    model = trained(base("timm"), alpha=5)
    settings, tensors = written(model, tmp_path / "folder")
    assert settings["target_modules"] == ["blocks.0.attn.qkv", "blocks.1.attn.qkv"]
    assert (settings["r"], settings["lora_alpha"]) == (6, 10)
    name = f"{PREFIX}blocks.1.attn.qkv.lora_"
    a, b = tensors[f"{name}A.weight"], tensors[f"{name}B.weight"]
    assert a.shape == (6, 24) and b.shape == (72, 6)
    assert not b[24:48].any() and not b[:24, 3:].any() and not b[48:, :3].any()
    merged, plain = (
        load_file(
            kerasvit.save_pretrained(each, tmp_path / "model") / "model.safetensors"
        )
        for each in (model, base("timm"))
    )
    kernel = "blocks.1.attn.qkv.weight"
    np.testing.assert_allclose(
        plain[kernel] + 10 / 6 * b @ a, merged[kernel], rtol=0, atol=1e-6
    )
    np.testing.assert_array_equal(
        tensors[f"{PREFIX}head.weight"], merged["head.weight"]
    )


def test_ranks_and_alphas_of_single_modules(tmp_path):
    model = trained(base("timm"), layers="attention|mlp")
    settings, _ = written(model, tmp_path / "folder")
    assert (settings["r"], settings["lora_alpha"]) == (3, 3)
    fused = {f"blocks.{i}.attn.qkv": 9 for i in range(2)}
    assert settings["rank_pattern"] == settings["alpha_pattern"] == fused
    again = base("timm")
    kerasvit.load_adapters(again, tmp_path / "folder")
    np.testing.assert_allclose(
        to_numpy(again(images("timm"))), to_numpy(model(images("timm"))), atol=1e-5
    )


def test_scales_of_layers_in_one_module(tmp_path):
    """Adapters of other ranks and alphas in query, key and value."""
    model = trained(base("timm"), layers="block_0/attention/(query|key|value)")
    file = tmp_path / "adapters.safetensors"
    query, key = (f"encoder_block_0/attention/{name}" for name in ("query", "key"))
    model.adapters["alphas"] = {query: 7.0, key: 0.5}
    for name, alpha in (("query", 7.0), ("key", 0.5)):
        getattr(model.get_layer("encoder_block_0").attention, name).lora_alpha = alpha
    expected = to_numpy(model(images("timm")))
    written(model, tmp_path / "folder")
    for path in (tmp_path / "folder", kerasvit.save_adapters(model, file)):
        again = base("timm")
        kerasvit.load_adapters(again, path)
        np.testing.assert_allclose(to_numpy(again(images("timm"))), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("VisionTransformer", "vit.layers.0.attention.q_proj"),
        ("DistilledVisionTransformer", "deit.layers.0.attention.q_proj"),
        ("SwinTransformer", "layers.0.blocks.0.attn.qkv"),
        ("PoolingVisionTransformer", "transformers.0.blocks.0.attn.qkv"),
        ("BEiTTransformer", "blocks.0.attn.qkv"),
    ],
)
def test_weights_of_no_library_have_transformers_or_timms_names(name, start, tmp_path):
    settings, _ = written(trained(tiny(name)), tmp_path / "folder")
    assert settings["target_modules"][0] == start


@pytest.mark.slow
def test_models_and_arguments_that_are_refused(tmp_path):
    folder = tmp_path / "folder"

    def refused(model, message, **options):
        with pytest.raises(ValueError, match=message):
            kerasvit.save_adapters(model, folder, **{"format": "peft", **options})
        assert not folder.exists()

    refused(trained(tiny("MLPMixer"), layers="channel"), "names of transformers or ti")
    refused(trained(base("dinov2", num_classes=2)), "need the names of transformers")
    pooled = {"pool": "average", "class_token": False}
    pooled = trained(tiny("VisionTransformer", **pooled))
    settings, _ = written(pooled, tmp_path / "pooled")
    assert settings["target_modules"] == ["blocks.0.attn.qkv"]
    refused(trained(tiny("VisionTransformer", representation_size=4)), "need the names")
    refused(tiny("VisionTransformer"), "has no adapters")
    model = trained(tiny("VisionTransformer"))
    refused(model, "`format` must be one of", format="timm")
    model.get_layer("encoder_block_0").attention.key.trainable = True
    model.get_layer("encoder_block_0").attention.key.bias.trainable = False
    refused(model, "trained as a whole")
    model = trained(tiny("VisionTransformer"))
    model.get_layer("head").bias.assign([np.nan] * 3)
    refused(model, "not finite")
    model = base("vit_layer")
    kerasvit.load_adapters(model, ROOT / "vit_layer")
    refused(model, "trained as a whole.*output/bias")
    with pytest.raises(ValueError, match="must be a folder"):
        (tmp_path / "file").touch()
        kerasvit.save_adapters(
            trained(tiny("VisionTransformer")), tmp_path / "file", format="peft"
        )
