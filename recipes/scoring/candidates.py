"""Loads the models to score."""

import dataclasses
import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
from scoring import any_model

import kerasvit
from kerasvit import imagenet_names
from kerasvit.inspection import layers_in

# Transforms of models that do not state theirs: of images that
# `keras.utils.image_dataset_from_directory` reads, and of keras.applications.
OF_KERAS = {"crop": 1.0, "mode": "squash", "kernel": "bilinear", "antialias": False}
OF_APPLICATIONS = {"crop": 0.875}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A model to score.

    Attributes:
        name: Name in the tables.
        model: `keras.Model`, images of `transform` → logits or probabilities.
        transform: Evaluation transform.
        normalize: Whether the transform normalises; else the model takes pixels.
        label_names: Names of its classes; None if they are unknown.
        weights: SHA-256 of its weights.
    """

    name: str
    model: keras.Model
    transform: kerasvit.Preprocessing
    normalize: bool
    label_names: list[str] | None
    weights: str

    def outputs(self, predict, images) -> np.ndarray:
        """Returns the model's outputs for images, by an `outputs.Predictor`."""
        return predict(self.model, images, self.transform, self.normalize)

    @property
    def has_head(self) -> bool:
        """Whether it returns logits or probabilities, and not features."""
        record = getattr(self.model, "record", None)
        is_headless = record and record["kwargs"].get("num_classes") == 0
        return not is_headless and len(self.model.output_shape) == 2

    @property
    def task(self) -> str:
        """ "multilabel" if an image may have several labels, else "single_label"."""
        record = getattr(self.model, "record", None) or {}
        several = record.get("problem_type") == "multi_label_classification"
        return "multilabel" if several else "single_label"

    @property
    def passes(self) -> int:
        """How often the model runs for an image."""
        return 1

    @property
    def calibration(self) -> kerasvit.Calibration | None:
        """Its calibration, of `kerasvit.calibrate`, unless the model has changed."""
        return kerasvit.Calibration.of(self.model, needed=False)

    def how(self) -> dict:
        """Returns how its images are prepared, which decides about the numbers."""
        return {"transform": self.transform.to_config()}

    @property
    def classes(self) -> int:
        """Number of its classes."""
        return self.model.output_shape[-1]


def load_all(
    names: Sequence[str],
    values: str | None = None,
    image_size: Sequence[int] | None = None,
    headless: bool = False,
    state: str | None = None,
) -> list[Candidate]:
    """Loads several models; those whose short names are equal keep their whole names.

    Raises:
        ValueError: As for `load`; or a model is given twice.
    """
    if len(set(names)) < len(names):
        raise ValueError(f"`models`: each model once. Received: {', '.join(names)}.")
    # Models of kerasvit beside .keras files have their own preprocessing.
    files = [name for name in names if name.endswith(".keras")] or names
    found = [
        load(name, values if name in files else None, image_size, headless, state)
        for name in names
    ]
    for name, each in zip(names, found, strict=True):
        if not headless and each.task == "single_label":
            any_model.check_one_label(each.model, name, "models")
    counts = Counter(each.name for each in found)
    return [
        dataclasses.replace(each, name=name) if counts[each.name] > 1 else each
        for name, each in zip(names, found, strict=True)
    ]


def task_of(models: Sequence[Candidate]) -> str:
    """Returns the task of the models.

    Raises:
        ValueError: Some have one label per image, and some several.
    """
    tasks = {each.task for each in models}
    if len(tasks) > 1:
        text = ", ".join(f"{each.name} ({each.task})" for each in models)
        raise ValueError(
            f"`models` must have one label per image, or several. Received: {text}. "
            "Give them in separate commands."
        )
    return tasks.pop()


def trained_share(names: Sequence[str]) -> float | None:
    """Returns the `validation_share` of the trainings whose folders are given, or None.

    Raises:
        ValueError: The trainings divided their images differently.
    """
    found = set()
    for name in names:
        folder = Path(os.path.expanduser(name)).resolve()
        folder = folder.parent if folder.name == "model" else folder
        settings = folder / "config.json"
        if (folder / "result.json").is_file() and settings.is_file():
            found.add(json.loads(settings.read_text("utf-8")).get("validation_share"))
    if len(found) > 1:
        raise ValueError(
            "`trust`: the models were trained with different --validation-share: "
            f"{', '.join(map(str, found))}. Images of the one's test may have trained "
            "the other. Give them in separate commands."
        )
    return found.pop() if found else None


