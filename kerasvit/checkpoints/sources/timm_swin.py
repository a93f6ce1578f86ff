"""timm's Swin Transformers and Microsoft's original files.

Tensor names and layouts as timm/models/swin_transformer.py writes them. Its
`checkpoint_filter_fn` converts the names of microsoft/Swin-Transformer.
"""

from collections.abc import Set
from typing import Any

from ..config import Config, Shapes
from ..description import Description
from ..key_map import (
    CONVOLUTION,
    TRANSPOSE,
    KeyMap,
    torch_dense,
    torch_norm,
    torch_stacked,
)
from ..reader import CheckpointError
from .source import count, count_stages, names_of_classes, sized
from .timm import TimmSource, cfg, differing, image_size, input_size, model_args

_TABLE = "layers.{}.blocks.0.attn.relative_position_bias_table"
# Arguments of timm's model that kerasvit supports with these values only.
_ONLY: dict[str, list] = {"global_pool": ["avg"], "always_partition": [False]}


class TimmSwin(TimmSource):
    """Swin Transformers, including those of Microsoft's code base.

    `kernel` follows timm/layers/pos_embed_rel.py, resize_rel_pos_bias_table. The tensor
    shapes depend on the windows and not on the image size, so `grid` is None. The
    `arguments` contain the image size for which the windows were chosen.
    """

    builder = "SwinTransformer"
    kernel = "geometric_linear"

    def recognises(self, names: Set[str]) -> bool:
        return "patch_embed.proj.weight" in names and _TABLE.format(0) in names

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.endswith((".relative_position_index", ".attn_mask")):
            return "computed from the window size; older files hold it too"
        return None

    def describe(self, shapes: Shapes, config: Config) -> Description:
        tables = position_tables(shapes, _TABLE)
        width, channels, *_ = shapes.of("patch_embed.proj.weight", 4)
        patch = shapes.square_patch("patch_embed.proj.weight")
        numbers = {
            "width": width,
            "depths": [
                count(shapes, f"layers.{i}.blocks.{{}}.norm1.weight")
                for i in range(len(tables))
            ],
            "num_heads": [heads for _, heads in tables],
        }
        _refuse_unlike(config, numbers)
        last = f"layers.{len(tables) - 1}.blocks.0.mlp.fc1.weight"
        hidden, inputs = shapes.of(last, 2)
        head = "head.weight" if "head.weight" in shapes else "head.fc.weight"
        classes = shapes.side(head, 0, 2, default=0)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers=numbers,
            arguments={
                "patch_size": patch,
                **_windows([rows for rows, _ in tables], patch, config),
                "channels": channels,
                "num_classes": classes,
                # The last stage has the smallest rounding error.
                "mlp_ratio": hidden / inputs,
                "qkv_bias": "layers.0.blocks.0.attn.qkv.bias" in shapes,
                "epsilon": 1e-5,
            },
            kernel=self.kernel,
            image_size=image_size(config),
            label_names=names_of_classes(config.names("label_names"), classes),
            architecture=config.text("architecture"),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        block, ours = "layers.{i}.blocks.{j}.", "stage_{i}_block_{j}/"
        # The merging ends a stage of Microsoft's models and begins one of timm's.
        behind = "layers.0.downsample.norm.weight" in (shapes or ())
        merged = [
            rule
            for i in range(1, len(kwargs["depths"]))
            for rule in merging(f"layers.{i - behind}.downsample", f"stage_{i}_merging")
        ]
        return KeyMap(
            ("patch_embed.proj.weight", "embedding/kernel", CONVOLUTION),
            ("patch_embed.proj.bias", "embedding/bias"),
            *torch_norm("patch_embed.norm", "embedding_norm"),
            *merged,
            *swin_block(block, ours, ("mlp.fc1", "mlp.fc2")),
            *torch_norm("norm", "encoder_norm"),
            *torch_dense(
                "head" if "head.weight" in (shapes or ()) else "head.fc", "head"
            ),
        )

    def differs(self, record: dict[str, Any]) -> str | None:
        # timm's Swins have LayerNorm epsilon 1e-5 and the exact GELU. timm rounds the
        # MLPs' hidden sizes down.
        sizes = [c * record["kwargs"]["mlp_ratio"] for c in _channels(record["kwargs"])]
        return differing(
            {**record["kwargs"], "MLP": [int(size + 1e-6) for size in sizes]},
            {"epsilon": [1e-5], "MLP": [[int(size) for size in sizes]]},
        )

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {
            # The name is arbitrary: `model_args` states all numbers.
            "architecture": "swin_tiny_patch4_window7_224",
            "num_classes": kwargs["num_classes"],
            "num_features": _channels(kwargs)[-1],
            "pretrained_cfg": cfg("patch_embed.proj", "head.fc"),
            "global_pool": "avg",
            "model_args": {
                "img_size": list(kwargs["image_size"]),
                "patch_size": kwargs["patch_size"],
                "window_size": _for_timm(kwargs["window_size"]),
                "embed_dim": kwargs["width"],
                "depths": kwargs["depths"],
                "num_heads": kwargs["num_heads"],
                "mlp_ratio": kwargs["mlp_ratio"],
                "qkv_bias": kwargs["qkv_bias"],
            },
        }


def position_tables(shapes: Shapes, pattern: str) -> list[tuple[int, ...]]:
    """Returns (rows, heads) of the position table of each stage, at least one.

    Args:
        shapes: Shapes of a Swin Transformer's tensors.
        pattern: Name of a stage's first table, with {} for the stage number.
    """
    stages = max(count_stages(shapes, pattern), 1)
    return [shapes.of(pattern.format(i), 2) for i in range(stages)]


