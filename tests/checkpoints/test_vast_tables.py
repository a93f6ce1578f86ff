"""Tables that are small in the file and large in memory raise an error."""

import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import load_file

import kerasvit
from kerasvit.checkpoints import CheckpointError
from tests.tiny_vit import TinyViT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("cells", [256, 1024])
def test_a_table_for_more_patches_than_any_model_has(tmp_path, monkeypatch, cells):
    model = TinyViT(image_size=8, num_classes=3)
    folder = kerasvit.save_pretrained(model, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    width = tensors["pos_embed"].shape[-1]
    tensors["pos_embed"] = np.zeros((1, 1 + cells**2, width), "float32")
    np.savez_compressed(tmp_path / "bomb.npz", **tensors)
    tracemalloc.start()
    if cells == 1024:
        with pytest.raises(CheckpointError, match="1,048,576 patch rows"):
            TinyViT(tmp_path / "bomb.npz", image_size=8)
    else:
        with monkeypatch.context() as patch:
            patch.setattr("kerasvit.checkpoints.Checkpoint.__getitem__", stop)
            with pytest.raises(InterruptedError):  # after the comparison of all shapes
                TinyViT(tmp_path / "bomb.npz", image_size=8, num_classes=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < tensors["pos_embed"].nbytes / 2


def stop(*_):
    raise InterruptedError
