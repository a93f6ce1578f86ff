"""Malicious text and numbers for terminals, UTF-8 and NumPy."""

import json
import os
import struct
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT

pytestmark = [on_last_backend, pytest.mark.slow]

ESCAPES = (
    "\x1b[31mred\x07\nnext\x9b\u202e"  # colours, a bell, a line, C1, right to left
)
PIPE = pytest.param(
    "pipe", marks=pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="of POSIX")
)
HALF = "a\ud800"  # of a surrogate pair


@pytest.fixture
def folder(tmp_path):
    return kerasvit.save_pretrained(
        TinyViT(image_size=8, num_classes=3), tmp_path / "a"
    )


def configure(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def error_message(weights, load=TinyViT):
    """Message of the `ValueError`, which must be printable."""
    with pytest.raises(ValueError) as caught:
        load(weights)
    assert not isinstance(caught.value, UnicodeError)
    assert str(caught.value).replace("\n", "").isprintable()
    return str(caught.value)


def test_names_of_tensors(folder):
    path = folder / "model.safetensors"
    configure(folder, lambda config: config["kerasvit"].pop("weights_sha256"))
    tensors = load_file(path)
    bias = tensors["head.bias"]
    for names in ([ESCAPES], [ESCAPES, f"module.{ESCAPES}"]):
        save_file({**tensors, **dict.fromkeys(names, bias)}, path)
        assert r"\x1b[31mred\x07\nnext\x9b\u202e" in error_message(folder)
    save_file({ESCAPES: bias}, path)
    assert r"\x1b[31mred\x07\nnext" in error_message(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.update(label_names=[ESCAPES]),
        lambda config: config["kerasvit"].update(variant=ESCAPES),
        lambda config: config["kerasvit"].update(builder=ESCAPES),
        lambda config: config["kerasvit"].update(origin=ESCAPES),
        lambda config: config["kerasvit"]["kwargs"].update({ESCAPES: 1}),
        lambda config: config["kerasvit"]["kwargs"].update(activation=ESCAPES),
        lambda config: config["kerasvit"]["preprocessing"].update({ESCAPES: 1}),
        lambda config: config["kerasvit"].update(base=ESCAPES),
        lambda config: (config.pop("kerasvit"), config.update(architecture=ESCAPES)),
        lambda config: (
            config.pop("kerasvit"),
            config.update(architecture=f"vit_{ESCAPES}"),
        ),
        lambda config: (config.pop("kerasvit"), config.update(model_args={ESCAPES: 1})),
        lambda config: (
            config.pop("kerasvit"),
            config.update(model_args={"num_heads": ESCAPES}),
        ),
    ],
    ids=range(12),
)
def test_texts_of_a_configuration_are_escaped(folder, change):
    configure(folder, change)
    for load in (TinyViT, kerasvit.from_pretrained):
        assert "\nnext" not in error_message(folder, load)


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.update(label_names=["a", HALF, "c"]),
        lambda config: config["kerasvit"].update(variant=HALF),
        lambda config: config["kerasvit"].update(
            base={"source": HALF, "license": None}
        ),
        lambda config: config["kerasvit"]["kwargs"].update({HALF: 1}),
    ],
    ids=range(4),
)
def test_half_of_a_surrogate_pair_in_a_configuration(folder, change):
    configure(folder, change)
    assert "not Unicode" in error_message(folder)


@pytest.mark.parametrize("key", ["label_names", "license", "name", "datasets", "card"])
def test_half_of_a_surrogate_pair_in_an_argument(folder, key):
    many = {"label_names": ["a", HALF, "c"], "datasets": [HALF]}
    model = kerasvit.from_pretrained(folder)
    listing = sorted(folder.iterdir())
    arguments = {key: many.get(key, HALF)}
    save = lambda to: kerasvit.save_pretrained(model, to, **arguments)  # noqa: E731
    assert f"`{key}` must be text" in error_message(folder, save)
    assert sorted(folder.iterdir()) == listing


def test_a_folder_whose_name_is_no_text(folder, tmp_path):
    path = tmp_path / "b\udc80"
    try:
        path.mkdir()
    except (OSError, UnicodeError):
        pytest.skip("names of this file system are text")
    kerasvit.save_pretrained(kerasvit.from_pretrained(folder), path)
    kerasvit.from_pretrained(path)
    (path / "config.json").write_text("[]")
    error_message(path)


@pytest.mark.parametrize(
    "path",
    ["a\0b", "a\0b.npz", HALF, f"{HALF}.npz", "x" * 5000, "~nobody_of_this_name/a"],
    ids=range(6),
)
def test_paths_that_are_none(path):
    for load in (TinyViT, kerasvit.from_pretrained):
        error_message(path, load)


def with_header(folder, shape, descr="<f4", data=bytes(12)):
    """An .npz of a model's tensors, with another header for the last one's bias."""
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    start = repr(header).encode()
    start += b" " * (117 - len(start) % 64) + b"\n"
    path = folder / "tensors.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in load_file(folder / "model.safetensors").items():
            with archive.open(f"{name}.npy", "w") as member:
                if name != "head.bias":
                    np.lib.format.write_array(member, array)
                    continue
                member.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(start)))
                member.write(start + data)
    return path


@pytest.mark.parametrize(
    ("shape", "descr"),
    [
        ((3, True), "<f4"), ((True, 3), "<f4"), ((-1, -3), "<f4"), ((3.0,), "<f4"),
        ((10**30,), "<f4"), ((3,), ("<f4", (1,))), ((3,), [("a", "<f4")]),
        ((1,), ("<f4", (3,))), ((3, 1), "<f4"), ((), "<f4"), ((3,), ESCAPES),
        ((10**30, 0), "<f4"), ((None,), "<f4"), (3, "<f4"), (ESCAPES, "<f4"),
        ((3,), "<U1"), ((3,), "<i4"), ((3,), "|O"), ((3,), "|V4"),
    ],
    ids=str,
)  # fmt: skip
def test_headers_of_arrays(folder, shape, descr):
    error_message(with_header(folder, shape, descr))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["folder", PIPE, "loop", "broken link"])
def test_paths_that_are_not_files_raise(folder, name, kind):
    path = folder / name
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(name if kind == "loop" else "nothing")
    for load in (TinyViT, kerasvit.from_pretrained):
        assert name in error_message(folder, load)
