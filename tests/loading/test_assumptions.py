"""Files that do not determine all settings: one log message states the assumptions."""

import json
import shutil
from pathlib import Path

import pytest

import kerasvit
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT

pytestmark = [on_last_backend, pytest.mark.slow]

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
MESSAGE = "does not state all that the model computes"
WIDE = {"patch_size": 4, "width": 24, "depth": 2, "num_heads": 3, "mlp_dim": 40}
GOOGLE = {"patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 32}


def vit(path, numbers, **changes):
    return kerasvit.Variant("V", kerasvit.VisionTransformer, **numbers)(path, **changes)


def assumptions(caplog):
    return [line for line in caplog.messages if MESSAGE in line]


def test_of_transformers_without_its_configuration(tmp_path, caplog):
    shutil.copy(GOLDEN / "hf_vit" / "model.safetensors", tmp_path)
    vit(tmp_path, WIDE)
    (line,) = assumptions(caplog)
    for part in ("num_heads=3", "activation='gelu'", "epsilon=1e-12", "config.json"):
        assert part in line
    caplog.clear()
    vit(tmp_path, WIDE, num_heads=3, activation="gelu", epsilon=1e-12)
    assert not assumptions(caplog)
    config = {"model_type": "vit", "num_attention_heads": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    vit(tmp_path, WIDE)
    assert not assumptions(caplog)


def test_of_a_clip_that_timm_builds_with_another_gelu(tmp_path, caplog):
    shutil.copy(GOLDEN / "timm_vit_clip" / "model.safetensors", tmp_path)
    note = "natively QuickGELU, use quickgelu model variant for original results"
    config = json.loads((GOLDEN / "timm_vit_clip" / "config.json").read_text())
    config |= {"pretrained_cfg": {"notes": [note]}}

    def load(name, **args):
        changed = {"architecture": name, "model_args": {**config["model_args"], **args}}
        (tmp_path / "config.json").write_text(json.dumps({**config, **changed}))
        caplog.clear()
        return kerasvit.from_pretrained(tmp_path).record["kwargs"]["activation"]

    assert load("vit_base_patch16_clip_224") == "gelu"
    assert "activation='gelu'" in assumptions(caplog)[0]
    assert load("vit_base_patch16_clip_224", act_layer="gelu") == "gelu"
    assert not assumptions(caplog)
    assert load("vit_base_patch16_clip_quickgelu_224") == "quick_gelu"
    assert not assumptions(caplog)


@pytest.mark.parametrize(
    ("case", "part"), [("hf_swin", "exact GELU"), ("hf_bit", "ReLU, 32 groups")]
)
def test_of_others_of_transformers(case, part, tmp_path, caplog):
    shutil.copy(GOLDEN / case / "model.safetensors", tmp_path)
    kerasvit.from_pretrained(tmp_path)
    assert part in assumptions(caplog)[0] and len(assumptions(caplog)) == 1
    shutil.copy(GOLDEN / case / "config.json", tmp_path)
    caplog.clear()
    kerasvit.from_pretrained(tmp_path)
    assert not assumptions(caplog)


def test_of_heads_of_which_the_file_has_the_product(caplog):
    path = GOLDEN / "alternet_basic" / "model.safetensors"
    heads = {"num_heads": [1, 2, 3, 4], "head_width": 6}
    kerasvit.from_pretrained(path, image_size=64, **heads)
    assert not assumptions(caplog)
    with pytest.raises(kerasvit.CheckpointError, match="give `num_heads`"):
        kerasvit.from_pretrained(path, image_size=64, num_heads=[2, 1, 3, 4])
    (line,) = assumptions(caplog)
    assert "head_width=64" in line and "pass head_width= to the call" in line


def test_files_that_determine_all_arguments(tmp_path, caplog):
    vit(GOLDEN / "vit_token" / "checkpoint.npz", GOOGLE)
    folder = kerasvit.save_pretrained(TinyViT(image_size=8, num_classes=3), tmp_path)
    TinyViT(folder)
    kerasvit.from_pretrained(GOLDEN / "timm_mixer" / "model.safetensors")
    assert not assumptions(caplog)
