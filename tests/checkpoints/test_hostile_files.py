"""Malicious files raise an error before they use memory or time."""

import json
import re
import shutil
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints import CheckpointError
from kerasvit.checkpoints.reader import Reader
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT

pytestmark = [on_last_backend, pytest.mark.slow]


def safetensors(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def tensor(shape, first, last, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


@pytest.mark.parametrize(
    "header",
    [
        {"a": tensor([2], 0, 4)},  # says less than its shape
        {"a": tensor([2**62, 8], 0, 8)},  # overflows
        {"a": tensor([-1], 0, 8)},
        {"a": tensor([2], 0, 8), "b": tensor([1], 4, 8)},  # overlap
        {"a": tensor([1], 4, 8)},  # a hole
        {"a": tensor([1], 0, 4)},  # bytes left over
        b'{"a": 1, ',
    ],
)
def test_a_header_with_a_wrong_shape(tmp_path, header):
    path = safetensors(tmp_path / "x.safetensors", header, bytes(8))
    with pytest.raises(CheckpointError, match="cannot be read"):
        Reader(path)


def test_a_header_without_end(tmp_path):
    path = safetensors(tmp_path / "x.safetensors", b"{" + b" " * 5_000_000 + b"}")
    with pytest.raises(CheckpointError, match="header of 5,000,002 bytes"):
        Reader(path)
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Reader(path)


def test_a_million_names(tmp_path):
    header = {f"{i}": tensor([0], 0, 0) for i in range(20_001)}
    path = safetensors(tmp_path / "x.safetensors", header)
    with pytest.raises(CheckpointError, match="20,001 tensors"):
        Reader(path)


def npz(path, shape, content, name="a.npy"):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open(name, "w") as member:
            np.lib.format.write_array_header_1_0(
                member, {"descr": "<f4", "fortran_order": False, "shape": shape}
            )
            member.write(content)
    return path


def test_an_array_larger_than_its_bytes(tmp_path):
    path = npz(tmp_path / "x.npz", (10**12,), bytes(8))
    with pytest.raises(CheckpointError, match="1000000000000.*holds 8 bytes"):
        Reader(path)


def test_a_header_that_does_not_end_is_not_read(tmp_path):
    """The uncompressed header is a thousand times longer than the file."""
    path, spaces = tmp_path / "x.npz", 40_000_000
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        start = b"\x93NUMPY\x02\x00" + struct.pack("<I", spaces)
        archive.writestr("a.npy", start + b" " * spaces)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match="cannot be read") as caught:
        Reader(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000 and "allow_pickle" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "names", [("a", "a.npy"), ("a.npy", "a"), ("a.npy", "a.npy"), ("a.txt",), ("a/",)]
)
def test_the_checked_file_is_the_one_that_is_read(tmp_path, names):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            with archive.open(name, "w") as member:
                np.save(member, np.zeros(2, "float32"))
    with pytest.raises(CheckpointError, match="has a member 'a.*NAME.npy"):
        Reader(path)


def test_a_zip_bomb_is_not_unpacked(tmp_path, monkeypatch):
    folder = kerasvit.save_pretrained(
        TinyViT(image_size=8, num_classes=3), tmp_path / "vit"
    )
    from safetensors.numpy import load_file

    tensors = load_file(folder / "model.safetensors")
    tensors["blocks.0.mlp.fc1.weight"] = np.zeros((4000, 4000), "float32")
    np.savez_compressed(tmp_path / "bomb.npz", **tensors)
    read = []
    get = Reader.__getitem__
    monkeypatch.setattr(
        Reader, "__getitem__", lambda self, name: read.append(name) or get(self, name)
    )
    with pytest.raises(CheckpointError, match="4000"):
        TinyViT(tmp_path / "bomb.npz", image_size=8)
    assert "blocks.0.mlp.fc1.weight" not in read


def test_names_are_not_used_as_paths(tmp_path):
    path = npz(tmp_path / "x.npz", (2,), bytes(8), name="../../outside.npy")
    assert Reader(path).shapes == {"../../outside": (2,)}
    assert not (tmp_path.parent / "outside.npy").exists()


def tiny(tmp_path):
    """A folder and its configuration."""
    folder = kerasvit.save_pretrained(TinyViT(image_size=8, num_classes=3), tmp_path)
    return folder, json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("timm_swin", "mlp.fc1.weight"),
        ("hf_swin", "intermediate.dense.weight"),
        ("hf_swin", "patch_embeddings.projection.weight"),
        ("timm_vit", "patch_embed.proj.weight"),
    ],
)
def test_a_tensor_with_an_axis_of_size_0(tmp_path, case, name):
    from safetensors.numpy import load_file, save_file

    folder = Path(__file__).parents[1] / "golden" / "models" / case
    tensors = {
        key: array[..., :0] if key.endswith(name) else array
        for key, array in load_file(folder / "model.safetensors").items()
    }
    save_file(tensors, tmp_path / "model.safetensors")
    if (config := folder / "config.json").exists():
        shutil.copy(config, tmp_path)
    with pytest.raises(CheckpointError, match=re.escape(str(tmp_path))):
        kerasvit.from_pretrained(tmp_path)