def channels_of(models: Sequence[Candidate]) -> int:
    """Returns the number of channels of the images that models take.

    Raises:
        ValueError: They take images with different numbers of channels.
    """
    first, *others = models
    channels = first.transform.channels
    for each in others:
        if each.transform.channels != channels:
            raise ValueError(
                f"`models` must take the same images. Received: {first.name} with "
                f"{channels} channels, {each.name} with {each.transform.channels}. "
                "Give them in separate commands."
            )
    return channels


def load(
    name: str,
    values: str | None = None,
    image_size: Sequence[int] | None = None,
    headless: bool = False,
    state: str | None = None,
) -> Candidate:
    """Loads a model by a name of `any_model.py`, or a run of a training recipe.

    Args:
        name: The folder of a training, or as for `any_model.load`.
        values: As for `any_model.load`.
        image_size: Pixels, height first, or of a square; None: the model's.
        headless: Whether a model may have no classes, for its features.
        state: As for `any_model.load`.

    Raises:
        ValueError: There is no such model, or it returns no logits of classes.
    """
    found = any_model.load(weights_of(name), "model", values, state)
    model = found.model
    if image_size is not None:
        if getattr(model, "record", None) is None:
            raise ValueError(
                f"`image_size`: only models of kerasvit take another size. Received: "
                f"{name}. Leave --image-size out."
            )
        model = kerasvit.resize(model, (image_size[0], image_size[-1]))
    if not headless and (len(model.outputs) != 1 or len(model.output_shape) != 2):
        shapes = [tuple(output.shape) for output in model.outputs]
        raise ValueError(
            f"`model`: {name} must return logits (batch, classes). Its outputs have "
            f"the shapes {shapes}."
        )
    own = {"name": _name(name), "weights": _hash(model)}
    if record := getattr(model, "record", None):
        if not headless and record["kwargs"].get("num_classes") == 0:
            raise ValueError(
                f"`model`: {name} has no classes, only {model.output_shape[-1]} "
                "features. Train a head with finetune.py, or score the features: "
                "--frozen knn."
            )
        return Candidate(
            model=model,
            transform=model.preprocessing,
            normalize=not record["kwargs"].get("normalization"),
            label_names=_label_names(record.get("label_names")),
            **own,
        )
    size = model.input_shape[1:3]
    if None in size:
        raise ValueError(
            f"`model`: the inputs of {name} must be images (height, width, 3) of a "
            f"fixed size. Received: {model.input_shape[1:]}."
        )
    transform = OF_KERAS if name.endswith(".keras") else OF_APPLICATIONS
    image = keras.Input(model.input_shape[1:], name="image")
    return Candidate(
        model=keras.Model(image, model(found.prepare(image))),
        transform=_of_features(model) or kerasvit.Preprocessing(size, **transform),
        normalize=False,
        label_names=None,
        **own,
    )


def weights_of(name: str) -> str:
    """Returns the folder of a run's model; other names as they are."""
    folder = Path(os.path.expanduser(name))
    is_run = (folder / "result.json").is_file() and (folder / "model").is_dir()
    return str(folder / "model") if is_run else name


def _of_features(model):
    """Returns the transform of the features in a model without classes, or None."""
    if len(model.output_shape) == 2:
        return None
    inside = [x for x in layers_in(model) if isinstance(x, kerasvit.FeatureModel)]
    return inside[0].preprocessing if inside else None


def _label_names(names):
    return list(imagenet_names()) if names == "imagenet1k" else names


def _name(name):
    """Returns a name for tables and files: the last two parts of a path."""
    parts = Path(name.rstrip("/")).parts
    if parts[-1] == "model" and len(parts) > 1:  # of a training
        parts = parts[:-1]
    is_path = Path(os.path.expanduser(name)).exists()
    return parts[-1].removesuffix(".keras") if is_path else name.removeprefix("hf://")


def _hash(model):
    found = hashlib.sha256()
    for variable in model.weights:
        found.update(str(tuple(variable.shape)).encode())
        found.update(keras.ops.convert_to_numpy(variable).tobytes())
    return found.hexdigest()
