"""Checks that the arguments of builders share."""

import math
import numbers
import operator

from kerasvit.preprocessing import Preprocessing

# What no model here comes near: a configuration from elsewhere may ask for any number,
# and memory or time is spent before the tensors are compared.
MOST = {
    "depth": 1000,
    "depths": 1000,  # and all of them together
    "resnet_depths": 1000,
    "width": 65_536,
    "widths": 65_536,
    "image_size": 16_384,
    "patch_size": 1024,
    "window": 255,
    "window_size": 64,
}
MOST_STAGES, MOST_PATCHES = 100, 2**18


def integer(name, value, least: int) -> int:
    """An argument that must be an integer, NumPy's included.

    Raises:
        ValueError: It is none, below `least`, or more than any model has.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise ValueError(
            f"`{name}` must be an integer, at least {least}. Received: {value!r}."
        )
    if number > (most := MOST.get(name, 1_000_000)):
        raise ValueError(f"`{name}` must be at most {most:,}. Received: {number:,}.")
    return number


def integers(name, value, count: int | None, least: int) -> list[int]:
    """An argument that must be a list of `count` integers, of any number for None.

    Raises:
        ValueError: It is none, or one of them is below `least`.
    """
    listed = isinstance(value, (list, tuple))
    if not listed or not value or (count is not None and len(value) != count):
        many = "integers" if count is None else f"{count} integers"
        raise ValueError(
            f"`{name}` must be a list of {many}. Received: {value!r:.200}."
        )
    if len(value) > MOST_STAGES:
        raise ValueError(
            f"`{name}` must have at most {MOST_STAGES} entries. Received: {len(value)}."
        )
    checked = [integer(name, number, least) for number in value]
    if name in ("depths", "resnet_depths") and sum(checked) > MOST["depth"]:
        raise ValueError(
            f"`{name}` must add up to at most {MOST['depth']:,}. Received: "
            f"{sum(checked):,}."
        )
    return checked


def number(name, value, expected, low=-math.inf, high=math.inf) -> float:
    """An argument that must be a finite number in [low, high); `expected` says so.

    Raises:
        ValueError: It is not.
    """
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not low <= value < high or not math.isfinite(value):
        raise ValueError(f"`{name}` must be a number, {expected}. Received: {value!r}.")
    return float(value)


def probability(name, value) -> float:
    """An argument that must be in [0, 1).

    Raises:
        ValueError: It is not.
    """
    return number(name, value, "a probability in [0, 1)", 0, 1)


def one_of(name, value, known):
    """An argument that must be one of `known`, which hold True, False and None apart.

    Raises:
        ValueError: It is none of them.
    """
    if not any(value is choice or value == choice for choice in known):
        raise ValueError(f"`{name}` must be one of {known}. Received: {value!r}.")
    return value


def sides(image_size) -> list[int]:
    """[height, width] of an argument that is one side or both.

    Raises:
        ValueError: It is neither.
    """
    try:
        values = list(image_size)
    except TypeError:
        values = [image_size] * 2
    if len(values) != 2 or isinstance(image_size, str):
        raise ValueError(
            "`image_size` must be an integer or (height, width), in pixels. Received: "
            f"{image_size!r}."
        )
    return [integer("image_size", value, 1) for value in values]


def multiple_of(image_size, stride: int, what: str) -> list[int]:
    """[height, width] of an image that must be a whole number of strides.

    Args:
        what: The stride's name, such as "the patch size".

    Raises:
        ValueError: It is not; says which size near it is.
    """
    checked = sides(image_size)
    if any(side % stride for side in checked):
        near = [max(stride, round(side / stride) * stride) for side in checked]
        raise ValueError(
            f"`image_size` must be a multiple of {what}, {stride}. Received: "
            f"{checked[0]} × {checked[1]}. The nearest that fits is {near[0]} × "
            f"{near[1]}."
        )
    if math.prod(checked) > MOST_PATCHES * stride**2:
        raise ValueError(
            f"`image_size` must have at most {MOST_PATCHES:,} times the area of "
            f"{what}, {stride}. Received: {checked[0]} × {checked[1]}."
        )
    return checked


def mean_and_std(normalization):
    """The argument `normalization`: None, or {"mean": [3], "std": [3]} as plain JSON.

    Raises:
        ValueError: It is neither.
    """
    if normalization is None:
        return None
    if not isinstance(normalization, dict) or set(normalization) != {"mean", "std"}:
        raise ValueError(
            '`normalization` must be {"mean": ..., "std": ...}, of pixels in 0…1, or '
            f"None. Received: {normalization!r}."
        )
    # Validates both; the size is of no account here.
    config = Preprocessing(1, **normalization).to_config()
    return {key: config[key] for key in ("mean", "std")}


def fewest_weights(kwargs) -> int:
    """How many a model has in the largest of its matrices.

    A configuration from elsewhere may ask for a model that fills the memory before the
    first tensor is compared. The whole model has up to 20 times as many.

    Args:
        kwargs: Of any builder.

    Raises:
        ValueError: A size is none.
    """
    width, depth = _size(kwargs, "width"), _size(kwargs, "depth")
    _size(kwargs, "window_size")
    features = _size(kwargs, "representation_size")
    matrices = [  # how many, rows, columns
        (depth, width, _size(kwargs, "mlp_dim") + _size(kwargs, "channels_mlp_dim")),
        (depth, _patches(kwargs), _size(kwargs, "tokens_mlp_dim")),
        (1, width, _size(kwargs, "register_tokens")),
        (1, width, _size(kwargs, "patch_size") ** 2),
        (1, width, features),
        (1, features or width, _size(kwargs, "num_classes")),
        *((count, size, size) for count, size in _stages(kwargs)),
    ]
    if "mlp_dim" in kwargs:  # with attention, and with positions for all patches
        matrices.append((depth, width, width))
        learned = kwargs.get("positions") != "sincos2d"
        matrices.append((int(learned), width, _patches(kwargs)))
    return sum(math.prod(matrix) for matrix in matrices)


def blocks(kwargs) -> int:
    """How many blocks and units a model has.

    Args:
        kwargs: Of any builder.

    Raises:
        ValueError: A number of them is none.
    """
    return _size(kwargs, "depth") + sum(
        sum(integers(name, kwargs[name], None, 1))
        for name in ("depths", "resnet_depths")
        if kwargs.get(name)
    )


def _size(kwargs, name):
    return integer(name, kwargs.get(name) or 0, 0)


def _patches(kwargs):
    if "resnet_depths" in kwargs:  # of a map, and its file says how many
        return 0
    patch = max(_size(kwargs, "patch_size"), 1)
    return math.prod(side // patch for side in sides(kwargs["image_size"]))


def _stages(kwargs):
    """(units, channels that each unit has the square of) of convolutions and Swin."""
    factor = number("width_factor", kwargs.get("width_factor") or 0, "finite")
    name = "resnet_depths" if "resnet_depths" in kwargs else "depths"
    depths = kwargs.get(name) and integers(name, kwargs[name], None, 1)
    if not depths:
        return []
    if widths := kwargs.get("widths"):
        channels = integers("widths", widths, len(depths), 1)
    elif widths := kwargs.get("stage_widths"):
        widths = integers("stage_widths", widths, len(depths), 1)
        channels = [width // 4 for width in widths]
    else:
        first = int(64 * factor) or _size(kwargs, "width")
        channels = [first << i for i in range(len(depths))]
    return list(zip(depths, channels, strict=True))
