"""Forms of timm's config.json, and the old names of its models."""

import json
import shutil
from pathlib import Path

import pytest

import kerasvit
from kerasvit.checkpoints.sources.timm import present_name
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]

CASE = Path(__file__).parents[1] / "golden" / "models" / "timm_vit"
TRANSFORM = {
    "input_size": [3, 16, 16],
    "interpolation": "bilinear",
    "crop_pct": 0.95,
    "mean": [0.1, 0.2, 0.3],
    "std": [0.4, 0.5, 0.6],
}
BUILT = "vision_transformer vision_transformer_hybrid deit mlp_mixer resnetv2"


def record_with(folder, change):
    config = {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 7,
        "model_args": {"num_heads": 2},
    }
    shutil.copy(CASE / "model.safetensors", folder)
    (folder / "config.json").write_text(json.dumps(change(config)))
    return kerasvit.from_pretrained(folder).record


def named(config):
    return [f"name {i}" for i in range(config["num_classes"])]


def old_form(config):
    kept = {key: config[key] for key in ("architecture", "num_classes", "model_args")}
    return {**kept, "labels": named(config), **TRANSFORM}


def names_inside(config):
    inside = {**TRANSFORM, "label_names": named(config)}
    return {**config, "label_names": None, "pretrained_cfg": inside}


def of_transformers(config):
    return {
        **names_inside(config),
        "model_type": "timm_wrapper",
        "label_names": None,
        "pretrained_cfg": TRANSFORM,
        "id2label": {str(i): name for i, name in enumerate(named(config))},
    }


def present_form(config):
    return {**config, "label_names": named(config), "pretrained_cfg": TRANSFORM}


@pytest.mark.parametrize("form", [old_form, names_inside, of_transformers])
def test_each_form_states_names_and_transform(form, tmp_path):
    for name in ("present", "other"):
        (tmp_path / name).mkdir()
    right = record_with(tmp_path / "present", present_form)
    found = record_with(tmp_path / "other", form)
    assert found["label_names"] == right["label_names"] and found["label_names"]
    assert found["preprocessing"] == right["preprocessing"]
    assert found["preprocessing"]["crop"] == 0.95


def test_a_folder_of_transformers_states_names_and_transform():
    """Its logits are in tests/golden."""
    record = kerasvit.from_pretrained(CASE.with_name("hf_timm_wrapper")).record
    assert record["label_names"] == ["ant", "bee", "cat"]
    assert record["kwargs"]["pool"] == "attention"
    transform = record["preprocessing"]
    assert (transform["crop"], transform["kernel"]) == (0.75, "bilinear")
    assert list(transform["mean"]) == [0.1, 0.2, 0.3]
    assert transform["size"] == [16, 16]


def test_numbered_names_are_no_names(tmp_path):
    def numbered(config):
        names = [f"LABEL_{i}" for i in range(config["num_classes"])]
        return {**of_transformers(config), "label_names": names}

    assert record_with(tmp_path, numbered)["label_names"] is None


def test_all_old_names_are_those_of_timm(timm):
    from timm.models import _registry

    old = _registry._module_to_deprecated_models
    found = {
        name: (present_name(name), new.split(".")[0])
        for module in (*BUILT.split(), "swin_transformer")
        for name, new in old[module].items()
        if not name.startswith("resmlp")
    }
    assert len(found) > 50
    assert {name: a for name, (a, b) in found.items() if a != b} == {}


def test_present_names_stay(timm):

    modules = {*BUILT.split(), "pit", "swin_transformer"}
    names = {name for module in modules for name in timm.list_models(module=module)}
    assert {name for name in names if present_name(name) != name} == set()
