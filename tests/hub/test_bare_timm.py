"""timm's files without config.json load with a message on assumptions, or raise."""

import json

import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy

pytestmark = pytest.mark.slow

VIT = {"patch_size": 8, "width": 48, "depth": 1, "num_heads": 12, "mlp_dim": 192}
SMALL = {"patch_size": 8, "embed_dim": 48, "depth": 1, "img_size": 32}
MESSAGE = "does not state all that the model computes"


def bare(timm, name, folder, **arguments):
    """A small model of timm with fresh values, and the file of its tensors alone."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = timm.create_model(name, **{"num_classes": 3, **SMALL, **arguments}).eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    save_file(model.state_dict(), folder / "model.safetensors")
    return model, folder / "model.safetensors"


def load(path, numbers=VIT, **changes):
    vit = kerasvit.Variant("SmallViT", kerasvit.VisionTransformer, **numbers)
    return vit(path, **changes)


def difference(model, reference):
    """Largest difference of the logits, relative to the largest logit."""
    import torch

    images = np.random.default_rng(1).normal(size=(2, *model.input_shape[1:]))
    images = images.astype("float32")
    with torch.no_grad():
        found = reference(
            torch.from_numpy(images.transpose(0, 3, 1, 2)).clone()
        ).numpy()
    return abs(found - to_numpy(model(images))).max() / abs(found).max()


def assumptions(caplog):
    return [line for line in caplog.messages if MESSAGE in line]


def test_normalisations_after_the_branches_raise(timm, tmp_path):
    _, path = bare(timm, "vit_base_patch16_rpn_224", tmp_path)
    with pytest.raises(kerasvit.CheckpointError, match="after the branches"):
        load(path)
    with pytest.raises(kerasvit.CheckpointError, match="after the branches"):
        kerasvit.from_pretrained(tmp_path)


def test_the_same_names_with_a_contradicting_config(timm, tmp_path, caplog):
    plain = {"qkv_bias": False, "class_token": False, "global_pool": "avg"}
    reference, path = bare(timm, "vit_base_patch16_224", tmp_path, **plain)
    with pytest.raises(kerasvit.CheckpointError, match="config.json"):
        load(path)
    config = {"model_args": {"num_heads": 12, "act_layer": "gelu"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert difference(load(path), reference) < 1e-5
    assert not assumptions(caplog)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("vit_base_patch16_clip_224", {}),
        ("vit_base_patch16_clip_quickgelu_224", {"activation": "quick_gelu"}),
    ],
)
def test_the_activation_of_a_clip_is_assumed(timm, name, stated, tmp_path, caplog):
    reference, path = bare(timm, name, tmp_path)
    assert difference(load(path, **stated), reference) < 1e-5
    (line,) = assumptions(caplog)
    assert ("activation='gelu'" in line) == (not stated)
    assert "epsilon=1e-05" in line


def test_other_heads_than_the_variant_has(timm, tmp_path, caplog):
    reference, path = bare(timm, "vit_base_patch16_gap_224", tmp_path)
    assert difference(load(path), reference) > 1e-2
    (line,) = assumptions(caplog)
    for part in (str(path), "num_heads=12", "activation='gelu'", "before attention"):
        assert part in line
    assert "num_heads=, activation= to the call" in line and "config.json" in line
    caplog.clear()
    assert difference(load(path, num_heads=16), reference) < 1e-5
    (line,) = assumptions(caplog)
    assert "num_heads" not in line and "activation=" in line


def test_another_activation(timm, tmp_path, caplog):
    reference, path = bare(
        timm, "vit_base_patch16_224", tmp_path, act_layer="quick_gelu"
    )
    assert difference(load(path), reference) > 1e-3
    (line,) = assumptions(caplog)
    assert "activation='gelu'" in line and "pool='token'" in line


def test_attention_pooling(timm, tmp_path, caplog):
    reference, path = bare(timm, "vit_base_patch16_siglip_224", tmp_path)
    assert difference(load(path), reference) < 1e-5
    (line,) = assumptions(caplog)
    assert "pool=" not in line
    _, path = bare(timm, "test_vit3", tmp_path, embed_dim=48)
    caplog.clear()
    load(path, {**VIT, "num_heads": 3, "mlp_dim": 96}, positions="tokens")
    (line,) = assumptions(caplog)
    assert "attention pooling over the patches only" in line


@pytest.mark.parametrize(
    ("name", "width", "activation"),
    [
        ("vit_base_patch32_siglip_256", 768, "gelu_tanh"),
        ("vit_so400m_patch16_siglip_gap_256", 1152, "gelu_tanh"),
        ("vit_large_patch16_siglip_gap_512", 1024, "gelu_tanh"),
        ("vit_base_patch16_siglip_gap_256", 768, "gelu"),
    ],
)
def test_the_sizes_determine_the_activation(
    timm, name, width, activation, tmp_path, caplog
):
    words = name.split("_")
    patch, size = int(words[2].removeprefix("patch")), int(words[-1])
    own = {"embed_dim": width, "patch_size": patch, "img_size": size, "mlp_ratio": 0.1}
    reference, path = bare(timm, name, tmp_path, **own)
    heads = reference.blocks[0].attn.num_heads
    numbers = {"patch_size": patch, "width": width, "num_heads": heads}
    numbers |= {"depth": 1, "mlp_dim": int(width * 0.1)}
    model = load(path, numbers)
    assert model.record["kwargs"]["activation"] == activation
    assert f"activation='{activation}'" in assumptions(caplog)[0]
    assert difference(model, reference) < 1e-4


@pytest.mark.parametrize(
    "config",
    [{"architecture": "vit_base_patch16_224"}, {"model_args": {"num_heads": 12}}],
)
def test_a_config_reduces_the_assumptions(timm, config, tmp_path, caplog):
    reference, path = bare(timm, "vit_base_patch16_224", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert difference(load(path), reference) < 1e-5
    assert len(assumptions(caplog)) == ("architecture" not in config)
    assert "num_heads" not in caplog.text


@pytest.mark.parametrize("name", ["deit_base_distilled_patch16_224"])
def test_distilled_models(timm, name, tmp_path, caplog):
    reference, path = bare(timm, name, tmp_path)
    build = kerasvit.Variant("Small", kerasvit.DistilledVisionTransformer, **VIT)
    assert difference(build(path), reference) < 1e-5
    (line,) = assumptions(caplog)
    assert "num_heads=12" in line and "pool=" not in line