def test_nan_and_infinity_raise(tmp_path):
    from safetensors.numpy import load_file, save_file

    folder, config = tiny(tmp_path)
    del config["kerasvit"]["weights_sha256"]
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for value in (np.nan, np.inf):
        tensors["head.weight"] = np.full_like(tensors["head.weight"], value)
        save_file(tensors, path)
        with pytest.raises(CheckpointError, match="NaN or infinite.*head.weight"):
            kerasvit.from_pretrained(folder)


def test_damaged_tensors_or_those_of_another_save_raise(tmp_path):
    folder, config = tiny(tmp_path / "one")
    another, _ = tiny(tmp_path / "another")
    content = bytearray((folder / "model.safetensors").read_bytes())
    shutil.copy(another / "model.safetensors", folder)
    with pytest.raises(CheckpointError, match="its hash is .* remove `weights_sha256`"):
        kerasvit.from_pretrained(folder)
    assert config["kerasvit"]["weights_dtype"] == "float32"
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="does not match the config.json"):
        TinyViT(folder)
    config["kerasvit"]["weights_sha256"] = 7
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="wrong values of weights_sha256"):
        kerasvit.from_pretrained(folder)


def test_shards_outside_the_folder_are_not_looked_for(tmp_path):
    folder, _ = tiny(tmp_path)
    (folder / "model.safetensors").rename(tmp_path / "model-00001-of-00001.safetensors")
    for place in ("../../model-00001-of-00001.safetensors", "/etc/passwd", "x", 3, []):
        parts = {"weight_map": {"a": place}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(parts))
        with pytest.raises(CheckpointError, match="must (list all shards|have an obj)"):
            kerasvit.from_pretrained(folder)


def test_keras_archives_raise(tmp_path):
    for name, what in {"model.keras": "is not read", "model.h5": "damaged"}.items():
        (tmp_path / name).write_bytes(b"PK")
        with pytest.raises(CheckpointError, match=what):
            kerasvit.from_pretrained(tmp_path / name)


@pytest.mark.parametrize("case", ["timm_mixer", "timm_swin", "timm_vit"])
def test_a_table_of_another_rank(tmp_path, case):
    from safetensors.numpy import load_file, save_file

    parts = ("mlp_tokens.fc1.weight", "relative_position_bias_table", "pos_embed")
    folder = Path(__file__).parents[1] / "golden" / "models" / case
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith(parts) and ".1." not in name)
    for shape in ((-1,), (1, *tensors[name].shape)):
        changed = {**tensors, name: tensors[name].reshape(shape)}
        save_file(changed, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError):
            kerasvit.from_pretrained(tmp_path, image_size=64)
