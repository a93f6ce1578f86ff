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
    with pytest.raises(CheckpointError, match="no known code base"):
        Checkpoint(tmp_path)
