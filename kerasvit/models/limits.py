"""Size limits of models that a checkpoint's configuration asks for.

A configuration may claim any size. So the variables of its model are counted while they
are made, and there is an end as soon as they are more than the file holds.
"""

import math

from kerasvit.checkpoints import CheckpointError
from kerasvit.layers import TooLarge, values_follow

from .arguments import MOST, integer

# Beyond what the file holds: as much as names every tensor that is missing in a file
# of another model. It is 64 MB, and the tensors of a ViT-L.
MORE_WEIGHTS, MORE_TENSORS = 2**24, 300
# Of masks and other tables that layers compute: a Swin-L's have 2 MB.
MOST_TABLE_BYTES = 2**28


def check_arguments(variant, explicit):
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
        with values_follow(weights=0):
            variant.builder(**{**variant.defaults, **variant.numbers, **checked})
    except TooLarge:
        pass  # at the first weight: all arguments have been checked


def build_for(checkpoint, builder, kwargs, explicit):
    """Builds a model that is not larger than the checkpoint's tensors can fill.

    Args:
        checkpoint: `Checkpoint` that its variables are written from afterwards.
        builder: Of `ImageModel`.
        kwargs: Its arguments.
        explicit: Those among them that the caller gave.

    Raises:
        CheckpointError: The model is larger than the file, and not by the caller's
            wish for another head or image size.
        ValueError: An argument is wrong.
    """
    shapes = checkpoint.shapes.values()
    held = {"weights": sum(map(math.prod, shapes)), "tensors": len(shapes)}
    most = {
        "weights": MORE_WEIGHTS
        + _factor(explicit) * held["weights"]
        + _fresh_heads(shapes, explicit),
        "tensors": 3 * held["tensors"] + MORE_TENSORS,  # query, key and value in one
        "table_bytes": MOST_TABLE_BYTES,
    }
    try:
        with values_follow(**most):
            return builder(**kwargs)
    except TooLarge as error:
        holds = f"{held['weights']:,} weights in {held['tensors']:,} tensors"
        what = error.what.replace("table_bytes", "bytes of masks and other tables")
        wish = f", or ask for less than {explicit!r:.200}" if explicit else ""
        raise CheckpointError(
            f"{checkpoint.path} holds {holds}, and its configuration is of a model of "
            f"more than {most[error.what]:,} {what}: {kwargs!r:.500}. One of them is "
            "of another model, or made to do harm; take the complete files"
            f"{wish}."
        ) from error


def _factor(explicit):
    """Returns by which factor a model may be larger for the caller's image size.

    A Mixer-L, whose kernels grow most, doubles with 3 times the sides of its image.
    """
    return 16 if {"image_size", "window_size"} & explicit.keys() else 2


def _fresh_heads(shapes, explicit):
    """Returns how many weights fresh heads of the caller's classes may have."""
    widest = max((side for shape in shapes for side in shape), default=0)
    classes = integer("num_classes", explicit.get("num_classes") or 0, 0)
    return 2 * classes * min(widest, MOST["width"])
