"""How many weights a model has at least, told by its builder's arguments alone."""

import math

from .arguments import integer, integers, number, sides


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
