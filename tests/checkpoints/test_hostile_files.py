"""Files that are made to do harm: refused before they cost anything."""

import json
import re
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints import CheckpointError
from kerasvit.checkpoints.reader import Reader
from tests.tiny_vit import TinyViT


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
def test_a_header_that_lies(tmp_path, header):
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
    "changes",
    [
        {"width": 10**12},
        {"depth": 10**9},
        {"num_classes": 10**12},
        {"image_size": [10**9, 10**9]},
        {"mlp_dim": -1},
        {"num_heads": 0},
        {"patch_size": "4"},
        {"patch_size": 0},
    ],
    ids=str,
)
def test_a_configuration_that_asks_for_too_much(tmp_path, changes):
    folder, config = tiny(tmp_path)
    config["kerasvit"]["kwargs"].update(changes)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=next(iter(changes))):
        kerasvit.from_pretrained(folder)


BUILDERS = {
    "VisionTransformer": {
        "patch_size": 4, "width": 64, "depth": 1, "num_heads": 1, "mlp_dim": 8,
    },
    "MLPMixer": {
        "patch_size": 4, "width": 64, "depth": 1, "tokens_mlp_dim": 8,
        "channels_mlp_dim": 8,
    },
    "SwinTransformer": {
        "width": 32, "depths": [1], "num_heads": [1], "window_size": 2, "patch_size": 4,
    },
    "BigTransfer": {"depths": [1], "width_factor": 1},
    "AlterNet": {
        "depths": [1], "widths": [8], "attention_depths": [0], "num_heads": [1],
        "stem": "cifar", "bottleneck": False,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("builder", "changes"),
    [
        ("VisionTransformer", {"depth": 1000, "width": 65536}),
        ("VisionTransformer", {"mlp_dim": 1_000_000, "depth": 1000}),
        ("VisionTransformer", {"num_classes": 1_000_000}),
        ("VisionTransformer", {"representation_size": 1_000_000}),
        ("VisionTransformer", {"patch_size": 1024, "image_size": [2048, 2048]}),
        ("MLPMixer", {"depth": 1000, "channels_mlp_dim": 1_000_000}),
        ("MLPMixer", {"tokens_mlp_dim": 1_000_000}),
        ("SwinTransformer", {"depths": [500, 500], "num_heads": [1, 1]}),
        ("SwinTransformer", {"width": 65536}),
        ("BigTransfer", {"width_factor": 1000}),
        ("BigTransfer", {"depths": [10] * 100}),
        ("AlterNet", {"widths": [65536]}),
    ],
    ids=str,
)
def test_a_model_that_cannot_be_in_the_file_is_not_built(
    tmp_path, monkeypatch, builder, changes
):
    kwargs = {"image_size": 8, "num_classes": 3, **BUILDERS[builder]}
    model = getattr(kerasvit, builder)(**kwargs)
    folder = kerasvit.save_pretrained(model, tmp_path)
    assert kerasvit.from_pretrained(folder).count_params() == model.count_params()
    config = json.loads((folder / "config.json").read_text())
    config["kerasvit"]["kwargs"].update(changes)
    (folder / "config.json").write_text(json.dumps(config))
    built = []
    monkeypatch.setattr(
        "kerasvit.models.loading.Loading.build", lambda *_: built.append(1)
    )
    with pytest.raises(CheckpointError, match="weights, and its configuration is of"):
        kerasvit.from_pretrained(folder)
    assert not built


@pytest.mark.parametrize(
    ("builder", "changes", "said"),
    [
        ("AlterNet", {"depths": [1000] * 2, "widths": [1] * 2}, "add up to at most"),
        (
            "VisionTransformer",
            {"depth": 10, "width": 1, "mlp_dim": 1},
            "tensors, and its config",
        ),
        (
            "AlterNet",
            {"depths": [10] * 90, "widths": [1] * 90},
            "tensors, and its config",
        ),
    ],
)
def test_many_small_blocks_that_are_not_in_the_file(tmp_path, builder, changes, said):
    kwargs = {"image_size": 8, "num_classes": 3, **BUILDERS[builder]}
    folder = kerasvit.save_pretrained(getattr(kerasvit, builder)(**kwargs), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["kerasvit"]["kwargs"].update(changes)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=said):
        kerasvit.from_pretrained(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"kerasvit": ' + b"9" * 5000 + b"}",
        b'{"a": "' + b"x" * 17_000_000 + b'"}',
        b"\xff\xfe",
        b"null",
    ],
    ids=("lists", "objects", "digits", "length", "bytes", "null"),
)
def test_json_that_is_made_to_do_harm(tmp_path, content):
    folder, _ = tiny(tmp_path)
    (folder / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="config.json"):
        kerasvit.from_pretrained(folder)


