"""Size limits of models that a checkpoint's configuration asks for.

A configuration may claim any size. So the variables of its model are counted while they
are made, and there is an end as soon as they are more than the file holds.
"""

from collections.abc import Callable, Iterable
from typing import Any

import keras

from kerasvit.arguments import integer
from kerasvit.backend.deferred import TooLargeError, built_with_zeros
from kerasvit.checkpoints import Checkpoint, CheckpointError

from .resolve import Plan, blamed_on_the_file
from .variant import Variant

# Beyond what the file holds: as much as names every tensor that is missing in a file
# of another model. It is 64 MB, and the tensors of a ViT-L.
MORE_WEIGHTS, MORE_TENSORS = 2**24, 300
MOST_WIDTH = 2**16  # of the features that a fresh head is put on


def check_arguments(variant: Variant, explicit: dict[str, Any]) -> None:
    """Checks the caller's arguments by the builder, without creating a weight.

    Left for later is what depends on the file: whether there is a class token, and
    whether windows fill the image, where the caller gives only one of the two.

    Args:
        variant: `Variant`, a row of the zoo.
        explicit: The builder's arguments that the caller gave.

    Raises:
        ValueError: One of them is wrong.
    """
    later, fitted = {"class_token"}, {"window_size", "image_size"}
    if "window_size" in variant.defaults and not fitted <= explicit.keys():
        later |= fitted
    checked = {key: value for key, value in explicit.items() if key not in later}
    try:
        built_with_zeros(
            lambda: variant.builder(
                **{**variant.defaults, **variant.numbers, **checked}
            ),
            most_weights=0,
        )
    except TooLargeError:
        pass  # at the first weight: all arguments have been checked


def build(builder: Callable, plan: Plan, checkpoint: Checkpoint) -> keras.Model:
    """Builds a model that is not larger than the checkpoint's tensors can fill.

    Args:
        builder: Builder of `ImageModel`s.
        plan: Its arguments, and which of them the caller stated.
        checkpoint: `Checkpoint` that the variables are written from afterwards.

    Raises:
        CheckpointError: The model is larger than the file, and not because the caller
            asked for another head or image size; or an argument that the file states
            is wrong.
        ValueError: An argument that the caller stated is wrong.
    """
    shapes, path = checkpoint.shapes.values(), str(checkpoint.path)
    explicit = {key: plan.kwargs[key] for key in sorted(plan.explicit)}
    held = {"weights": checkpoint.weight_count, "tensors": len(shapes)}
    most = {
        "weights": MORE_WEIGHTS
        + _factor(explicit) * held["weights"]
        + _fresh_heads(shapes, explicit),
        "variables": 3 * held["tensors"] + MORE_TENSORS,  # query, key, value in one
    }
    try:
        with blamed_on_the_file(path, plan.kwargs, plan.explicit):
            return built_with_zeros(
                lambda: builder(**plan.kwargs),
                most_weights=most["weights"],
                most_variables=most["variables"],
            )
    except TooLargeError as error:
        holds = f"{held['weights']:,} weights in {held['tensors']:,} tensors"
        wish = f", or ask for less than {explicit!r:.200}" if explicit else ""
        raise CheckpointError(
            f"{path} holds {holds}, and its configuration is of a model of more than "
            f"{most[error.what]:,} {error.what}: {plan.kwargs!r:.500}. One of them is "
            f"of another model, or made to do harm; take the complete files{wish}."
        ) from error


def _factor(explicit: dict[str, Any]) -> int:
    """Returns by which factor a model may be larger for the caller's image size.

    A Mixer-L, whose kernels grow most, doubles with 3 times the sides of its image.
    """
    return 16 if {"image_size", "window_size"} & explicit.keys() else 2


def _fresh_heads(shapes: Iterable[tuple[int, ...]], explicit: dict[str, Any]) -> int:
    """Returns how many weights fresh heads of the caller's classes may have."""
    widest = max((side for shape in shapes for side in shape), default=0)
    classes = integer("num_classes", explicit.get("num_classes") or 0, 0)
    return 2 * classes * min(widest, MOST_WIDTH)
