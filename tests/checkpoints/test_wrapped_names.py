"""Prefixes that wrappers of PyTorch and training scripts put before all names."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kerasvit.checkpoints import Checkpoint, CheckpointError
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]

MODELS = Path(__file__).parents[1] / "golden" / "models"
CASES = sorted(path.parent.name for path in MODELS.glob("*/model.safetensors"))


def wrapped(case, folder, rename):
    for file in (MODELS / case).glob("*.json"):
        shutil.copy(file, folder)
    tensors = load_file(MODELS / case / "model.safetensors")
    changed = {rename(name): tensor for name, tensor in tensors.items()}
    save_file(changed, folder / "model.safetensors")
    return folder


def check_same(case, folder):
    found, right = Checkpoint(folder), Checkpoint(MODELS / case)
    assert found.shapes == right.shapes
    assert found.description.numbers == right.description.numbers
    assert found.description.arguments == right.description.arguments
    for name in right.shapes:
        assert np.array_equal(found[name], right[name]), name


@pytest.mark.parametrize("prefix", ["_orig_mod.module.", "model.timm_model."])
@pytest.mark.parametrize("case", CASES)
def test_prefixes_of_all_names_are_removed(case, prefix, tmp_path):
    check_same(case, wrapped(case, tmp_path, lambda name: prefix + name))


PREFIXES = ("module.", "_orig_mod.", "module._orig_mod.", "model.", "net.")
PREFIXES += ("backbone.", "encoder.", "timm_model.", "student.", "teacher.backbone.")


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("case", ["timm_vit", "timm_swin", "hf_vit", "hf_dinov2"])
def test_each_prefix_is_removed(case, prefix, tmp_path):
    check_same(case, wrapped(case, tmp_path, lambda name: prefix + name))


def test_a_name_of_many_parts_takes_no_time(tmp_path):
    save_file({"a." * 300_000: np.zeros(1, "float32")}, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="no known code base"):
        Checkpoint(tmp_path / "x.safetensors")


@pytest.mark.parametrize("wrapper", ["_orig_mod", "_fsdp_wrapped_module", "module"])
def test_wrappers_inside_of_a_model_are_removed(wrapper, tmp_path):
    def rename(name):
        return name.replace("blocks.", f"{wrapper}.blocks.{wrapper}.")

    check_same("timm_vit", wrapped("timm_vit", tmp_path, rename))


def test_the_count_of_a_moving_average_is_left_out(tmp_path):
    tensors = load_file(MODELS / "timm_vit" / "model.safetensors")
    average = {f"module.{name}": tensor for name, tensor in tensors.items()}
    count = {"n_averaged": np.array(3, "int64")}
    save_file({**average, **count}, tmp_path / "model.safetensors")
    check_same("timm_vit", tmp_path)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod."])
def test_two_models_in_one_file_raise(prefix, tmp_path):
    tensors = load_file(MODELS / "timm_vit" / "model.safetensors")
    both = {**tensors, **{prefix + name: x + 1 for name, x in tensors.items()}}
    save_file(both, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="moving average"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("other", ["teacher.", "ema."])
def test_two_models_with_different_prefixes_raise(other, tmp_path):
    tensors = load_file(MODELS / "timm_vit" / "model.safetensors")
    both = {f"student.{name}": x for name, x in tensors.items()}
    both |= {other + name: x + 1 for name, x in tensors.items()}
    save_file(both, tmp_path / "model.safetensors")
    message = (
        'more than one model. Choose a part, such as state="(student|ema|teacher)"'
    )
    with pytest.raises(
        CheckpointError, match=f"{message}(.|\n)*{other[:-1]}: 32 tensors"
    ):
        Checkpoint(tmp_path)
    values = load_file(MODELS / "timm_vit" / "model.safetensors")
    for state, more in (("student", 0), (other[:-1], 1)):
        chosen = Checkpoint(tmp_path, state=state)
        assert chosen.shapes == Checkpoint(MODELS / "timm_vit").shapes
        for name in chosen.shapes:
            assert np.array_equal(chosen[name], values[name] + more)


def test_the_mask_token_of_dinov2s_own_files_is_left_out(tmp_path):
    """facebookresearch/dinov2 has timm's names beside it."""
    tensors = load_file(MODELS / "timm_vit" / "model.safetensors")
    width = tensors["cls_token"].shape[-1]
    tensors["mask_token"] = np.zeros((1, width), "float32")
    save_file(tensors, tmp_path / "model.safetensors")
    check_same("timm_vit", tmp_path)
