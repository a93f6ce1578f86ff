"""The model that is exported, pixels to probabilities or a part of it, and its file."""

import dataclasses
import functools
import logging
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
from scoring.any_model import normalization
from scoring.candidates import Candidate
from scoring.outputs import are_probabilities

import kerasvit
from kerasvit.inspection import layers_in

from .formats import FORMATS
from .resizing import ResizeAndCrop

OPSET = 18  # of ONNX
PIXELS = (0.0, 255.0)
ANY = 2, 40, 50, 3  # an example of an image whose sizes are not fixed
HALVES = {"bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@dataclasses.dataclass(frozen=True)
class Served:
    """A model to export, and what it takes and returns.

    Attributes:
        model: Images (batch, height, width, channels) → outputs, float32: (batch, n),
            or features of several places.
        low, high: Range of its images' values.
        inputs: "photo", "pixels" or "normalized".
        outputs: "probabilities", "logits", "features", or "maps" (batch, height, width,
            channels).
        transform: Evaluation transform, whose size is the model's.
        calibration: That of its probabilities, or None.
    """

    model: keras.Model
    low: float
    high: float
    inputs: str
    outputs: str
    transform: kerasvit.Preprocessing
    calibration: kerasvit.Calibration | None = None


def served(
    candidate: Candidate, inputs: str, outputs: str, batch: int | None
) -> Served:
    """Returns the model with the normalisation before it and the softmax after it.

    Args:
        candidate: Loaded model.
        inputs: "photo", of any size; "pixels" from 0 to 255; or "normalized".
        outputs: "probabilities" or "logits"; without a head, features or maps.
        batch: Number of images; None: any.

    Raises:
        ValueError: The model itself normalises, or it has several outputs; photographs
            of a model whose images are no colours of 8 bits.
    """
    inner, transform = candidate.model, candidate.transform
    shape = tuple(inner.inputs[0].shape[1:])
    if len(inner.outputs) != 1:
        raise ValueError(
            "`model`: a file has one output, and the outputs of the model have the "
            f"shapes {[tuple(each.shape) for each in inner.outputs]}. Export each of "
            "them: kerasvit.features(model, layer) has that of one block."
        )
    image = _input(transform, shape, inputs, batch)
    x, (low, high) = image, PIXELS
    if inputs == "photo":
        x = ResizeAndCrop(transform.with_size(shape[:2]))(x)
    if inputs != "normalized" and candidate.normalize:
        x = normalization(transform.mean, transform.std)(x)
    elif inputs == "normalized":
        if not candidate.normalize:
            raise ValueError(
                "`inputs`: the model itself normalises, and takes pixels: leave "
                "--inputs out."
            )
        colours = [*zip(transform.mean, transform.std, strict=True)]
        ends = [(end - m) / s for end in (0, 1) for m, s in colours]
        low, high = min(ends), max(ends)
    x, calibration = inner(x), None
    if not candidate.has_head:
        outputs = "maps" if len(inner.output_shape) == 4 else "features"
    elif outputs == "probabilities":
        if calibration := candidate.calibration:
            scale = 1 / np.broadcast_to(calibration.temperature, x.shape[1:])
            scaling = scale.tolist(), calibration.offset or 0.0
            x = kerasvit.layers.Rescaling(*scaling, dtype="float32", name="scale")(x)
        x = probabilities(inner, x)
    # Layers in float32 follow one of 16 bits, and give the output its name.
    x = keras.layers.Activation("linear", dtype="float32", name=outputs)(x)
    transform = transform.with_size(shape[:2])
    known = inputs, outputs, transform, calibration
    return Served(keras.Model(image, x), low, high, *known)


def _input(transform, shape, inputs, batch):
    """Returns the input of the model that is exported."""
    if inputs != "photo":
        return keras.Input(shape, batch, "float32", name="image")
    if transform.channels != 3 or transform.value_range:
        raise ValueError(
            "`inputs`: photographs have three colours of 8 bits, and the model takes "
            f"{transform.channels} channels of values in "
            f"{transform.value_range or (0, 255)}. Leave --inputs out."
        )
    return keras.Input((None, None, 3), batch, "uint8", name="image")


def precision(model: keras.Model) -> str:
    """Returns "int8", "int4" or "float8" of quantised kernels, or the dtype policy."""
    layers = [each for each in layers_in(model) if each.weights]
    if modes := {each.quantization_mode for each in layers} - {None}:
        return min(modes)
    halves = [each.compute_dtype for each in layers if each.compute_dtype in HALVES]
    return HALVES[halves[0]] if halves else "float32"


def probabilities(inner: keras.Model, outputs):
    """Returns the probabilities of logits as `kerasvit.classify` does.

    Probabilities are returned as they are.
    """
    pixels = np.random.default_rng(0).uniform(*PIXELS, (2, *inner.input_shape[1:]))
    found = np.asarray(inner.predict(pixels.astype("float32"), verbose=0), "float32")
    if are_probabilities(found):
        return outputs
    last = inner
    while getattr(last, "layers", None):
        last = last.layers[-1]
    if getattr(last, "activation", None) is keras.activations.sigmoid:
        return outputs
    stated = (getattr(inner, "record", None) or {}).get("problem_type")
    if stated == "regression":
        raise ValueError(
            "`outputs`: the model is a regression and has no probabilities. Give "
            "--outputs logits."
        )
    several = stated == "multi_label_classification" or found.shape[1] == 1
    name = "sigmoid" if several else "softmax"
    return keras.layers.Activation(name, dtype="float32", name=name)(outputs)


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
    """Writes OpenVINO's format, from a SavedModel or from torch.export.

    In Keras's own export intermediate results are outputs, too, on TensorFlow and JAX;
    on PyTorch it traces the model twice and compares, which fails in hybrids.
    """
    import openvino

    if keras.backend.backend() == "torch":
        found = openvino.convert_model(_exported(model))
    else:
        with tempfile.TemporaryDirectory() as folder:
            _savedmodel(model, Path(folder, "saved_model.pb"))
            found = openvino.convert_model(folder)
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
            opset_version=OPSET,
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

    image = model.inputs[0]
    shape = [given or of_any for given, of_any in zip(image.shape, ANY, strict=True)]
    example = torch.zeros(
        shape,
        dtype=getattr(torch, image.dtype),
        device=keras.ops.zeros(()).device,
    )
    sides = zip(image.shape, ("batch", "height", "width", "channels"), strict=True)
    varying = {
        i: torch.export.Dim(name, min=1)
        for i, (given, name) in enumerate(sides)
        if given is None
    }
    return Program(), (example,), {"image": varying} if varying else None


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
