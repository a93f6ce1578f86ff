"""Writes the names of classes into an exported file, one in a line."""

import zipfile
from pathlib import Path

from scoring.candidates import Candidate

from .formats import FORMATS

KEY = "labels"  # of ONNX's metadata and OpenVINO's `rt_info`
FILE = "labels.txt"  # in a SavedModel, and within a file of LiteRT and torch.export


def names(candidate: Candidate) -> list[str] | None:
    """Returns the names of a model's classes; None if it has none."""
    return candidate.label_names if candidate.has_head else None


def write(name: str, folder: Path, candidate: Candidate) -> None:
    """Writes the names of class 0, 1, … into the file of an export, and beside it.

    Args:
        name: Key of `FORMATS`.
        folder: Folder of the export.
        candidate: Model, of whose names spaces and line breaks become one space.
    """
    lines = [" ".join(each.split()) for each in names(candidate) or []]
    if lines:
        (folder / FILE).write_text("\n".join([*lines, ""]), "utf-8")
        _WRITERS[name](folder / FORMATS[name].file, "\n".join(lines))


def _onnx(path, text):
    import onnx

    model = onnx.load(path)
    onnx.helper.set_model_props(model, {KEY: text})
    onnx.save(model, path)


def _openvino(path, text):
    import openvino

    # It reads the weights while it is alive: the new file cannot take their place.
    model = openvino.Core().read_model(path)
    model.set_rt_info(text, KEY)
    new = path.with_name("named.xml")
    openvino.save_model(model, new, compress_to_fp16=False)
    del model
    for suffix in (".xml", ".bin"):
        new.with_suffix(suffix).replace(path.with_suffix(suffix))


def _zipped(path, text):
    """Appends an archive, as the metadata of LiteRT files."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(FILE, text)


def _torch(path, text):
    import torch

    program = torch.export.load(path)
    torch.export.save(program, path, extra_files={FILE: text})


def _savedmodel(path, text):
    extra = path.parent / "assets.extra"  # as of TensorFlow Serving
    extra.mkdir()
    (extra / FILE).write_text(text, "utf-8")


_WRITERS = {
    "savedmodel": _savedmodel,
    "litert": _zipped,
    "onnx": _onnx,
    "openvino": _openvino,
    "torch": _torch,
}
