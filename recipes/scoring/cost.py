"""Parameters, multiply-adds and speed of the models: the first columns of the tables.

cost.of(candidate, results.saved(folder))
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import keras
from benchmarks import results
from devices import device_name

import kerasvit
from kerasvit.inspection import layers_in

from . import catalogue, multiply_adds

# Arguments that do not change the speed: the head takes less than 1 % of the products.
WITHOUT_EFFECT = ("num_classes", "normalization", "dropout", "stochastic_depth")
PRECISIONS = ("float32", "mixed_bfloat16")  # those of the benchmark
COLUMNS = {  # {heading: what it means}
    "M params": "million parameters",
    "G MACs": "billion multiply-adds",
    "img/s": "images/s",
}


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a model costs.

    Attributes:
        parameters: Number of trained parameters, without statistics and fixed tables.
        multiply_adds: For one image, as `multiply_adds.of` counts them, or None.
        images_per_second: Of `python -m recipes.benchmarks forward` on this device, or
            None if it was not measured.
    """

    parameters: int
    multiply_adds: int | None
    images_per_second: float | None


def of(candidate, saved: list[results.Result]) -> Cost:
    """Returns the cost of a model."""
    model, passes = candidate.model, candidate.passes
    products = multiply_adds.of(model, candidate.transform.size)
    speed = _images_per_second(_measurement(candidate), saved)
    return Cost(
        _parameters(model),
        products and passes * products,
        speed and speed / passes,
    )


def of_all(costs: Sequence[Cost]) -> Cost:
    """Returns the cost of several models, one after the other."""
    products = [each.multiply_adds for each in costs]
    speeds = [each.images_per_second for each in costs]
    return Cost(
        sum(each.parameters for each in costs),
        sum(products) if all(products) else None,
        1 / sum(1 / each for each in speeds) if all(speeds) else None,
    )


def _parameters(model: keras.Model) -> int:
    """Returns the number of parameters that are trained where nothing is frozen."""
    parts = [*layers_in(model), *model.weights]  # outer layers first
    before = [each.trainable for each in parts]
    for layer in layers_in(model):
        layer.trainable = False  # on TensorFlow, Keras ignores an equal value
        layer.trainable = True
    count = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    for each, trainable in zip(parts, before, strict=True):
        each.trainable = trainable
    return count


def inserted(rows: list[list[str]], costs: dict[str, Cost]) -> list[list[str]]:
    """Returns the rows of a table with the columns of the costs after the first.

    Args:
        rows: Heading, and rows that begin with a name of `costs`; the rows below each
            may have the paper's numbers.
        costs: {name of the model: cost}.
    """
    heading, *rest = rows
    table, model = [[heading[0], *COLUMNS, *heading[1:]]], ""
    for first, *others in rest:
        model = first if first in costs else model
        known = {model: cells(costs[model])}
        if first.strip() == catalogue.PAPER:
            known = {first: catalogue.COSTS[model]}
        table.append([first, *known.get(first, [""] * len(COLUMNS)), *others])
    return table


def cells(cost: Cost) -> list[str]:
    """Returns the texts of `COLUMNS`, "" for what is not known."""
    numbers = [cost.parameters / 1e6, cost.multiply_adds, cost.images_per_second]
    if cost.multiply_adds is not None:
        numbers[1] = cost.multiply_adds / 1e9
    return ["" if each is None else _shown(each) for each in numbers]


def _shown(number):
    """Returns three significant digits, or all before the point."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def missing(candidates, costs: dict[str, Cost], folder: Path) -> str:
    """Returns how to measure the speed of models of the zoo without one, or ""."""
    wanted = [
        found
        for each in candidates
        if (found := _measurement(each)) and not costs[each.name].images_per_second
    ]
    commands = dict.fromkeys(map(_command, wanted))
    if not commands:
        return ""
    return (
        f"No images/s: {folder} has no measurement of these models on this device "
        f"({wanted[0]['device']}). To measure it: {'; '.join(commands)}."
    )


def _measurement(candidate):
    """Returns what the benchmark says about a measurement of this model, or None.

    It measures the variants, with 1,000 classes. Those with other arguments differ.
    """
    record = getattr(candidate.model, "record", None)
    dtype = candidate.model.dtype_policy.name
    variant = getattr(kerasvit, (record or {}).get("variant") or "", None)
    if variant is None or dtype not in PRECISIONS:
        return None
    (height, width), arguments = record["kwargs"]["image_size"], record["kwargs"]
    known = {**variant.numbers, **variant.defaults, "image_size": (height, width)}
    known = variant.builder.check(**known)
    other = {k for k in known if arguments.get(k) != known[k]} - {*WITHOUT_EFFECT}
    if other or height != width or height is None:
        return None
    return {
        "model": record["variant"],
        "image_size": height,
        "dtype": dtype,
        "backend": keras.backend.backend(),
        "device": device_name.of_first(),
    }


def _images_per_second(wanted, saved):
    """Returns the speed with the best batch size; None if it was not measured."""
    speeds = [
        each.about["batch_size"] / statistics.median(each.seconds["kerasvit"])
        for each in saved
        if each.what == "forward" and wanted and wanted.items() <= each.about.items()
    ]
    return max(speeds, default=None)


def _command(wanted):
    command = f"KERAS_BACKEND={wanted['backend']} python -m recipes.benchmarks forward"
    options = ("model", "image_size", "dtype")
    given = [f"--{name.replace('_', '-')} {wanted[name]}" for name in options]
    return " ".join([command, *given])
