"""timm's Swin Transformers, and the names of Microsoft's original files.

Names and layouts as timm/models/swin_transformer.py writes them; its
`checkpoint_filter_fn` says where microsoft/Swin-Transformer differs.
"""

from ..key_map import CONVOLUTION, TRANSPOSE, KeyMap, stacked, torch_dense, torch_norm
from ..reader import CheckpointError
from .count import count
from .timm import ORIGIN as ORIGIN
from .timm import ends, model_args, unlike
from .timm import image_size as image_size
from .timm import label_names as label_names
from .timm import own_name as own_name

BUILDERS = ("SwinTransformer",)
KERNEL = "geometric_linear"  # timm/layers/pos_embed_rel.py, resize_rel_pos_bias_table

_TABLE = "layers.{}.blocks.0.attn.relative_position_bias_table"
# What timm's model may be told and this one has no form of: argument → what it must be.
_ONLY = {"global_pool": ["avg"], "always_partition": [False]}


def recognises(names) -> bool:
    """Whether the names are timm's or Microsoft's."""
    return "patch_embed.proj.weight" in names and _TABLE.format(0) in names


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    if name.endswith((".relative_position_index", ".attn_mask")):
        return "computed from the window size; older files hold it too"
    return None


def sizes(shapes, config):
    """What the file says of the architecture's numbers."""
    stages = count(shapes, _TABLE)
    return {
        "width": shapes["patch_embed.proj.weight"][0],
        "depths": [
            count(shapes, f"layers.{i}.blocks.{{}}.norm1.weight") for i in range(stages)
        ],
        "num_heads": [shapes[_TABLE.format(i)][1] for i in range(stages)],
    }


def builder_changes(shapes, config):
    """What the weights were made with, from the keys and timm's `config.json`."""
    args = model_args(config)
    for key, known in {**_ONLY, "head_dim": _head_dims(sizes(shapes, config))}.items():
        if args.get(key, known[0]) not in known:
            raise CheckpointError(
                f"config.json asks for {key}={args[key]!r} of timm's Swin. Built here, "
                f"for the tensors of this file, is {known[-1]!r} only."
            )
    hidden, channels = shapes[f"layers.{_last(shapes)}.blocks.0.mlp.fc1.weight"]
    head = next((n for n in ("head.fc.weight", "head.weight") if n in shapes), None)
    return {
        "patch_size": shapes["patch_embed.proj.weight"][-1],
        **_windows(shapes, config),
        "num_classes": shapes[head][0] if head else 0,
        # From the last stage, where rounding down to whole units matters least.
        "mlp_ratio": hidden / channels,
        "qkv_bias": "layers.0.blocks.0.attn.qkv.bias" in shapes,
        "epsilon": 1e-5,
    }


