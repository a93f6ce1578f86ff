"""Argument checks that the builders share."""

import difflib
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kerasvit import arguments
from kerasvit.arguments import (
    MAX_CHANNELS,
    MAX_PATCH,
    ArgumentError,
    Size,
    number,
    one_of,
    patch_sides,
    patch_size,
    whole_patches,
)
from kerasvit.layers.mlp import ACTIVATIONS
from kerasvit.layers.position_embedding import POSITION_KERNELS
from kerasvit.preprocessing.transform import mean_and_std
from kerasvit.types import PatchSize

# Upper limits, far above those of all models. A configuration can state any number, and
# building a model takes memory and time before its tensors are compared.
MAXIMA = {
    "depth": 1000,
    "depths": 1000,  # also the limit of the sum
    "resnet_depths": 1000,
    "width": 65_536,
    "widths": 65_536,
    "patch_size": MAX_PATCH,
    "channels": MAX_CHANNELS,
    "groups": 256,  # TensorFlow has an operation for each
    "window": 255,
    "window_size": 64,
}
MAX_STAGES, MAX_PATCHES = 100, 2**18
OF_TOKEN = ("token", "token_and_average")  # poolings that need a class token
# {name in another library: name in kerasvit}.
RENAMED = {
    "classes": "num_classes",  # keras.applications
    "drop_path_rate": "stochastic_depth",  # timm
    "embed_dim": "width",
    "in_chans": "channels",
    "init_values": "layer_scale",
    "reg_tokens": "register_tokens",
    "checkpoint_path": "weights",
    "num_labels": "num_classes",  # transformers
    "num_channels": "channels",
    "hidden_size": "width",
    "num_hidden_layers": "depth",
    "num_attention_heads": "num_heads",
    "intermediate_size": "mlp_dim",
}
# {name in another library: what to do instead}.
INSTEAD = {
    "input_tensor": "build the model, then call it: model(tensor)",
    "classifier_activation": (
        "models return logits; put keras.layers.Softmax() behind the model, or call "
        "kerasvit.classify(model, images)"
    ),
    "id2label": 'label_names=["cat", "dog", ...]',
    "torch_dtype": 'dtype="bfloat16"',
}


def integer(name: str, value: Any, low: int) -> int:
    """Returns an argument after checking that it is an integer in its range."""
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
    """Returns an argument after checking that it is in [0, 1)."""
    return number(name, value, 0, 1, meaning="a probability")


def known_size(image_size: Size, why: str) -> Size:
    """Returns an image size after checking that it is not (None, None).

    Args:
        why: What depends on the size, for the error message.

    Raises:
        ArgumentError: The size is not known.
    """
    if image_size.is_any:
        raise ArgumentError(
            f"`image_size` must be known: {why}. Received: (None, None). Build a model "
            "of one size; `kerasvit.resize` makes one of another size from it.",
            "image_size",
        )
    return image_size


def sizes_of(
    kwargs: dict[str, Any],
    fitting: Callable[[Size], Size],
    kernels: Collection[str] = POSITION_KERNELS,
    kernel: str = "bicubic_antialias",
) -> dict[str, Any]:
    """Returns the checked arguments `image_size` and `resampling` of a builder.

    Args:
        kwargs: Arguments of a builder of models with a position table.
        fitting: Checks a size and returns it.
        kernels: Names of the kernels that resample its tables.
        kernel: The one of a model without `resampling`.

    Raises:
        ArgumentError: A size does not fit, or `resampling` is wrong.
    """
    if not kwargs["image_size"].is_any:
        return {"image_size": fitting(kwargs["image_size"]), "resampling": None}
    given = kwargs["resampling"] or {}
    default = {"image_size": 224, "kernel": kernel}
    if not isinstance(given, dict) or not given.keys() <= default.keys():
        raise ArgumentError(
            "`resampling` must be a dict of `image_size`, that of the position table, "
            f"and `kernel`. Received: {given!r:.200}.",
            "resampling",
        )
    table = {**default, **given}
    one_of("kernel", table["kernel"], tuple(kernels))
    resampling = {**table, "image_size": [*fitting(Size.of(table["image_size"]))]}
    return {"image_size": kwargs["image_size"], "resampling": resampling}


def multiple_of(image_size: Size, patch: PatchSize) -> Size:
    """Returns an image size after checking that it is whole patches.

    Raises:
        ArgumentError: A patch does not divide the size; the message contains the
            nearest size. Or the image is too large.
    """
    height, width = image_size
    sides = patch_sides(patch)
    if height % sides[0] or width % sides[1]:
        near = [
            max(step, round(side / step) * step)
            for side, step in zip(image_size, sides, strict=True)
        ]
        raise ArgumentError(
            f"`image_size` must be a multiple of the patch size, {_both(patch)}. "
            f"Received: {height} × {width}. The nearest that fits is {near[0]} × "
            f"{near[1]}.",
            "image_size",
            "patch_size",
        )
    if height * width > MAX_PATCHES * sides[0] * sides[1]:
        raise ArgumentError(
            f"`image_size` must have at most {MAX_PATCHES:,} times the area of "
            f"the patch size, {_both(patch)}. Received: {height} × {width}.",
            "image_size",
        )
    return image_size


def at_least_one(image_size: Size, patch: PatchSize) -> Size:
    """Returns an image size of at least one patch, a multiple or not.

    Raises:
        ArgumentError: A side is shorter than that of a patch, or too long.
    """
    rows, columns = whole_patches(image_size, patch)
    if not (rows and columns):
        raise ArgumentError(
            f"`image_size` must be at least the patch size, {_both(patch)}. Received: "
            f"{image_size[0]} × {image_size[1]}.",
            "image_size",
        )
    height, width = patch_sides(patch)
    multiple_of(Size((rows * height, columns * width)), patch)
    return image_size


