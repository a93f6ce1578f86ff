"""Argument checks that the builders share."""

import functools
import math
from collections.abc import Callable
from typing import Any

from kerasvit import arguments
from kerasvit.arguments import (
    ArgumentError,
    is_any,
    number,
    one_of,
    sides,
    sides_or_any,
)
from kerasvit.layers.mlp import ACTIVATIONS
from kerasvit.layers.position_embedding import POSITION_KERNELS
from kerasvit.preprocessing.normalization import mean_and_std

# Upper limits, far above those of all models. A configuration can state any number, and
# building a model takes memory and time before its tensors are compared.
MAXIMA = {
    "depth": 1000,
    "depths": 1000,  # also the limit of the sum
    "resnet_depths": 1000,
    "width": 65_536,
    "widths": 65_536,
    "patch_size": 1024,
    "window": 255,
    "window_size": 64,
}
MAX_STAGES, MAX_PATCHES = 100, 2**18


def integer(name: str, value: Any, low: int) -> int:
    """Returns an argument after checking that it is an integer in the allowed range.

    Raises:
        ArgumentError: It is not an integer, below `low`, or above the limit.
    """
    return arguments.integer(name, value, low, MAXIMA.get(name, 1_000_000))


def integers(name: str, value: Any, count: int | None, low: int) -> list[int]:
    """Returns an argument after checking that it is a list of integers.

    Args:
        count: Length of the list; None for any.

    Raises:
        ArgumentError: It is not such a list, or an integer is below `low`.
    """
    listed = isinstance(value, (list, tuple))
    if not listed or not value or (count is not None and len(value) != count):
        many = "integers" if count is None else f"{count} integers"
        raise ArgumentError(
            f"`{name}` must be a list of {many}. Received: {value!r:.200}.",
            name,
        )
    if len(value) > MAX_STAGES:
        raise ArgumentError(
            f"`{name}` must have at most {MAX_STAGES} entries. Received: {len(value)}.",
            name,
        )
    checked = [integer(name, number, low) for number in value]
    if name in ("depths", "resnet_depths") and sum(checked) > MAXIMA["depth"]:
        raise ArgumentError(
            f"`{name}` must add up to at most {MAXIMA['depth']:,}. Received: "
            f"{sum(checked):,}.",
            name,
        )
    return checked


def stage_widths(value: Any, stages: int, groups: int) -> list[int] | None:
    """Returns the checked output channels of stages of bottleneck units, or None.

    Raises:
        ArgumentError: They are not integers, or `groups` does not divide a quarter.
    """
    if value is None:
        return None
    widths = integers("stage_widths", value, stages, 4 * groups)
    if any(width % (4 * groups) for width in widths):
        raise ArgumentError(
            f"`stage_widths` must be multiples of {4 * groups}, for {groups} groups of "
            f"a quarter of them. Received: {value!r}.",
            "stage_widths",
        )
    return widths


def probability(name: str, value: Any) -> float:
    """Returns an argument after checking that it is in [0, 1).

    Raises:
        ArgumentError: It is not.
    """
    return number(name, value, 0, 1, meaning="a probability")


def known_sides(image_size: Any, why: str) -> list[int]:
    """Returns [height, width] after checking that it is not (None, None).

    Args:
        why: What depends on the size, for the error message.

    Raises:
        ArgumentError: The size is not known, or is no size.
    """
    if is_any(sides_or_any(image_size)):
        raise ArgumentError(
            f"`image_size` must be known: {why}. Received: (None, None). Build a model "
            "of one size; `kerasvit.resize` makes one of another size from it.",
            "image_size",
        )
    return sides(image_size)


