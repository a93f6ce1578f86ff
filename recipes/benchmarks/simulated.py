"""Measures `simulate`: the accuracy of a trained model by method and number of bits.

Each row is the same model, scored on the test images of its training. The images that
give the ranges are of its training images.
"""

import dataclasses
from pathlib import Path

from exporting import quantizing
from scoring import candidates, sets

from kerasvit.quantization import METHODS, simulate

from . import exported, quantization
from .results import Result
from .settings import Config

BITS = (8, 6, 4)
COLUMNS = ("accuracy %", "difference, points", "worst class", "same class %")


def measure(config: Config, backend: str) -> Result:
    """Rounds and scores the model of `config.folder` by every method.

    The columns are the accuracy on the test images; its difference from the model in
    float32 with the paired 95 % interval; the largest loss of accuracy of a class; and
    the share of the images with the class of the model in float32.
    """
    candidate = candidates.load(config.folder)
    found = exported.training_set(config.folder)
    x, y = exported.arrays(candidate, found.test.images)
    images = sets.first(found.train, quantizing.MOST)
    ranges, _ = exported.arrays(candidate, images)
    model = quantization.made(config.folder, "float32", None)
    exact = quantization.predicted(model.predict_on_batch, x, config)
    rows = [["float32", *exported.scored(exact, exact, y)]]
    for bits in BITS:
        for method in METHODS:
            rounded = simulate(model, ranges, method, bits)
            classes = quantization.predicted(rounded.predict_on_batch, x, config)
            scores = exported.scored(classes, exact, y)
            rows.append([f"{method}, {bits} bits", *scores])
    label = f"{Path(config.folder).name} of {len(y)} images"
    stated = {"model": (label,), "image_size": x.shape[1], "rounds": 1}
    return Result.of(dataclasses.replace(config, **stated), backend, COLUMNS, rows, {})
