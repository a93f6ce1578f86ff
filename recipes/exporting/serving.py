"""The model that is exported: pixels to probabilities, or a part of that."""

import dataclasses

import keras
import numpy as np
from scoring.candidates import Candidate

import kerasvit
from kerasvit.inspection import layers_in

PIXELS = (0.0, 255.0)
HALVES = {"bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


@dataclasses.dataclass(frozen=True)
class Served:
    """A model to export, and what it takes and returns.

    Attributes:
        model: Images (batch, height, width, 3) → outputs (batch, n), float32.
        low, high: Range of its images' values.
        inputs: "pixels" or "normalized".
        outputs: "probabilities", "logits" or "features".
        transform: Evaluation transform, whose size is the model's.
    """

    model: keras.Model
    low: float
    high: float
    inputs: str
    outputs: str
    transform: kerasvit.Preprocessing


def served(
    candidate: Candidate, inputs: str, outputs: str, batch: int | None
) -> Served:
    """Returns the model with the normalisation before it and the softmax after it.

    Args:
        candidate: Loaded model.
        inputs: "pixels" from 0 to 255, or "normalized".
        outputs: "probabilities" or "logits"; without a head, features.
        batch: Number of images; None: any.

    Raises:
        ValueError: The model itself normalises, or it has several outputs.
    """
    inner, transform = candidate.model, candidate.transform
    size = tuple(inner.inputs[0].shape[1:3])
    if len(inner.outputs) != 1 or len(inner.output_shape) != 2:
        raise ValueError(
            "`model`: the model must have one output (batch, n). Its outputs have the "
            f"shapes {[tuple(each.shape) for each in inner.outputs]}."
        )
    image = keras.Input((*size, 3), batch_size=batch, name="image", dtype="float32")
    x, (low, high) = image, PIXELS
    if inputs == "pixels" and candidate.normalize:
        x = normalization(transform)(x)
    elif inputs == "normalized":
        if not candidate.normalize:
            raise ValueError(
                "`inputs`: the model itself normalises, and takes pixels: leave "
                "--inputs out."
            )
        ends = [(end - m) / s for end in (0, 1) for m, s in _colours(transform)]
        low, high = min(ends), max(ends)
    x = inner(x)
    if not candidate.has_head:
        outputs = "features"
    elif outputs == "probabilities":
        x = probabilities(inner, x)
    # Layers in float32 follow one of 16 bits, and give the output its name.
    x = keras.layers.Activation("linear", dtype="float32", name=outputs)(x)
    transform = transform.with_size(size)
    return Served(keras.Model(image, x), low, high, inputs, outputs, transform)


def precision(model: keras.Model) -> str:
    """Returns "int8", "int4" or "float8" of quantised kernels, or the dtype policy."""
    layers = [each for each in layers_in(model) if each.weights]
    if modes := {each.quantization_mode for each in layers} - {None}:
        return min(modes)
    halves = [each.compute_dtype for each in layers if each.compute_dtype in HALVES]
    return HALVES[halves[0]] if halves else "float32"


def normalization(transform: kerasvit.Preprocessing) -> keras.layers.Layer:
    """Returns a layer that maps pixels to (pixel / 255 - mean) / std."""
    scale = [1 / (255 * s) for _, s in _colours(transform)]
    offset = [-m / s for m, s in _colours(transform)]
    layer = kerasvit.layers.Rescaling
    return layer(scale, offset, dtype="float32", name="normalization")


def probabilities(inner: keras.Model, outputs):
    """Returns the probabilities of logits as `kerasvit.classify` does.

    Probabilities are returned as they are.
    """
    pixels = np.random.default_rng(0).uniform(*PIXELS, (2, *inner.input_shape[1:]))
    found = np.asarray(inner.predict(pixels.astype("float32"), verbose=0), "float32")
    if (found >= 0).all() and np.allclose(found.sum(axis=1), 1, atol=1e-3):
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


def _colours(transform):
    return [*zip(transform.mean, transform.std, strict=True)]
