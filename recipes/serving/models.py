"""The models that a server runs: of Keras, or exported files."""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from exporting import runtime, transform
from exporting.formats import FORMATS
from PIL import Image

from . import exports


@dataclasses.dataclass(frozen=True)
class Served:
    """A model that answers requests.

    Attributes:
        prepare: Image of Pillow → array (height, width, channels), in any thread.
        classify: Arrays (count, height, width, channels) → for each image a list of
            (name, probability), the most probable first.
        about: What the server says about it.
        batch: Number of images of every call; None: any.
    """

    prepare: Callable[[Image.Image], np.ndarray]
    classify: Callable[[np.ndarray], Sequence[list[tuple[str, float]]]]
    about: dict
    batch: int | None = None


def load(config) -> Served:
    """Loads the model of a `settings.Config`.

    Raises:
        ValueError: There is no such model, or it has no classes.
    """
    if config.is_export:
        return exported(Path(os.path.expanduser(config.model)), config.top)
    import keras  # an export needs none of them, and starts in less time
    from scoring import candidates

    import kerasvit

    candidate = candidates.load(config.model, headless=True, state=config.state)
    model, preprocessing = candidate.model, candidate.transform
    if len(model.outputs) != 1 or not candidate.has_head:
        shapes = [tuple(output.shape) for output in model.outputs]
        raise ValueError(
            f"`model`: {config.model} must return logits (batch, classes), and its "
            f"outputs, of the shapes {shapes}, are none. Give a model with a head, "
            "such as one that finetune.py has trained."
        )
    about = {
        "model": config.model,
        "classes": candidate.classes,
        "image_size": list(preprocessing.size),
        "runtime": f"Keras on {keras.backend.backend()}",
    }
    kerasvit.classify(model, Image.new("RGB", (8, 8)))  # or an error that says why not
    return Served(
        lambda image: preprocessing(image, normalize=candidate.normalize),
        lambda images: kerasvit.classify(model, images, config.top),
        about,
    )


def exported(folder: Path, top: int) -> Served:
    """Loads the folder of an export, with the runtime of its format.

    Raises:
        ValueError: It is damaged or has no probabilities of named classes, or the
            runtime is not installed.
    """
    about = exports.described(folder, "model")
    names = about["output"]["label_names"]
    if about["output"]["name"] != "probabilities" or names is None:
        raise ValueError(
            f"`model`: {folder} returns {about['output']['name']}"
            f"{'' if names else ' of classes without names'}. Export the model with "
            "names and --outputs probabilities."
        )
    thresholds = about["output"].get("thresholds")
    run = _run(about["format"], folder)

    def classify(images):
        return [best(row, names, thresholds, top) for row in run(images)]

    return Served(
        functools.partial(transform.read, stated=about),
        classify,
        {
            "model": str(folder),
            "classes": len(names),
            "image_size": about["preprocessing"]["size"],
            "runtime": about["compared"]["runtime"],
        },
        about["input"]["shape"][0],
    )


def _run(name: str, folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function of an exported file: images → outputs."""
    try:
        return runtime.READERS[name](folder)
    except ImportError as error:
        package = runtime.PACKAGES[name][0]
        raise ValueError(
            f"`model`: {package}, which runs exports of {name}, cannot be imported "
            f"({error}): pip install {package}"
        ) from error
    except Exception as error:  # the runtimes raise many types for damaged files
        raise ValueError(
            f"`model`: {folder / FORMATS[name].file} cannot be loaded ({error}). "
            f"{exports.AGAIN}"
        ) from error


def best(row, names, thresholds, top: int) -> list[tuple[str, float]]:
    """Returns the names of an image with their probabilities, as `classify` does."""
    order = np.argsort(-row, kind="stable")
    if thresholds is None:
        order = order[:top]
    else:
        order = [i for i in order if row[i] >= thresholds[i]]
    return [(names[i], float(row[i])) for i in order]
