"""Known forms that are not read: named by their content, with a command that works."""

import gzip
import re
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

import kerasvit
from kerasvit.checkpoints import CheckpointError
from kerasvit.checkpoints.reader import Reader
from tests.checkpoints import torch_files
from tests.once import on_last_backend

pytestmark = on_last_backend

ONNX = b"\x08\x08\x12\x07pytorch\x1a\x062.13.0:\xd0\x01"
CONTENTS = {  # the first bytes of files of these libraries
    "GGUF": b"GGUF\x03\x00\x00\x00",
    "TFLite": b"\x1c\x00\x00\x00TFL3\x14\x00 ",
    "gzip": gzip.compress(b"x"),
    "one array": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'",
    "OpenVINO": b'<?xml version="1.0"?>\n<net name="Model0" version="11">',
    "Flax": b"\x82\xabTransformer\x81\xa1a\x81\xa6kernel\xc7&\x01\x93",
    "ONNX": ONNX,
}
NAMES = {
    "x.gguf": "GGUF", "x.tflite": "TFLite", "x.onnx": "ONNX", "x.msgpack": "Flax",
    "x.keras": "a model of Keras", "x.mlmodel": "Core ML", "x.pt2": "torch.export",
    "x.xml": "OpenVINO", "x.ckpt.index": "TensorFlow checkpoint",
    "x.ckpt.data-00000-of-00002": "TensorFlow checkpoint", "x.pb": "SavedModel",
}  # fmt: skip
FOLDERS = {
    "saved_model.pb": r"SavedModel.*tf\.saved_model\.load",
    "_CHECKPOINT_METADATA": "Orbax",
    "manifest.ocdbt": "Orbax",
    "Manifest.json": "Core ML",
    "model.onnx": "ONNX",
    "flax_model.msgpack": r"Flax.*from_flax=True",
    "model.ckpt-100.index": "TensorFlow checkpoint",
}


def error_of(path):
    with pytest.raises(CheckpointError, match="which is not read") as error:
        kerasvit.from_pretrained(path)
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("form", CONTENTS)
@pytest.mark.parametrize("name", ["weights.safetensors", "x.pth", "x.dat"])
def test_content_tells_a_form_whatever_the_name(form, name, tmp_path):
    (tmp_path / name).write_bytes(CONTENTS[form])
    assert form in error_of(tmp_path / name)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_tells_a_form_where_content_does_not(name, tmp_path):
    (tmp_path / name).write_bytes(b"\x00" * 20)
    assert NAMES[name] in error_of(tmp_path / name)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder(name, tmp_path):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"holds {name}, .*{FOLDERS[name]}"):
        kerasvit.from_pretrained(tmp_path)


def test_a_prefix_of_tensorflow(tmp_path):
    for name in ("model.ckpt.index", "model.ckpt.data-00000-of-00001"):
        (tmp_path / name).write_bytes(b"")
    message = error_of(tmp_path / "model.ckpt")
    prefix = repr((tmp_path / "model.ckpt").as_posix())
    assert f"tf.train.list_variables({prefix})" in message
    for name in ("model.ckpt.index", "model.ckpt.data-00000-of-00001"):
        assert f"list_variables({prefix})" in error_of(tmp_path / name)


def test_weights_of_openvino_are_told_by_the_graph_beside_them(tmp_path):
    (tmp_path / "x.xml").write_bytes(CONTENTS["OpenVINO"])
    (tmp_path / "x.bin").write_bytes(b"\x00" * 64)
    assert "OpenVINO" in error_of(tmp_path / "x.bin")


@pytest.mark.parametrize("length", [0x1F8B, 0x82AB, 0x0808, 0x129393, 0x46554747])
def test_headers_of_safetensors_are_no_other_form(length, tmp_path):
    """Their first bytes are a length, which may be those of any form."""
    path = tmp_path / "x.safetensors"
    content = length.to_bytes(8, "little") + b"{" + b" " * 20
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="cut short, damaged"):
        Reader(path)
    save_file({"a": np.ones(2, "float32")}, path)
    assert Reader(path).shapes == {"a": (2,)}


@pytest.mark.slow
def test_torchscript_and_torch_export(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    model, example = torch.nn.Linear(3, 2), torch.ones(1, 3)
    torch.jit.save(torch.jit.trace(model, example), tmp_path / "script.pt")
    torch.export.save(torch.export.export(model, (example,)), tmp_path / "export.pt2")
    shutil.copy(tmp_path / "export.pt2", tmp_path / "renamed.pt")
    for name in ("script.pt", "export.pt2", "renamed.pt"):
        message = error_of(tmp_path / name)
        exec(message[message.index("torch.save(") : -1], {"torch": torch})
        reader = Reader(tmp_path / "weights.pth")
        assert reader.shapes == {"weight": (2, 3), "bias": (2,)}
        right = model.weight.detach().numpy()
        np.testing.assert_array_equal(reader["weight"], right)


@pytest.mark.parametrize("name", ["x.keras", "renamed.pth", "whole.h5"])
def test_whole_models_of_keras(name, tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    kind = ".h5" if name.endswith(".h5") else ".keras"
    model.save(tmp_path / f"x{kind}")
    if name != f"x{kind}":
        shutil.move(tmp_path / f"x{kind}", tmp_path / name)
    message = error_of(tmp_path / name)
    command = re.search(r"keras\.models\.load_model\(.*?\)", message)[0]
    if name != "renamed.pth":  # Keras goes by the name
        assert eval(command, {"keras": keras}).count_params() == 8


@pytest.mark.parametrize("key", ["", "model"])
def test_arrays_of_numpy_among_tensors(key, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    right = torch_files.golden()
    state = torch_files.tensors(right)
    state["head.bias"], state["epoch"] = right["head.bias"], 3
    path = torch_files.write(tmp_path / "x.pth", {key: state} if key else state)
    name = f"{key}.head.bias".lstrip(".")
    with pytest.raises(CheckpointError, match=rf"numpy.* at {name}, ") as error:
        kerasvit.ViTS16(path)
    message = str(error.value)
    exec(message[message.index("import torch") :], {})
    found = Reader(tmp_path / "weights.pth")
    assert found.shapes == {name: array.shape for name, array in right.items()}
    np.testing.assert_array_equal(found["head.bias"], right["head.bias"])
