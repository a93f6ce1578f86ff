"""Loads a model of kerasvit, of a file of Keras or of keras.applications.

    found = any_model.load("ViTB16/sam", "teacher")
    inputs = found.prepare(pixels)      # from 0 to 255

A name is a folder or file of weights, hf://user/repository, VARIANT/NAME of public
weights, a .keras file, or a class of keras.applications, with its weights of ImageNet.
Adapters of LoRA are merged into their kernels.
"""

import dataclasses
import functools
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import keras

import kerasvit

# Values that a model expects: mean and deviation of colours from 0 to 1.
VALUES = {
    "pixels": ((0, 0, 0), (1 / 255, 1 / 255, 1 / 255)),
    "unit": ((0, 0, 0), (1, 1, 1)),
    "tf": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "torch": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # of ImageNet
}


@dataclasses.dataclass(frozen=True)
class Found:
    """A model that was loaded.

    Attributes:
        model: `keras.Model`.
        prepare: Function of pixels in [0, 255] that returns its inputs.
        values: What `prepare` does, for a message.
    """

    model: keras.Model
    prepare: Callable
    values: str


def load(
    name: str, setting: str, values: str | None = None, state: str | None = None
) -> Found:
    """Loads a model by its name.

    Args:
        name: As in the docstring of this file.
        setting: Option that gave the name, for messages.
        values: Key of `VALUES` for a .keras file whose model has no record.
        state: Which of several models in a file of weights, as for `from_pretrained`.

    Raises:
        ValueError: There is no such model, it cannot be loaded, its inputs are not
            images, or it is not known which values it expects.
    """
    is_file = name.endswith(".keras")
    if values and not is_file:
        raise ValueError(
            f"`{setting}_input` is for a .keras file. Leave it out: kerasvit and "
            f"keras.applications have the preprocessing of {name}."
        )
    of_keras = callable(getattr(keras.applications, name, None))
    if state and (is_file or of_keras):
        raise ValueError(
            "`state` chooses one of several models in a file of weights. Leave it out: "
            f"{name} is one model."
        )
    if of_keras:
        model = _application(name, setting)
        _check_inputs(model, name, setting)
        return Found(model, _preprocessing_of(name), f"as {name}.preprocess_input")
    if is_file:
        model = _load_keras(Path(os.path.expanduser(name)), setting)
    else:
        model = _load_kerasvit(name, setting, state)
    _check_inputs(model, name, setting)
    if getattr(model, "adapters", None):
        kerasvit.merge_lora(model)
    if hasattr(model, "preprocessing"):  # also of features
        if any(each.name == "normalization" for each in model.layers):
            return Found(model, normalization(*VALUES["pixels"]), "from 0 to 255")
        own = model.preprocessing
        return Found(model, normalization(own.mean, own.std), "as its record says")
    if values is None:
        option = setting.replace("_", "-")
        raise ValueError(
            f"`{setting}_input`: {name} does not say which values it expects. Give "
            f"--{option}-input pixels (0 to 255), unit (0 to 1), tf (-1 to 1) or torch "
            "(mean and deviation of ImageNet)."
        )
    option = f"--{setting.replace('_', '-')}-input {values}"
    return Found(model, normalization(*VALUES[values]), f"as {option}")


def check_one_label(model: keras.Model, name: str, setting: str) -> None:
    """Raises a `ValueError` for a model whose outputs are not logits of one label."""
    stated = (getattr(model, "record", None) or {}).get("problem_type")
    wrong = ""
    if model.output_shape[-1] == 1:
        wrong = "which has one output"
    if stated not in (None, "single_label_classification"):
        wrong = f"whose record states {stated!r} as `problem_type`"
    if wrong:
        raise ValueError(
            f"`{setting}`: a classifier of one label per image is needed. Received: "
            f"{name}, {wrong}."
        )


def _load_keras(path: Path, setting: str) -> keras.Model:
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"`{setting}`: {path} does not exist, or is not a .keras file."
        )
    try:
        model = keras.saving.load_model(path, compile=False)
    except TypeError as error:  # a class that this program does not define
        raise ValueError(
            f"`{setting}`: Keras cannot load {path}, maybe because of layers of "
            "classes that are defined elsewhere. Save a model of Keras's own layers. "
            f"Keras: {error!s:.300}"
        ) from error
    while isinstance(model, kerasvit.SAM):  # a trainer, maybe around another one
        model = model.model
    return model


def _check_inputs(model, name, setting):
    shape = getattr(model, "input_shape", None)  # a subclass has none
    is_image = isinstance(shape, tuple) and len(shape) == 4
    # Only models of kerasvit say how images of other channels are prepared.
    if not is_image or (shape[-1] != 3 and not hasattr(model, "preprocessing")):
        raise ValueError(
            f"`{setting}`: the inputs of {name} must be images (batch, height, width, "
            f"3). Received: {shape}."
        )


def _load_kerasvit(name: str, setting: str, state: str | None) -> keras.Model:
    variant, _, tag = name.partition("/")
    if tag and variant in kerasvit.list_models() and not Path(name).exists():
        return getattr(kerasvit, variant)(tag, state=state)
    if "://" not in name and not Path(os.path.expanduser(name)).exists():
        raise ValueError(
            f"`{setting}`: there is no file or folder {name} (working directory: "
            f"{Path.cwd()}), and no class of that name in keras.applications. Public "
            "weights are named as ViTB16/sam."
        )
    return kerasvit.from_pretrained(name, state=state)


def _application(name: str, setting: str) -> keras.Model:
    try:
        return getattr(keras.applications, name)(weights="imagenet")
    except Exception as error:  # which Keras raises after one of the network
        if not any(isinstance(e, OSError) for e in (error, error.__context__)):
            raise
        raise ValueError(
            f"`{setting}`: the weights of {name} cannot be downloaded: {error}. Give a "
            ".keras file of the model."
        ) from error


def _preprocessing_of(name: str):
    modules = vars(keras.applications).values()
    owner = next(
        m for m in modules if hasattr(m, name) and hasattr(m, "decode_predictions")
    )
    return functools.partial(owner.preprocess_input, data_format="channels_last")


def normalization(mean, std) -> keras.layers.Layer:
    """Returns a layer that maps pixels to (pixel / 255 - mean) / std."""
    scale = [1 / (255 * s) for s in std]
    offset = [-m / s for m, s in zip(mean, std, strict=True)]
    return kerasvit.layers.Rescaling(scale, offset, dtype="float32")
