"""Pre-training without labels in the recipes, and fine-tuning of its encoder."""

import dataclasses
import json

import finetune
import numpy as np
import pretrain
import pytest
from command.command_line import BadInput

import kerasvit
from tests.once import long_elsewhere, on_last_backend

pytestmark = pytest.mark.slow

SIZES = {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8, "image_size": 28}


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    row = pretrain.SMALL["small_vit"]
    model = kerasvit.Variant("small_vit", row.builder, **{**row.numbers, **SIZES})
    monkeypatch.setitem(pretrain.SMALL, "small_vit", model)
    monkeypatch.chdir(tmp_path)


def settings(**changes):
    values = {"epochs": 1, "batch_size": 100, "out": "run", "objective": "masked"}
    return pretrain.Config(**{**values, **changes})


@long_elsewhere
@pytest.mark.parametrize(
    "changes",
    [
        {"few_shot": (2,), "rho": 0.05},
        pytest.param(
            {"objective": "mae", "decoder": (8, 1, 2), "rho": 0.05, "method": "gsam"},
            marks=pytest.mark.long,
        ),
    ],
)
def test_an_encoder_is_trained_and_fine_tuned(changes, tmp_path, capsys):
    result = pretrain.pretrain(settings(**changes))
    pretrain.show(result)
    assert "accuracy" not in result and result["loss"] > 0
    assert ("val_2_shot" in result["history"][-1]) == ("few_shot" in changes)
    printed = capsys.readouterr().out
    assert "validation loss" in printed and "finetune.py --weights run/model" in printed
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert f"| objective | {changes.get('objective', 'masked')} |" in card
    assert "| loss |" not in card
    model = kerasvit.from_pretrained("run/model")
    assert model.output_shape == (None, 8)
    config = finetune.Config(weights="run/model", steps=10, batch_size=50, out="tuned")
    tuned = finetune.finetune(dataclasses.replace(config, rho=0.0, linear_head=True))
    assert 0 < tuned["accuracy"] <= 1
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["objective"] == changes.get("objective", "masked")
    assert np.isfinite(result["loss"])


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": "ViTB16/sam"}, "`teacher`: the objective masked has no labels"),
        ({"keep_best": True}, "Leave out --keep-best"),
        ({"decoder": (8, 1, 2)}, "`decoder`: give --objective mae"),
        ({"objective": "labels", "mask_ratio": 0.5}, "`mask_ratio`: give --objective"),
        ({"loss": "sigmoid"}, "`loss`: give --objective labels"),
        ({"model": "small_mixer"}, "must be a ViT of kerasvit"),
        ({"augment": "photo_mixed"}, "photo_mixed mixes images with their labels"),
        ({"mask_ratio": 0.99}, "a part of the 16 patches, not all"),
    ],
)
def test_settings_that_need_labels_are_explained(changes, message):
    with pytest.raises(BadInput, match=message):
        pretrain.pretrain(settings(**changes))
