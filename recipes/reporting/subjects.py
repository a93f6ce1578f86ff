"""The models that are measured, each with the same images as it takes them."""

import dataclasses
import hashlib
from pathlib import Path

import keras
import numpy as np
from scoring import accuracy, candidates, sets
from scoring.outputs import are_probabilities, as_logits, relabelled

from kerasvit.evaluation import scores
from kerasvit.inspection import as_rgb

from . import masks, objective

SMALLEST = 8  # images


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model and labelled images.

    Attributes:
        name: Name of the model in tables and pictures.
        model: `keras.Model` from images to logits or probabilities (batch, classes).
        x: Images as the model takes them, float32 (N, H, W, C).
        y: Class indices of the model, int (N,).
        probabilities: Whether the model returns probabilities.
        weights: SHA-256 of the weights.
        images: SHA-256 of `x` and `y`.
        batch_size: Images per pass.
        seed: Seed of what is random.
        accuracy, loss: Top-1 and the mean cross-entropy on the images.
        objective: The loss that the model was trained with, on these images.
        masks: Masks of the objects; None if there are none.
        bands: Channels that pictures show as red, green and blue; None: the first.
    """

    name: str
    model: keras.Model
    x: np.ndarray
    y: np.ndarray
    probabilities: bool
    weights: str
    images: str
    batch_size: int
    seed: int
    accuracy: float
    loss: float
    objective: objective.Objective
    masks: masks.Masks | None
    bands: tuple[int, ...] | None = None

    @property
    def data(self) -> tuple:
        """Arguments `model`, `x`, `y` and `loss` of the measures of a loss."""
        logits = not self.probabilities
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
        return self.model, self.x, self.y, loss

    @property
    def builder(self) -> str:
        """Name of the function of kerasvit that built the model; "" for others."""
        return (getattr(self.model, "record", None) or {}).get("builder", "")

    @property
    def variant(self) -> str:
        """Name of its size in kerasvit, or of what it is."""
        record = getattr(self.model, "record", None) or {}
        return record.get("variant") or self.builder or "Keras model"

    def new_model(self) -> keras.Model:
        """Returns a model of the same architecture with new weights."""
        keras.utils.set_random_seed(self.seed)
        return keras.models.clone_model(self.model)

    def facts(self) -> dict:
        """Returns what the page says about the model."""
        return {
            "name": self.name,
            "architecture": self.variant,
            "parameters": self.model.count_params(),
            "image size": list(self.x.shape[1:3]),
            "accuracy": self.accuracy,
            "loss": self.loss,
            "weights sha256": self.weights,
        }


def load(config) -> list[Subject]:
    """Loads the models and the images that all of them know the class of.

    Args:
        config: `inspection_settings.Config`.

    Raises:
        ValueError: There is no such model or set, they do not fit, or there are too few
            images.
    """
    found = candidates.load_all(config.models, config.model_input, state=config.state)
    channels = candidates.channels_of(found)
    as_rgb(np.zeros((1, 1, channels)), config.bands)  # it checks them
    image_set = sets.find(config.image_set, channels=channels)
    files = masks.find(config.masks, image_set.images) if config.masks else {}
    image_set = image_set.sample(config.images)
    matches = [accuracy.match_classes(image_set, each, "data") for each in found]
    known = [
        all(map(len, rows)) for rows in zip(*(m.labels for m in matches), strict=True)
    ]
    if sum(known) < SMALLEST:
        raise ValueError(
            f"`data`: {sum(known)} images of {image_set.name} are of classes of all "
            f"models. At least {SMALLEST} are needed. Give more --images."
        )
    numbers = np.flatnonzero(known)
    images = image_set.images.part(numbers)
    if files and not any(path in files for path in map(Path, images.items)):
        raise ValueError(
            f"`masks`: none of the {len(numbers)} images has a mask. Give more "
            f"--images: {len(files)} of all images of the set have one."
        )
    return [
        _subject(
            config,
            name,
            candidate,
            relabelled(images, [match.labels[i][0] for i in numbers]),
            files,
        )
        for name, candidate, match in zip(config.models, found, matches, strict=True)
    ]


def _subject(config, name, candidate, images, files):
    batches = images.batches(
        candidate.transform,
        normalize=candidate.normalize,
        batch_size=config.batch_size,
    )
    x, y = map(np.concatenate, zip(*batches.as_numpy_iterator(), strict=True))
    outputs = candidate.model.predict(x, config.batch_size, verbose=0)
    probabilities = are_probabilities(outputs)
    found = scores(as_logits(outputs), list(y[:, None]))
    digest = hashlib.sha256(x.tobytes() + y.astype("int64").tobytes())
    return Subject(
        name=candidate.name,
        model=candidate.model,
        x=x,
        y=y,
        probabilities=probabilities,
        weights=candidate.weights,
        images=digest.hexdigest(),
        batch_size=config.batch_size,
        seed=config.seed,
        accuracy=found["top1"].value,
        loss=found["nll"].value,
        objective=objective.of(config, name, candidate, images, probabilities),
        masks=masks.read(files, images, candidate.transform) if files else None,
        bands=config.bands,
    )
