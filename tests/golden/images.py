"""Preprocessed images, against Google's and timm's own transforms."""

import re

import numpy as np

from kerasvit.preprocessing import Preprocessing

from .result import Result, error

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
TOLERANCE = 1e-5


def check(root, name, case):
    """Yields the case's name and its `Result`: every recorded transform."""
    image = np.load(root / case["files"]["image"])
    with np.load(root / case["files"]["expected"]) as recorded:
        found = {
            key: error(_preprocessed(image, key), recorded[key]) for key in recorded
        }
    yield name, Result(found, TOLERANCE)


def _preprocessed(image, key):
    origin, size, crop = re.match(
        r"(vit_jax|timm)_(\d+)(?:_crop([\dp]+))?", key
    ).groups()
    if origin == "vit_jax":
        return Preprocessing.of_origin("vision_transformer", int(size))(image)
    crop = float(crop.replace("p", "."))
    normal = IMAGENET if key.endswith("imagenet_norm") else {}
    transform = Preprocessing(int(size), crop=crop, **normal)
    return transform(image, normalize=not key.endswith("uint8"))
