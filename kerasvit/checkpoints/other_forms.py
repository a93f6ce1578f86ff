"""Files and folders of known forms that are not read: what they are, what to do.

Content tells most forms, so that a renamed file is named as what it is.
"""

import re
from collections.abc import Collection
from pathlib import Path

from .open_file import CheckpointError

_ORIGINAL = "Its weights are changed: give the file from which it was converted."
# (what it is, what to do); FILE, FOLDER and PREFIX stand for paths.
_KERAS = (
    "a model of Keras",
    "Open it with keras.models.load_model(FILE, compile=False), after "
    "`import kerasvit`.",
)
_FLAX = (
    "weights of Flax in msgpack",
    "Give the .safetensors or .bin file of the same weights. Version 4 of transformers "
    "converts its own: CLASS.from_pretrained(FOLDER, from_flax=True).save_pretrained("
    '"converted"), with the class in config.json.',
)
_ONNX = ("a graph of ONNX", f"{_ORIGINAL} onnxruntime.InferenceSession(FILE) runs it.")
_TFLITE = (
    "a graph of LiteRT (TFLite)",
    f"{_ORIGINAL} ai_edge_litert.interpreter.Interpreter(FILE) runs it.",
)
_OPENVINO = (
    "a graph of OpenVINO",
    f"{_ORIGINAL} openvino.Core().read_model(FILE) opens it.",
)
_GGUF = ("a file of GGUF, of llama.cpp", _ORIGINAL)
_CORE_ML = ("a model of Core ML", _ORIGINAL)
_TORCHSCRIPT = (
    "a zip archive of TorchScript",
    "In PyTorch, save its weights: "
    'torch.save(torch.jit.load(FILE).state_dict(), "weights.pth").',
)
_EXPORTED = (
    "a program of torch.export",
    "In PyTorch, save its weights: "
    'torch.save(torch.export.load(FILE).state_dict, "weights.pth").',
)
_TENSORFLOW = (
    "a part of a TensorFlow checkpoint",
    "Its names are those of the program that wrote it: load it there, and save the "
    "weights as .safetensors or .npz. tf.train.list_variables(PREFIX) lists them.",
)
_SAVED_MODEL = (
    "a SavedModel of TensorFlow",
    "Give the weights from which it was exported. tf.saved_model.load(FOLDER) runs it.",
)
_ORBAX = (
    "a checkpoint of Orbax",
    "Its names are those of the program that wrote it: load it there, and save the "
    "weights as .safetensors or .npz.",
)
_GZIP = ("compressed by gzip", "Unpack it: tar -xzf of a .tar.gz, else gunzip.")
_ARRAY = ("one array of NumPy", "Give the file of all weights.")

# By the first bytes. A map in msgpack begins with its size and a text; a model of ONNX
# with its version and the name of a program.
_STARTS = {
    rb"GGUF": _GGUF,
    rb"....TFL3": _TFLITE,
    rb"\x1f\x8b": _GZIP,
    rb"\x93NUMPY": _ARRAY,
    rb"(<\?xml[^>]*>\s*)?<net ": _OPENVINO,
    rb"[\x81-\x8f][\xa0-\xbf\xd9-\xdb]|\xde..[\xa0-\xbf\xd9-\xdb]": _FLAX,
    rb"\x08[\x01-\x20]\x12[\x01-\x40][\w./ -]": _ONNX,
}
# By the end of the name.
REFUSED = {
    ".keras": _KERAS, ".msgpack": _FLAX, ".onnx": _ONNX, ".tflite": _TFLITE,
    ".gguf": _GGUF, ".xml": _OPENVINO, ".mlmodel": _CORE_ML, ".mlpackage": _CORE_ML,
    ".pt2": _EXPORTED, ".index": _TENSORFLOW, ".pb": _SAVED_MODEL,
}  # fmt: skip
# By a file in a folder.
_FOLDERS = {
    "saved_model.pb": _SAVED_MODEL, "_CHECKPOINT_METADATA": _ORBAX, "_METADATA": _ORBAX,
    "manifest.ocdbt": _ORBAX, "Manifest.json": _CORE_ML, "checkpoint": _TENSORFLOW,
}  # fmt: skip
# What a file of a TensorFlow checkpoint has after the name of the checkpoint.
_PART = re.compile(r"(\.index|\.data-\d{5}-of-\d{5}|/checkpoint)$")


def check_form(path: Path) -> bytes:
    """Raises a `CheckpointError` for a file of a form that is not read.

    Args:
        path: Path of the file.

    Returns:
        Its first bytes; b"" if it does not exist.
    """
    if not path.is_file():
        if path.with_name(f"{path.name}.index").is_file():
            raise _refusal(path, _TENSORFLOW)
        return b""
    try:
        with path.open("rb") as file:
            start = file.read(512)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    if start[8:9] == b"{":  # a header of safetensors after any 8 bytes
        return start
    known = [form for begins, form in _STARTS.items() if re.match(begins, start, re.S)]
    if path.suffix == ".bin" and path.with_suffix(".xml").is_file():
        known = [_OPENVINO]
    if by_name := _by_name(path.name):
        # The first bytes of Core ML are like ONNX's.
        known = [by_name] if by_name is _CORE_ML else known or [by_name]
    if known:
        raise _refusal(path, known[0])
    return start


def check_members(path: Path, names: Collection[str]) -> None:
    """Raises a `CheckpointError` for an archive of a form that is not read.

    Args:
        path: Path of the archive, or of an HDF5 file.
        names: Names of its members, or arrays.
    """
    inside = {name.partition("/")[2] for name in names}
    whole = any(name.startswith("model_weights/") for name in names)  # of HDF5
    if whole or {"config.json", "model.weights.h5"} <= set(names):
        raise _refusal(path, _KERAS)
    if "archive_format" in inside:
        raise _refusal(path, _EXPORTED)
    if "constants.pkl" in inside:
        raise _refusal(path, _TORCHSCRIPT)


def form_of_folder(folder: Path, names: Collection[str]) -> str | None:
    """Returns what a folder of these files holds, and what to do; or None."""
    for name in names:
        if form := _FOLDERS.get(name) or _by_name(name):
            return f"holds {name}, {_sentence(folder / name, form)}"
    return None


def _by_name(name: str) -> tuple[str, str] | None:
    return _TENSORFLOW if _PART.search(name) else REFUSED.get(Path(name).suffix)


def _refusal(path: Path, form: tuple[str, str]) -> CheckpointError:
    return CheckpointError(f"{path} is {_sentence(path, form)}")


def _sentence(path: Path, form: tuple[str, str]) -> str:
    what, instead = form
    paths = {"FILE": str(path), "FOLDER": str(path.parent)}
    paths["PREFIX"] = _PART.sub("", path.as_posix())
    found = re.sub("|".join(paths), lambda name: repr(paths[name[0]]), instead)
    return f"{what}, which is not read. {found}"