def sizes_of(
    kwargs: dict[str, Any], fitting: Callable[[Any], list[int]]
) -> dict[str, Any]:
    """Returns the checked arguments `image_size` and `resampling` of a builder.

    Args:
        kwargs: Arguments of a builder of models with a position table.
        fitting: Checks a size and returns [height, width].

    Raises:
        ArgumentError: A size does not fit, or `resampling` is wrong.
    """
    if not is_any(sides_or_any(kwargs["image_size"])):
        return {"image_size": fitting(kwargs["image_size"]), "resampling": None}
    given = kwargs["resampling"] or {}
    default = {"image_size": 224, "kernel": "bicubic_antialias"}
    if not isinstance(given, dict) or not given.keys() <= default.keys():
        raise ArgumentError(
            "`resampling` must be a dict of `image_size`, that of the position table, "
            f"and `kernel`. Received: {given!r:.200}.",
            "resampling",
        )
    table = {**default, **given}
    one_of("kernel", table["kernel"], POSITION_KERNELS)
    resampling = {**table, "image_size": fitting(table["image_size"])}
    return {"image_size": [None, None], "resampling": resampling}


def multiple_of(image_size: Any, stride: int, what: str) -> list[int]:
    """Returns [height, width] of an image after checking that strides divide it.

    Args:
        what: Name of the stride, such as "the patch size".

    Raises:
        ArgumentError: The stride does not divide the size; the message contains the
            nearest size. Or the image is too large.
    """
    checked = sides(image_size)
    if any(side % stride for side in checked):
        near = [max(stride, round(side / stride) * stride) for side in checked]
        raise ArgumentError(
            f"`image_size` must be a multiple of {what}, {stride}. Received: "
            f"{checked[0]} × {checked[1]}. The nearest that fits is {near[0]} × "
            f"{near[1]}.",
            "image_size",
        )
    if math.prod(checked) > MAX_PATCHES * stride**2:
        raise ArgumentError(
            f"`image_size` must have at most {MAX_PATCHES:,} times the area of "
            f"{what}, {stride}. Received: {checked[0]} × {checked[1]}.",
            "image_size",
        )
    return checked


def at_least_one(image_size: Any, stride: int, what: str) -> list[int]:
    """[height, width] of an image of at least one stride, multiple or not.

    Args:
        what: Name of the stride, such as "the patch size".

    Raises:
        ArgumentError: A side is shorter than the stride, or too long.
    """
    checked = sides(image_size)
    if min(checked) < stride:
        raise ArgumentError(
            f"`image_size` must be at least {what}, {stride}. Received: {checked[0]} × "
            f"{checked[1]}.",
            "image_size",
        )
    multiple_of([side - side % stride for side in checked], stride, what)
    return checked


SIZES: tuple[str, ...] = ("patch_size", "width", "depth", "mlp_dim", "tokens_mlp_dim")
SIZES += ("channels_mlp_dim", "stem_width", "head_width")
EPSILONS = ("epsilon", "group_epsilon", "kernel_epsilon", "conv_epsilon")
SWITCHES: tuple[str, ...] = ("partial_patches", "patch_bias", "pre_norm", "qkv_bias")
SWITCHES += ("add_to_deviation", "bottleneck")
# Checks of arguments that have the same meaning in all builders.
CHECKS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(SIZES, functools.partial(integer, low=1)),
    "num_classes": functools.partial(integer, low=0),
    "register_tokens": functools.partial(integer, low=0),
    "depths": functools.partial(integers, count=None, low=1),
    "mlp": functools.partial(one_of, known=("plain", "swiglu")),
    "activation": functools.partial(one_of, known=tuple(ACTIVATIONS)),
    **dict.fromkeys(EPSILONS, functools.partial(number, low=0, high=1)),
    **dict.fromkeys(SWITCHES, functools.partial(one_of, known=(True, False))),
    "dropout": probability,
    "stochastic_depth": probability,
    "normalization": lambda name, value: mean_and_std(value),
}


def checked_by_name(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a builder after the checks in `CHECKS`.

    Raises:
        ArgumentError: An argument is wrong.
    """
    return {k: CHECKS[k](k, v) if k in CHECKS else v for k, v in kwargs.items()}
