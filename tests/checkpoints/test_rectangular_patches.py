"""Files whose patches are no squares: kept as they are, or refused."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from tests.checkpoints.mutations import GOLDEN
from tests.contract import to_numpy
from tests.once import on_last_backend

pytestmark = on_last_backend
# {golden case: name of its kernel of patches}.
KEPT = {
    "vit_token": "embedding/kernel",
    "bigvision_gap": "params/embedding/kernel",
    "mixer": "stem/kernel",
    "timm_mixer": "stem.proj.weight",
    "hf_vit": "vit.embeddings.patch_embeddings.projection.weight",
    "hf_dinov3": "embeddings.patch_embeddings.weight",
}
REFUSED = {
    "hybrid_r": "embedding/kernel",
    "timm_hybrid_r": "patch_embed.proj.weight",
    "timm_swin": "patch_embed.proj.weight",
    "hf_swin": "swin.embeddings.patch_embeddings.projection.weight",
    "timm_pit": "patch_embed.conv.weight",
    "hf_siglip": "embeddings.patch_embedding.weight",
    "torchvision_vit": "conv_proj.weight",
    "torchvision_swin": "features.0.0.weight",
}


def doubled(case, name, folder):
    """A copy of a case's file with patches of twice the height, and their kernel."""
    shutil.copytree(GOLDEN / case, folder, dirs_exist_ok=True)
    npz = folder / "checkpoint.npz"
    if npz.exists():
        tensors = dict(np.load(npz))
        kernel = tensors[name] = np.concatenate([tensors[name]] * 2)
        np.savez(npz, **tensors)
        return npz, kernel
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors[name] = np.concatenate([tensors[name]] * 2, axis=2)
    save_file(tensors, path)
    return path, tensors[name].transpose(2, 3, 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("case", KEPT)
def test_rectangular_patches_are_kept(case, tmp_path):
    path, kernel = doubled(case, KEPT[case], tmp_path)
    _, height, width, _ = np.load(tmp_path / "input.npy").shape
    if (config := tmp_path / "config.json").exists():
        stated = {"image_size": [2 * height, width]}
        config.write_text(json.dumps({**json.loads(config.read_text()), **stated}))
    model = kerasvit.from_pretrained(path, image_size=(2 * height, width))
    assert model.record["kwargs"]["patch_size"] == [*kernel.shape[:2]]
    layer = model.get_layer("stem" if "mixer" in case else "embedding")
    np.testing.assert_array_equal(to_numpy(layer.kernel), kernel)


@pytest.mark.parametrize("case", REFUSED)
def test_rectangular_patches_of_other_models_are_refused(case, tmp_path):
    path, kernel = doubled(case, REFUSED[case], tmp_path)
    height, width = kernel.shape[:2]
    message = f"patches have {height} × {width} pixels.*square"
    with pytest.raises(kerasvit.CheckpointError, match=message):
        kerasvit.from_pretrained(path)
