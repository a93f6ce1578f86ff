"""Tensor names that map to the same variable raise an error."""

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
ROOT_CONV = "resnet/root_block/standardized_conv2d"
CASES = [  # a name in a golden model's file, and another name of the same tensor
    ("timm_vit", "head.weight", "module.head.weight"),
    ("timm_deit_distilled", "dist_token", "module.dist_token"),
    ("timm_hybrid_r", "head.weight", "module.head.weight"),
    ("timm_mixer", "stem.proj.bias", "module.stem.proj.bias"),
    ("timm_swin", "norm.weight", "module.norm.weight"),
    ("timm_bit", "norm.weight", "module.norm.weight"),
    ("timm_resnext", "bn1.weight", "module.bn1.weight"),
    ("hf_vit", "vit.layernorm.weight", "layernorm.weight"),
    ("hf_vit", "vit.layernorm.weight", "deit.layernorm.weight"),
    ("hf_swin", "swin.layernorm.bias", "layernorm.bias"),
    ("hf_bit", "bit.norm.bias", "norm.bias"),
    ("alternet_basic", "classifier.0.bn.bias", "module.classifier.0.bn.bias"),
    ("vit_token", "head/kernel", "params/head/kernel"),
    ("vit_token", "head/kernel", "opt/target/head/kernel"),
    ("bigvision_map", "params/head/bias", "opt/target/params/head/bias"),
    ("mixer", "stem/bias", "params/stem/bias"),
    ("hybrid_r", "conv_root/kernel", "opt/target/conv_root/kernel"),
    ("bit_x1", f"{ROOT_CONV}/kernel", f"{ROOT_CONV}_7/kernel"),
]


def read(path):
    if path.suffix == ".safetensors":
        return load_file(path)
    with np.load(path) as arrays:
        return dict(arrays)


def write(path, tensors):
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        np.savez(path, **tensors)
    return path


def golden(case):
    files = ("model.safetensors", "checkpoint.npz")
    return next(p for name in files if (p := GOLDEN / case / name).exists())


@pytest.mark.parametrize("same", [True, False], ids=["same bytes", "others"])
@pytest.mark.parametrize(("case", "name", "other"), CASES)
def test_a_tensor_under_two_names_raises(case, name, other, same, tmp_path):
    source = golden(case)
    tensors = read(source)
    tensors[other] = tensors[name] if same else tensors[name] + 1
    path = write(tmp_path / source.name, tensors)
    pair = rf"{re.escape(name)} and {re.escape(other)}|"
    pair += rf"{re.escape(other)} and {re.escape(name)}"
    with pytest.raises(kerasvit.CheckpointError, match=pair):
        kerasvit.from_pretrained(path)


def test_all_pairs_are_listed(tmp_path):
    source = golden("timm_vit")
    tensors = read(source)
    average = {f"module.{name}": array * 0.99 for name, array in tensors.items()}
    path = write(tmp_path / source.name, {**tensors, **average})
    with pytest.raises(kerasvit.CheckpointError) as caught:
        kerasvit.from_pretrained(path)
    message = str(caught.value)
    for name in tensors:
        assert f"{name} and module.{name}" in message or f"module.{name} and" in message
    assert f"({len(tensors)})" in message


def test_names_that_are_all_wrapped_still_load(tmp_path):
    source = golden("timm_mixer")
    wrapped = {f"module.{name}": array for name, array in read(source).items()}
    write(tmp_path / source.name, wrapped)
    found = kerasvit.from_pretrained(tmp_path / source.name, image_size=32)
    expected = kerasvit.from_pretrained(source, image_size=32)
    for mine, other in zip(found.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(mine, other)
