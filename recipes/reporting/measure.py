"""What a measure of the report consists of, and which models have it."""

import dataclasses
import re
from collections.abc import Callable
from typing import NamedTuple

from kerasvit import ArgumentError
from kerasvit.inspection import (
    BLOCKS,
    HIDDEN,
    Activations,
    attention_layers,
    attention_maps,
    integer_layers,
)

from .subjects import Subject


class Passes(NamedTuple):
    """Work of a measure, from which its time is estimated.

    Attributes:
        forward: Passes over all images. A gradient counts as two.
        products: Passes with first and second derivatives.
        programs: Programs to compile.
    """

    forward: float = 0.0
    products: float = 0.0
    programs: int = 1


def has_it(*subjects: Subject) -> str:
    """Returns "": every model has the measure."""
    return ""


def nothing_else(*subjects: Subject) -> dict:
    """Returns {}: the measure depends on nothing but the models and the images."""
    return {}


@dataclasses.dataclass(frozen=True)
class Measure:
    """A measure of one model, or of all models jointly.

    Attributes:
        compute: Function of the subjects that returns numbers as JSON has them, in
            dictionaries and lists. If it resumes, it takes the `path` of a file, too.
        show: Function of {name of the model: numbers} that returns the tables and
            pictures; of a joint measure the name is `JOINT`.
        passes: Function of the subjects that returns the work.
        lacks: Function of the subjects that returns why they lack the measure, one
            sentence, or "".
        depends: Function of the subjects that returns what the numbers depend on
            besides them, as JSON has it: if it changes, they are measured again.
        jointly: Whether it is of two models jointly.
        resumes: Whether a stopped `compute` goes on with what is in the file.
    """

    compute: Callable[..., dict]
    show: Callable[[dict[str, dict]], list]
    passes: Callable[..., Passes]
    lacks: Callable[..., str] = has_it
    depends: Callable[..., dict] = nothing_else
    jointly: bool = False
    resumes: bool = False


def either(*checks: Callable[..., str]) -> Callable[..., str]:
    """Returns a function of subjects that returns the first reason of several."""

    def first(*subjects: Subject) -> str:
        return next(filter(None, (check(*subjects) for check in checks)), "")

    return first


JOINT = "both"
EIGENPAIR = 30  # products that an eigenvalue needs, about


def block_paths(subject: Subject) -> list[str]:
    """Returns the paths of the blocks that have weights, as kerasvit names them."""
    parts = (variable.path.split("/") for variable in subject.model.weights)
    paths = {"/".join(p[:i]): None for p in parts for i in range(1, len(p))}
    return [path for path in paths if re.search(BLOCKS, path)]


def without_blocks(*subjects: Subject) -> str:
    """Tells which model has no blocks that kerasvit knows."""
    for each in subjects:
        if not block_paths(each):
            return f"{each.name} has no blocks with the names of kerasvit’s models."
    return ""


def without_derivatives(*subjects: Subject) -> str:
    """Tells which model has no weights by which its loss has derivatives."""
    for each in subjects:
        if not each.model.trainable_variables:
            return f"{each.name} has no trainable weights."
    return quantised(*subjects)


def quantised(*subjects: Subject) -> str:
    """Tells which model has weights of integers."""
    for each in subjects:
        if integer_layers(each.model):
            return f"{each.name} is quantised: give it as it was before."
    return ""


def without_maps(*subjects: Subject) -> str:
    """Tells which model's blocks have no feature maps of 3 × 3 cells or more."""
    if reason := without_blocks(*subjects):
        return reason
    for each in subjects:
        activations = Activations(each.model)
        shapes = [tensor.shape for tensor in activations.model.outputs]
        if any(None in shape[1:3] for shape in shapes):
            return f"{each.name} takes images of any size: resize it before."
        if any(len(shape) == 3 for shape in shapes) and not has_grid(each):
            return f"{each.name} does not tell the grid of its tokens."
        if min(min(grid) for grid, _ in activations.layouts()) < 3:
            return f"{each.name} has feature maps of fewer than 3 × 3 cells."
    return ""


def has_grid(subject: Subject) -> bool:
    """Returns whether the layers of a model tell the grid of its tokens."""
    return any(hasattr(layer, "grid") for layer in subject.model.layers)


def without_hidden(*subjects: Subject) -> str:
    """Tells which model's blocks have no MLP."""
    for each in subjects:
        paths = (v.path.rpartition("/")[0] for v in each.model.weights)
        if not any(re.search(HIDDEN, path) for path in paths):
            return f"The blocks of {each.name} have no MLP with a hidden layer."
    return ""


def without_attention(*subjects: Subject) -> str:
    """Tells which model has no attention layers, or others than of its patches."""
    for each in subjects:
        if not attention_layers(each.model):
            return f"{each.name} has no attention layers."
        if each.builder:
            continue
        try:
            attention_maps(each.model, each.x[:1])
        except ArgumentError as error:
            return f"{each.name}: {error}"
    return ""


def without_logits(*subjects: Subject) -> str:
    """Tells which model returns probabilities."""
    for each in subjects:
        if each.probabilities:
            return f"{each.name} returns probabilities, and the measure needs logits."
    return ""