def _both(patch: PatchSize) -> str:
    return str(patch) if isinstance(patch, int) else f"{patch[0]} × {patch[1]}"


SIZES: tuple[str, ...] = ("width", "depth", "mlp_dim", "tokens_mlp_dim")
SIZES += ("channels_mlp_dim", "stem_width", "head_width")
EPSILONS = ("epsilon", "group_epsilon", "kernel_epsilon", "conv_epsilon")
SWITCHES: tuple[str, ...] = ("partial_patches", "patch_bias", "pre_norm", "qkv_bias")
SWITCHES += ("add_to_deviation", "bottleneck")
# Checks of arguments that have the same meaning in all builders.
CHECKS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(SIZES, functools.partial(integer, low=1)),
    "patch_size": patch_size,
    "image_size": lambda name, value: Size.of(value, name, any_size=True),
    "channels": functools.partial(integer, low=1),
    "num_classes": functools.partial(integer, low=0),
    "register_tokens": functools.partial(integer, low=0),
    "depths": functools.partial(integers, count=None, low=1),
    "mlp": functools.partial(one_of, known=("plain", "swiglu")),
    "activation": functools.partial(one_of, known=tuple(ACTIVATIONS)),
    **dict.fromkeys(EPSILONS, functools.partial(number, low=0, high=1)),
    **dict.fromkeys(SWITCHES, functools.partial(one_of, known=(True, False))),
    "dropout": probability,
    "stochastic_depth": probability,
}


def check_transformer(
    kwargs: dict[str, Any], choices: Mapping[str, tuple]
) -> dict[str, Any]:
    """Returns the arguments of a ViT's builder after the checks that all share.

    Args:
        kwargs: Arguments with `num_heads`, `layer_scale`, `pool` and perhaps
            `class_token`.
        choices: {argument: its values}.

    Raises:
        ArgumentError: One is out of its range, or the pooling needs a class token.
    """
    checked = {**kwargs, "num_heads": integer("num_heads", kwargs["num_heads"], 1)}
    for key, known in choices.items():
        checked[key] = one_of(key, kwargs[key], known)
    if kwargs["layer_scale"] is not None:
        checked["layer_scale"] = number("layer_scale", kwargs["layer_scale"])
    if checked["pool"] in OF_TOKEN and checked.get("class_token") is False:
        raise ArgumentError(
            f'`pool="{checked["pool"]}"` needs a class token. Received: '
            'class_token=False. Choose `pool="average"` or leave `class_token` out.',
            "pool",
            "class_token",
        )
    return checked


def check_final_norm(kwargs: dict[str, Any]) -> None:
    """Raises if the pooling needs a normalisation that the model does not have."""
    if kwargs["pool"] == "average_then_norm" and not kwargs["final_norm"]:
        raise ArgumentError(
            '`pool="average_then_norm"` needs a normalisation. Received: '
            'final_norm=False. Choose `pool="average"`.',
            "pool",
            "final_norm",
        )


def checked_by_name(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a builder after the checks in `CHECKS`."""
    checked = {k: CHECKS[k](k, v) if k in CHECKS else v for k, v in kwargs.items()}
    if "normalization" in checked:
        checked["normalization"] = mean_and_std(
            checked["normalization"], checked["channels"]
        )
    return checked


def check_names(
    label: str, given: Mapping[str, Any], known: Collection[str], before: str = ""
) -> None:
    """Raises for unknown arguments and suggests the right ones.

    Args:
        label: Name of the model in the message.
        given: {name: value} of the arguments.
        known: Names of the supported arguments.
        before: First words of the message.

    Raises:
        ValueError: Some arguments are unknown.
    """
    unknown = sorted(set(given) - set(known))
    if not unknown:
        return
    hints = [f"`{name}`: {_hint(name, given[name], known)}." for name in unknown]
    raise ValueError(
        f"{before}{label} has no argument {', '.join(unknown)}. {' '.join(hints)} It "
        f"takes {', '.join(sorted(known))}."
    )


def _hint(name: str, value: Any, known: Collection[str]) -> str:
    """Returns a hint on what to write instead of an argument."""
    if name in INSTEAD:
        return INSTEAD[name]
    if RENAMED.get(name) in known:
        return f"write {RENAMED[name]}={value!r:.80}"
    if name in ("input_shape", "img_size", "pooling", "global_pool") and value is None:
        return "leave it out"
    if name in ("input_shape", "img_size"):
        return f"write image_size={_sides(value)!r:.80}"
    if name == "include_top":
        return "leave it out" if value else "write num_classes=0"
    if name == "pretrained":
        call = 'weights="sam"; kerasvit.list_weights() shows the names of weights'
        return f"write {call}" if value else "leave it out"
    if name in ("pooling", "global_pool"):
        return _pooling(value, known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.7)
    return (
        f"did you mean {' or '.join(near)}"
        if near
        else "no argument has a similar name"
    )


def _pooling(value: Any, known: Collection[str]) -> str:
    if "pool" not in known:
        return "the model pools in one way; num_classes=0 returns pooled features"
    value = value if isinstance(value, str) else ""  # a file may contain a list
    if value == "max":
        return 'there is no max pooling; pool="average" takes the mean'
    ours = {"token": "token", "map": "attention"}.get(value, "average")
    return f'write pool="{ours}"; num_classes=0 returns pooled features'


def _sides(shape: Any) -> Any:
    """Returns height and width of another library's image shape."""
    if isinstance(shape, (tuple, list)) and len(shape) == 3:
        shape = shape[1:] if shape[0] in (1, 3) else shape[:2]
    return tuple(shape) if isinstance(shape, list) else shape
