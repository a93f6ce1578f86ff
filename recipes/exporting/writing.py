"""Writes a model in each format."""

import functools
import logging
import warnings
from pathlib import Path

import keras

from .formats import FORMATS


def write(model: keras.Model, name: str, folder: Path) -> None:
    """Writes a model into a folder, for the batch of its input: one size, or any.

    Args:
        model: Model of one input, named "image".
        name: Key of `FORMATS`, one that the backend writes.
        folder: Empty folder.
    """
    path = folder / FORMATS[name].file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the converters, about their own work
        logging.getLogger("torch").setLevel(logging.ERROR)
        _WRITERS[name](model, path)


def _savedmodel(model, path):
    archive, serve = (
        keras.export.ExportArchive(),
        functools.partial(model, training=False),
    )
    if keras.backend.backend() == "jax":
        archive.track(model)
    # On TensorFlow the variables of tracked models would be in the file twice.
    archive.add_endpoint("serve", serve, input_signature=[_signature(model)])
    archive.write_out(str(path.parent), verbose=False)


def _litert(model, path):
    import tensorflow as tf

    # Only the operations that every LiteRT runtime has.
    builtins = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}
    _export(model, path, "litert", target_spec=builtins)


def _openvino(model, path):
    """Writes OpenVINO's format; on PyTorch from torch.export.

    There Keras traces the model twice and compares, which fails in hybrids.
    """
    if keras.backend.backend() != "torch":
        return _export(model, path, "openvino")
    import openvino

    found = openvino.convert_model(_exported(model))
    openvino.save_model(found, path, compress_to_fp16=False)


def _torch(model, path):
    import torch

    torch.export.save(_exported(model), path)


def _exported(model):
    import torch

    program, example, dynamic = _program(model)
    with torch.no_grad():
        return torch.export.export(program, example, dynamic_shapes=dynamic)


def _onnx(model, path):
    """Writes ONNX with the exporter of torch.export.

    Keras calls the older one of TorchScript, which fails at a layer normalisation of
    batches of any size.
    """
    import torch
    from onnxscript import opset18

    def squeeze(x, dim: int):  # the rule of onnxscript 0.7 forgets the condition
        return opset18.Squeeze(x, [dim]) if x.shape[dim] == 1 else opset18.Identity(x)

    program, example, dynamic = _program(model)
    with torch.no_grad():
        exported = torch.onnx.export(
            program,
            example,
            dynamo=True,
            dynamic_shapes=dynamic,
            input_names=["image"],
            output_names=[model.layers[-1].name],
            custom_translation_table={torch.ops.aten.squeeze.dim: squeeze},
            verbose=False,
        )
    exported.save(path)


def _program(model):
    """Returns a module of PyTorch, its example inputs, and the sizes that vary.

    In Keras's own exports the weights are in the file twice: as parameters that nothing
    uses, and as constants.
    """
    import torch

    class Program(torch.nn.Module):
        def forward(self, image):
            return model(image, training=False)

    batch, *shape = model.inputs[0].shape
    example = torch.zeros([batch or 2, *shape], device=keras.ops.zeros(()).device)
    varying = None if batch else {"image": {0: torch.export.Dim("batch", min=1)}}
    return Program(), (example,), varying


def _export(model, path, kind, **options):
    signature = [_signature(model)]
    options = {"input_signature": signature, "verbose": False, **options}
    model.export(str(path), format=kind, **options)


def _signature(model):
    image = model.inputs[0]
    return keras.InputSpec(shape=image.shape, dtype=image.dtype, name="image")


_WRITERS = {
    "savedmodel": _savedmodel,
    "litert": _litert,
    "onnx": _onnx,
    "openvino": _openvino,
    "torch": _torch,
}
