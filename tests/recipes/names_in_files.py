"""The names of classes in exported files, read as EXPORT.md says."""

import zipfile

from exporting.formats import FORMATS


def names_in(name, folder):
    """Returns the text in an exported file: a name in a line."""
    path = folder / FORMATS[name].file
    if name == "onnx":
        import onnxruntime

        model = onnxruntime.InferenceSession(path).get_modelmeta()
        return model.custom_metadata_map["labels"]
    if name == "openvino":
        import openvino

        return openvino.Core().read_model(path).get_rt_info("labels").astype(str)
    if name == "litert":
        return zipfile.ZipFile(path).read("labels.txt").decode()
    if name == "torch":
        import torch

        found = {"labels.txt": ""}
        torch.export.load(path, extra_files=found)
        return found["labels.txt"]
    return (folder / "assets.extra" / "labels.txt").read_text("utf-8")
