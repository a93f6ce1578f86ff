"""Compares the activations of a family's cases by their recorded names."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np

from kerasvit.checkpoints import Checkpoint
from kerasvit.models import Variant

from .result import Result, errors


@dataclass(frozen=True)
class Family:
    """How the cases of one architecture are built and compared.

    Args:
        builder: Builder of the models.
        config_arguments: A case's config → arguments of the builder that the tensors do
            not determine, such as the number of heads. The rest is read from the
            checkpoint, and the image size from the images.
        tap: (model, quantity) → the tensor of the model for a quantity, or its values
            where they do not depend on the image.
        layout: (model, quantity, array) → the array as the original has it.
        tolerance: Largest error over the largest recorded value, in float32.
    """

    builder: Callable
    config_arguments: Callable
    tap: Callable
    layout: Callable = lambda model, quantity, array: array
    tolerance: float = 1e-5

    def build(self, case, checkpoint, image_size=None):
        """The model of a case."""
        arguments = {
            **self.config_arguments(case["config"]),
            **Checkpoint(checkpoint).description.numbers,
        }
        required = Variant(None, self.builder).required
        numbers = {key: arguments[key] for key in required}
        changes = {
            key: value for key, value in arguments.items() if key not in required
        }
        variant = Variant(None, self.builder, **numbers)
        return variant(checkpoint, image_size=image_size, **changes)

    def check(self, root, name, case):
        """Yields the case's name and its `Result`: every recorded activation."""
        files = {key: root / path for key, path in case["files"].items()}
        images = np.load(files["input"])
        model = self.build(case, files["checkpoint"], images.shape[1:3])
        recorded = recorded_values(files["expected"])
        found = self.activations(model, images, recorded)
        ordered = sorted(recorded, key=_order)
        # Rounding errors of deep networks may be larger, in the original's float32 too;
        # not in float64.
        deviations = case.get("f32_vs_f64", {}).values()
        rounding = max((off["max_rel_to_max"] for off in deviations), default=0)
        tolerance = {"float32": max(self.tolerance, 4 * rounding), "float64": 1e-6}
        result = errors(found, recorded, ordered)
        yield name, Result(result, tolerance[keras.config.floatx()])

    def activations(self, model, images, quantities):
        """{quantity: array} in the original's layout."""
        taps = {quantity: self.tap(model, quantity) for quantity in quantities}
        inside = [q for q in taps if keras.backend.is_keras_tensor(taps[q])]
        tapped = type(model)(model.inputs, {q: taps[q] for q in inside})
        found = {**taps, **tapped.predict(images, verbose=0)}
        return {q: self.layout(model, q, array) for q, array in found.items()}


def recorded_values(path):
    """{quantity: array}: float64 values, of large arrays rounded to float32."""
    with np.load(path) as arrays:
        names = {name.rpartition("_")[0] for name in arrays}
        kept = {name: f"{name}_f64" for name in sorted(names)}
        return {
            name: arrays[full if full in arrays else f"{name}_ref32"]
            for name, full in kept.items()
        }


def _order(quantity):
    """Sort key: the order of computation, so that the first error shows its cause."""
    last = {
        "encoded": 1, "features": 1, "pre_logits_2d": 1, "hook/norm": 1, "prelogits": 2,
        "logits_cls": 3, "logits_dist": 3, "logits": 4,
        "logits_bigvision_neginf_pool": 5,
    }  # fmt: skip
    first = {
        "stem": 0, "root": 0, "resnet": 1, "backbone": 1, "patch": 2, "embed": 2,
        "after": 3,
    }  # fmt: skip
    early = [n for start, n in first.items() if start in quantity]
    inside = re.search(r"block|hidden|layer|stage", quantity) and not early
    stage = 0 if inside else early[0] - len(first) if early else -1
    numbers = [int(digits) for digits in re.findall(r"\d+", quantity)]
    numbers.append(math.inf)  # a stage follows its blocks
    return last.get(quantity, stage), numbers, quantity
