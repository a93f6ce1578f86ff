"""Size limits of models that the configuration of a checkpoint describes.

A configuration can state any size. The variables of the model are counted while it is
built, and an error is raised as soon as there are more of them than the file can fill.
"""

from collections.abc import Callable, Iterable
from typing import Any

import keras

from kerasvit.arguments import integer
from kerasvit.backend.deferred import TooLargeError, built_with_zeros
from kerasvit.checkpoints import Checkpoint, CheckpointError

from .resolve import Plan, file_in_errors

# Allowance beyond the content of the file: 64 MB of weights and as many tensors as a
# ViT-L has, so that a file of another model gives an error that lists missing tensors.
MORE_WEIGHTS, MORE_TENSORS = 2**24, 300
MAX_WIDTH = 2**16  # largest number of input features of a fresh head


def build(builder: Callable, plan: Plan, checkpoint: Checkpoint) -> keras.Model:
    """Builds a model that is not larger than the checkpoint's tensors can fill.

    Args:
        builder: Builder of `ImageModel`s.
        plan: Arguments of the builder, and which of them the caller stated.
        checkpoint: `Checkpoint` whose tensors are assigned to the model afterwards.

    Raises:
        CheckpointError: The model has more weights than the file, and the caller's head
            or image size does not explain it; or an argument that the file states is
            wrong.
        ValueError: An argument that the caller stated is wrong.
    """
    shapes, path = checkpoint.shapes.values(), str(checkpoint.path)
    explicit = {key: plan.kwargs[key] for key in sorted(plan.explicit)}
    held = {"weights": checkpoint.weight_count, "tensors": len(shapes)}
    limits = {
        "weights": MORE_WEIGHTS
        + _factor(explicit) * held["weights"]
        + _fresh_heads(shapes, explicit),
        "variables": 3 * held["tensors"] + MORE_TENSORS,  # of query, key, value
    }
    try:
        with file_in_errors(path, plan.kwargs, plan.explicit):
            return built_with_zeros(
                lambda: builder(**plan.kwargs),
                max_weights=limits["weights"],
                max_variables=limits["variables"],
            )
    except TooLargeError as error:
        holds = f"{held['weights']:,} weights in {held['tensors']:,} tensors"
        hint = f", or reduce {explicit!r:.200}" if explicit else ""
        raise CheckpointError(
            f"{path} holds {holds}, but its configuration describes a model of more "
            f"than {limits[error.what]:,} {error.what}: {plan.kwargs!r:.500}. The "
            "files belong to two models or are malicious; use the complete "
            f"files{hint}."
        ) from error


def _factor(explicit: dict[str, Any]) -> int:
    """Returns by which factor the caller's image size may enlarge a model.

    An allowance: the kernels of Mixers, with a weight for each patch, grow most.
    """
    return 16 if {"image_size", "window_size"} & explicit.keys() else 2


def _fresh_heads(shapes: Iterable[tuple[int, ...]], explicit: dict[str, Any]) -> int:
    """Returns the largest number of weights in fresh heads."""
    widest = max((side for shape in shapes for side in shape), default=0)
    classes = integer("num_classes", explicit.get("num_classes") or 0, 0)
    return 2 * classes * min(widest, MAX_WIDTH)