def test_of_a_name_that_is_twice_in_json_the_last_counts_and_is_checked(tmp_path):
    folder, config = tiny(tmp_path)
    text = json.dumps(config).replace('"depth": 1,', '"depth": 1, "depth": "many",')
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match="depth.*many"):
        kerasvit.from_pretrained(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("variant", ["ViTB16"]),
        ("variant", {}),
        ("origin", ["timm"]),
        ("format_version", 10**30),
        ("builder", "__import__"),
        ("preprocessing", {"size": [8, 8], "crop": "wide"}),
        ("preprocessing", {"size": [10**9, 8]}),
        ("preprocessing", {"size": [8, 8], "mean": [float("nan")] * 3}),
        ("preprocessing", {"size": [8, 8], "command": "rm"}),
        ("label_names", "ant"),
        ("label_names", ["ant", "bee", 3]),
        ("label_names", ["ant", "bee", ["cat"]]),
        ("label_names", ["ant"] * 1000),
        ("kwargs", {"name": "../../x"}),
        ("kwargs", {"epsilon": float("nan")}),
        ("kwargs", {"activation": "<script>"}),
        ("kwargs", {"normalization": {"mean": ["a"] * 3, "std": [1] * 3}}),
    ],
    ids=str,
)
def test_a_configuration_with_nonsense(tmp_path, key, value):
    folder, config = tiny(tmp_path)
    config["label_names"] = None
    said = config["kerasvit"]
    said[key] = {**said[key], **value} if key == "kwargs" else value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError):
        kerasvit.from_pretrained(folder)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("timm_swin", "mlp.fc1.weight"),
        ("hf_swin", "intermediate.dense.weight"),
        ("hf_swin", "patch_embeddings.projection.weight"),
        ("timm_vit", "patch_embed.proj.weight"),
    ],
)
def test_a_tensor_with_a_side_of_nothing(tmp_path, case, name):
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


def test_nan_and_infinity_are_refused(tmp_path):
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


def test_tensors_of_another_save_or_damaged_are_refused(tmp_path):
    folder, config = tiny(tmp_path / "one")
    another, _ = tiny(tmp_path / "another")
    content = bytearray((folder / "model.safetensors").read_bytes())
    shutil.copy(another / "model.safetensors", folder)
    with pytest.raises(CheckpointError, match="its hash is .* remove `weights_sha256`"):
        kerasvit.from_pretrained(folder)
    assert config["kerasvit"]["weights_dtype"] == "float32"
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="is not what config.json beside it is"):
        TinyViT(folder)
    config["kerasvit"]["weights_sha256"] = 7
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="no right weights_sha256"):
        kerasvit.from_pretrained(folder)


def test_weights_in_parts_are_not_looked_for(tmp_path):
    folder, _ = tiny(tmp_path)
    (folder / "model.safetensors").rename(tmp_path / "model-00001-of-00002.safetensors")
    parts = {"weight_map": {"a": "../../model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(parts))
    with pytest.raises(CheckpointError, match="has no model.safetensors"):
        kerasvit.from_pretrained(folder)


def test_pickles_and_keras_archives_are_refused(tmp_path):
    for name in ("model.bin", "model.pth", "model.keras", "model.h5"):
        (tmp_path / name).write_bytes(b"PK")
        with pytest.raises(CheckpointError, match="could run code"):
            kerasvit.from_pretrained(tmp_path / name)