def longest_window(kwargs: dict[str, Any]) -> int:
    """Returns the longest edge of a stage's windows in pixels of the image."""
    given, stages = kwargs["window_size"], len(kwargs["depths"])
    windows = [given] * stages if isinstance(given, int) else given
    edges = (window * 2**i for i, window in enumerate(windows))
    return kwargs["patch_size"] * max(edges)


def _refuse_unlike(config: Config, numbers: dict[str, Any]) -> None:
    """Raises if kerasvit cannot build timm's model."""
    args = model_args(config)
    for key, known in {**_ONLY, "head_dim": _head_dims(numbers)}.items():
        if args.get(key, known[0]) not in known:
            raise CheckpointError(
                f"config.json states {key}={args[key]!r:.200} for timm's Swin. For "
                f"these tensors, kerasvit builds {known[-1]!r} only."
            )


def _head_dims(numbers: dict[str, Any]) -> list:
    """Returns the values of `head_dim` that distribute the channels evenly."""
    pairs = zip(_channels(numbers), numbers["num_heads"], strict=True)
    shares = [channels // heads for channels, heads in pairs]
    return [None, *(shares[:1] if len(set(shares)) == 1 else []), shares]


def _windows(rows: list[int], patch: int, config: Config) -> dict[str, Any]:
    """Returns the window size and the image size for which it was chosen.

    A table has (2M - 1)² rows for windows of size M. In all published models the last
    map is one window: 7 at 224 pixels, 12 at 384.
    """
    sides = [(number**0.5 + 1) / 2 for number in rows]
    window_size = _window_size(config, patch, len(rows))
    arguments: dict[str, Any] = {}
    if window_size:
        arguments["window_size"] = window_size
    elif all(side.is_integer() for side in sides):
        sides = [int(side) for side in sides]
        arguments["window_size"] = sides[0] if _cut_off(sides) else sides
    elif sides[0].is_integer():
        arguments["window_size"] = int(sides[0])
    if sides[-1] == int(sides[-1]):
        pixels = int(sides[-1]) * patch * 2 ** (len(rows) - 1)
        arguments["image_size"] = sized(pixels)
    return arguments


def _cut_off(sides: list[int]) -> bool:
    """Returns whether all windows are the first stage's, limited to the map."""
    maps = [sides[-1] * 2**i for i in reversed(range(len(sides)))]
    return sides == [min(sides[0], places) for places in maps]


def _window_size(config: Config, patch: int, stages: int) -> int | list[int] | None:
    """Returns M, or a list of M per stage; None if the configuration states none.

    A window is limited to the size of the stage's map, as in kerasvit.
    """
    given = model_args(config).get("window_size")
    if not given:
        # The tables of this model also fit a window of 14 in all stages: at 224 pixels
        # the last map limits it to 7. At larger sizes the two models differ.
        name = config.text("architecture").split(".")[0]
        return [14, 14, 14, 7] if name == "swin_s3_small_224" else None
    windows = _height_and_width(given, stages)
    pixels = image_size(config) or input_size(config) or (224, 224)
    maps = [[-(-side // (patch * 2**i)) for side in pixels] for i in range(stages)]
    if len(windows) != stages or any(
        min(side, places) != min(max(window), places)
        for window, shape in zip(windows, maps, strict=True)
        for side, places in zip(window, shape, strict=True)
    ):
        raise CheckpointError(
            f"config.json states the windows {given!r:.200} for timm's Swin. kerasvit "
            "builds square windows, of one size for all stages or one size per stage."
        )
    squares = [max(window) for window in windows]
    return squares if len(set(squares)) > 1 else squares[0]


def _height_and_width(given: Any, stages: int) -> list[list[int]]:
    """Returns [height, width] of the windows of each stage; [] for invalid values.

    timm's argument is an integer, two integers, or a list of either for the stages.
    """
    listed = isinstance(given, list) and (len(given) != 2 or isinstance(given[0], list))
    windows = given if listed else [given] * stages
    windows = [side if isinstance(side, list) else [side, side] for side in windows]
    known = all(
        len(window) == 2 and all(isinstance(side, int) for side in window)
        for window in windows
    )
    return windows if known else []


def swin_block(name: str, path: str, mlp: tuple[str, str]) -> tuple[tuple, ...]:
    """Returns the rules of a block of timm or torchvision.

    Args:
        name: Prefix of the block's tensor names.
        path: Prefix of the block's variable paths.
        mlp: Names of the layers of the MLP.
    """
    qkv = (f"{path}attention/{part}" for part in ("query", "key", "value"))
    return (
        *torch_norm(name + "norm1", path + "attention_norm"),
        (name + "attn.relative_position_bias_table", path + "attention/position_bias"),
        *torch_stacked(name + "attn.qkv", *qkv),
        *torch_dense(name + "attn.proj", path + "attention/output"),
        *torch_norm(name + "norm2", path + "mlp_norm"),
        *torch_dense(name + mlp[0], path + "mlp/dense_0"),
        *torch_dense(name + mlp[1], path + "mlp/dense_1"),
    )


def merging(name: str, path: str) -> tuple[tuple, ...]:
    """Returns the rules of a patch merging of timm or transformers."""
    return (
        *torch_norm(f"{name}.norm", f"{path}/norm"),
        (f"{name}.reduction.weight", f"{path}/reduction/kernel", TRANSPOSE),
    )


def _channels(kwargs: dict[str, Any]) -> list[int]:
    """Returns the channels of each stage."""
    return [kwargs["width"] * 2**i for i in range(len(kwargs["depths"]))]


def _for_timm(window_size: int | list[int]) -> int | list[list[int]]:
    """Returns timm's argument `window_size`; a list of two would be a rectangle."""
    if isinstance(window_size, int):
        return window_size
    return [[side, side] for side in window_size]
