"""Folders of keras-hub: ViT, DeiT and DINOv3, backbones and classifiers."""

import json
import logging
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

import kerasvit
from kerasvit import CheckpointError
from tests.contract import to_numpy
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
CASES = sorted(path.name for path in GOLDEN.glob("keras_hub_*"))
TASKS = ["keras_hub_vit", "keras_hub_deit"]
every = pytest.mark.parametrize("case", CASES)


def check_logits(model, case):
    with np.load(GOLDEN / case / "expected.npz") as arrays:
        right = arrays["logits_f64"]
    found = to_numpy(model(np.load(GOLDEN / case / "input.npy")))
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-5 * np.abs(right).max())


def copied(case, folder, without=()):
    """A copy of a case, without some of its files."""
    names = ("config.json", "model.weights.h5", "task.json", "task.weights.h5")
    for name in (*names, "image_converter.json"):
        if (GOLDEN / case / name).exists() and name not in without:
            shutil.copy(GOLDEN / case / name, folder)
    return folder


def changed(folder, name="config.json", **settings):
    """Changes settings of a folder."""
    content = json.loads((folder / name).read_text())
    content["config"].update(settings)
    (folder / name).write_text(json.dumps(content))
    return folder


def test_there_are_cases():
    assert len(CASES) == 4


@every
def test_a_folder_is_read_and_saved(case, tmp_path):
    model = kerasvit.from_pretrained(GOLDEN / case)
    assert model.record["origin"] == "keras_hub"
    check_logits(model, case)
    kerasvit.save_pretrained(model, tmp_path)
    check_logits(kerasvit.from_pretrained(tmp_path), case)


@pytest.mark.parametrize("case", ["keras_hub_deit", "keras_hub_dinov3"])
def test_timm_reads_what_is_saved_again(timm, case, tmp_path):
    import torch

    model = kerasvit.from_pretrained(GOLDEN / case)
    if case == "keras_hub_deit":  # timm's epsilon is another
        record = model.record["kwargs"]
        assert record["epsilon"] == 1e-12
        folder = changed(copied(case, tmp_path), layer_norm_epsilon=1e-6)
        model = kerasvit.from_pretrained(folder)
    kerasvit.save_pretrained(model, tmp_path / "ours")
    other = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True)
    images = np.load(GOLDEN / case / "input.npy")
    with torch.no_grad():
        right = other.eval()(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    found = to_numpy(model(images))
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-5 * np.abs(found).max())


def test_a_backbone_without_its_task(tmp_path):
    case = "keras_hub_deit"
    folder = copied(case, tmp_path, without=("task.json", "task.weights.h5"))
    images = np.load(GOLDEN / case / "input.npy")
    alone = kerasvit.from_pretrained(folder)
    assert alone.output_shape == (None, 16)
    without_head = kerasvit.from_pretrained(GOLDEN / case, num_classes=0)
    right = to_numpy(without_head(images))
    np.testing.assert_array_equal(to_numpy(alone(images)), right)


@pytest.mark.parametrize("case", TASKS)
def test_a_file_without_settings(case, tmp_path):
    folder = copied(case, tmp_path, without=("config.json", "task.json"))
    model = kerasvit.from_pretrained(
        folder / "model.weights.h5",
        image_size=np.load(GOLDEN / case / "input.npy").shape[1:3],
        source_grid=(4, 6) if "vit" in case else None,
        epsilon=1e-6 if "vit" in case else 1e-12,
    )
    check_logits(model, case)


def test_other_classes_and_sizes(caplog):
    model = kerasvit.from_pretrained(
        GOLDEN / "keras_hub_deit", num_classes=2, image_size=24
    )
    assert model.output_shape == (None, 2)
    assert "a fresh head of zeros for 2 classes" in caplog.text
    with pytest.raises(ValueError, match="label_names"):
        kerasvit.from_pretrained(GOLDEN / "keras_hub_deit", label_names=["a"])


def test_a_mean_of_patches_without_a_class_token(tmp_path):
    folder = copied("keras_hub_vit", tmp_path)
    with h5py.File(folder / "model.weights.h5", "a") as file:
        start = file["layers/vi_t_patching_and_embedding"]
        del start["vars/0"]
        table = start["position_embedding/vars/0"][1:]
        del start["position_embedding/vars/0"]
        start["position_embedding/vars/0"] = table
    with pytest.raises(CheckpointError, match="pooling='token', for tokens with 0"):
        kerasvit.from_pretrained(folder)
    changed(folder, "task.json", pooling="gap")
    model = kerasvit.from_pretrained(folder)
    assert model.record["kwargs"]["pool"] == "average"
    assert not model.record["kwargs"]["class_token"]