def _head_dims(numbers):
    """The ways to tell timm that heads share a stage's channels evenly."""
    pairs = zip(_channels(numbers), numbers["num_heads"], strict=True)
    shares = [channels // heads for channels, heads in pairs]
    return [None, *(shares[:1] if len(set(shares)) == 1 else []), shares]


def _last(shapes):
    return count(shapes, _TABLE) - 1


def _windows(shapes, config):
    """The windows' size, and the image size that it was chosen for.

    A table of (2M - 1)² rows tells M. In all published models the last map is one
    window: 7 at 224 pixels, 12 at 384.
    """
    rows = [shapes[_TABLE.format(i)][0] for i in range(_last(shapes) + 1)]
    patch = shapes["patch_embed.proj.weight"][-1]
    sides = [(number**0.5 + 1) / 2 for number in rows]
    window_size = _window_size(config, patch, len(rows))
    changes = {}
    if window_size:
        changes["window_size"] = window_size
    elif all(side.is_integer() for side in sides):
        sides = [int(side) for side in sides]
        changes["window_size"] = sides[0] if _cut_off(sides) else sides
    elif sides[0].is_integer():
        changes["window_size"] = int(sides[0])
    if sides[-1] == int(sides[-1]):
        changes["image_size"] = [int(sides[-1]) * patch * 2 ** _last(shapes)] * 2
    return changes


def _cut_off(sides):
    """Whether windows are those of the first stage, where they fit into the map."""
    maps = [sides[-1] * 2**i for i in reversed(range(len(sides)))]
    return sides == [min(sides[0], places) for places in maps]


def _window_size(config, patch, stages):
    """M, or a list with that of each stage, where the configuration tells it.

    timm's argument is a side, two of them, or a list of either for the stages. As here,
    a side that is longer than that of a stage's map is cut off.
    """
    given = model_args(config).get("window_size")
    if not given:
        # Its tables fit a window of 14 for all stages, too. At 224 pixels the map of
        # the last stage cuts that off to 7; at larger sizes it would not.
        name = (config.get("architecture") or "").split(".")[0]
        return [14, 14, 14, 7] if name == "swin_s3_small_224" else None
    listed = isinstance(given, list) and (len(given) != 2 or isinstance(given[0], list))
    windows = given if listed else [given] * stages
    windows = [side if isinstance(side, list) else [side, side] for side in windows]
    default = (config.get("pretrained_cfg") or {}).get("input_size", (3, 224, 224))[1:]
    maps = [
        [-(-pixels // (patch * 2**i)) for pixels in image_size(config) or default]
        for i in range(stages)
    ]
    squares = [max(window) for window in windows]
    if len(windows) != stages or any(
        min(side, places) != min(square, places)
        for square, window, shape in zip(squares, windows, maps, strict=True)
        for side, places in zip(window, shape, strict=True)
    ):
        raise CheckpointError(
            f"config.json asks for windows of {given} of timm's Swin. Built here are "
            "squares, of one size for all stages or of one for each."
        )
    return squares if len(set(squares)) > 1 else squares[0]


def cells(shapes, kwargs):
    """The window alone shapes the tensors: `builder_changes` has all they tell."""
    return None


def key_map(kwargs, shapes=None) -> KeyMap:
    """The map for a model built with `kwargs`."""
    block, ours = "layers.{i}.blocks.{j}.", "stage_{i}_block_{j}/"
    qkv = ("query", "key", "value")
    # Microsoft's stages end with the merging, timm's begin with it.
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
        *torch_norm(block + "norm1", ours + "attention_norm"),
        (
            block + "attn.relative_position_bias_table",
            ours + "attention/position_bias",
        ),
        (
            block + "attn.qkv.weight",
            tuple(f"{ours}attention/{name}/kernel" for name in qkv),
            stacked(3),
        ),
        (
            block + "attn.qkv.bias",
            tuple(f"{ours}attention/{name}/bias" for name in qkv),
            stacked(3),
        ),
        *torch_dense(block + "attn.proj", ours + "attention/output"),
        *torch_norm(block + "norm2", ours + "mlp_norm"),
        *torch_dense(block + "mlp.fc1", ours + "mlp/dense_0"),
        *torch_dense(block + "mlp.fc2", ours + "mlp/dense_1"),
        *torch_norm("norm", "encoder_norm"),
        *torch_dense("head" if "head.weight" in (shapes or ()) else "head.fc", "head"),
    )


def merging(name, path):
    """Rules of the layer between two stages, in timm's and transformers' names."""
    return (
        *torch_norm(f"{name}.norm", f"{path}/norm"),
        (f"{name}.reduction.weight", f"{path}/reduction/kernel", TRANSPOSE),
    )


def differs(record):
    """In words, what timm's Swins do not have, or None.

    They have LayerNorm 1e-5, the exact GELU, and round the MLPs' sizes down.
    """
    sizes = [c * record["kwargs"]["mlp_ratio"] for c in _channels(record["kwargs"])]
    return unlike(
        {**record["kwargs"], "MLP": [int(size + 1e-6) for size in sizes]},
        {"epsilon": [1e-5], "MLP": [[int(size) for size in sizes]]},
    )


def _channels(kwargs):
    return [kwargs["width"] * 2**i for i in range(len(kwargs["depths"]))]


def _for_timm(window_size):
    """The argument of timm's Swins, for which a list of two is height and width."""
    if isinstance(window_size, int):
        return window_size
    return [[side, side] for side in window_size]


def config(record):
    """timm's `config.json` for one of our models, or None where timm has no such."""
    if differs(record):
        return None
    kwargs = record["kwargs"]
    return {
        # Any of timm's Swins: `model_args` gives all its numbers.
        "architecture": "swin_tiny_patch4_window7_224",
        "num_classes": kwargs["num_classes"],
        "num_features": _channels(kwargs)[-1],
        "pretrained_cfg": ends("patch_embed.proj", "head.fc"),
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