@pytest.mark.parametrize("case", TASKS)
def test_the_image_converter_is_the_preprocessing(case, tmp_path, caplog):
    model = kerasvit.from_pretrained(GOLDEN / case)
    assert "preprocessing" not in caplog.text
    record = model.record["preprocessing"]
    settings = json.loads((GOLDEN / case / "image_converter.json").read_text())
    settings = settings["config"]
    pixels = np.random.default_rng(0).integers(256, size=(*record["size"], 3))
    pixels = pixels.astype("uint8")  # of this size: nothing is resized
    right = pixels * np.array(settings["scale"]) + np.array(settings["offset"])
    transform = kerasvit.Preprocessing.from_config(record)
    found = transform(Image.fromarray(pixels))
    np.testing.assert_allclose(found, right, atol=1e-5)
    squash = not settings["crop_to_aspect_ratio"]
    assert record["mode"] == ("squash" if squash else "center")
    assert record["kernel"] == settings["interpolation"]
    assert record["antialias"] == settings["antialias"]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"pad_to_aspect_ratio": True}, "that pads images"),
        ({"image_size": None}, "does not resize"),
        ({"interpolation": "bicubic"}, "interpolation='bicubic' and without"),
        ({"scale": "x"}, "`scale`"),
    ],
    ids=str,
)
def test_other_image_converters(settings, what, tmp_path):
    folder = copied("keras_hub_vit", tmp_path)
    changed(folder, "image_converter.json", **settings)
    with pytest.raises(CheckpointError, match=what):
        kerasvit.from_pretrained(folder)
    own = kerasvit.Preprocessing((16, 24))
    kerasvit.from_pretrained(folder, preprocessing=own)


def test_without_a_converter_the_default_is_said(caplog):
    with caplog.at_level(logging.WARNING, "kerasvit"):
        kerasvit.from_pretrained(GOLDEN / "keras_hub_dinov3")
    assert "The default of keras_hub is used" in caplog.text


@pytest.mark.parametrize(
    ("case", "settings", "what"),
    [
        ("keras_hub_vit", {"use_mha_bias": False}, "use_mha_bias=False"),
        ("keras_hub_vit", {"image_shape": "x"}, "image_shape"),
        ("keras_hub_vit", {"image_shape": [16, 16, 3]}, "24 patch rows"),
        ("keras_hub_dinov3", {"hidden_activation": "relu"}, "hidden_activation"),
        ("keras_hub_dinov3", {"use_value_bias": False}, "use_value_bias=False"),
        ("keras_hub_dinov3", {"use_mask_token": False}, "without mask token"),
    ],
    ids=str,
)
def test_settings_that_are_not_built(case, settings, what, tmp_path):
    with pytest.raises(CheckpointError, match=what):
        kerasvit.from_pretrained(changed(copied(case, tmp_path), **settings))


def test_a_class_that_is_not_known(tmp_path):
    names = ("config.json", "model.weights.h5")
    (tmp_path / names[0]).write_text('{"class_name": "ResNetBackbone", "config": {}}')
    with h5py.File(tmp_path / names[1], "w") as file:
        file["layers/conv2d/vars/0"] = np.zeros((3, 3, 3, 8))
    with pytest.raises(CheckpointError, match="it holds a ResNetBackbone"):
        kerasvit.from_pretrained(tmp_path)


def test_files_of_two_presets(tmp_path):
    folder = copied("keras_hub_vit", tmp_path)
    shutil.copy(GOLDEN / "keras_hub_deit" / "config.json", folder)
    with pytest.raises(CheckpointError, match="states the class DeiTBackbone"):
        kerasvit.from_pretrained(folder)


def test_shards_say_how_they_are_saved_again(tmp_path):
    for name in ("config.json", "model.weights.json", "model_00000.weights.h5"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(CheckpointError, match="shards of keras-hub.*max_shard_size"):
        kerasvit.from_pretrained(tmp_path)


def test_a_damaged_task_is_named(tmp_path):
    folder = copied("keras_hub_vit", tmp_path)
    content = (folder / "task.weights.h5").read_bytes()
    (folder / "task.weights.h5").write_bytes(content[:500])
    with pytest.raises(CheckpointError, match=r"task\.weights\.h5"):
        kerasvit.from_pretrained(folder)
