"""timm's BEiTs and Microsoft's original files, BEiT v2's included.

Tensor names and layouts as timm/models/beit.py writes them, which are those of
microsoft/unilm.
"""

import re
from collections.abc import Set
from typing import Any

from kerasvit.arguments import Size, whole_patches
from kerasvit.types import PatchSize

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import CONVOLUTION, KeyMap, torch_dense, torch_norm, torch_stacked
from ..reader import CheckpointError, printable
from .source import count, names_of_classes
from .timm import (
    TimmSource,
    cfg,
    differing,
    image_size,
    input_size,
    model_args,
    ratio,
)

OWN_TABLE = "blocks.0.attn.relative_position_bias_table"
SHARED_TABLE = "rel_pos_bias.relative_position_bias_table"
_NAMES = r"beit(v2)?_(base|large)_patch16_\d+$"
# Arguments of timm's model that kerasvit does not build.
_UNLIKE = ("swiglu_mlp", "scale_mlp")
# Arguments that are applied, that the tensors determine, and for training only.
_ARGUMENTS = {
    *("img_size", "num_heads", "global_pool", "init_values", "use_fc_norm"),
    *("patch_size", "in_chans", "num_classes", "embed_dim", "depth", "mlp_ratio"),
    *("qkv_bias", "use_abs_pos_emb", "use_rel_pos_bias", "use_shared_rel_pos_bias"),
    *("drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate"),
    *("drop_path_rate", "head_init_scale"),
    *_UNLIKE,
}


class TimmBEiT(TimmSource):
    """BEiTs. `kernel` follows timm/layers/pos_embed_rel.py, as for Swin."""

    builder = "BEiTTransformer"
    kernel = "geometric_linear"

    def named(self, config: Config) -> bool:
        return bool(re.match(_NAMES, config.text("architecture")))

    def recognises(self, names: Set[str]) -> bool:
        tables = {OWN_TABLE, SHARED_TABLE} & names
        return "patch_embed.proj.weight" in names and bool(tables)

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.endswith("relative_position_index"):
            return "computed from the grid of the patches; older files hold it too"
        if name == "mask_token" and "lm_head.weight" not in names:
            return "takes the place of masked patches in training only"
        return None

    def describe(self, shapes: Shapes, config: Config) -> Description:
        _refuse_unlike(shapes, config)
        width, channels, *_ = shapes.of("patch_embed.proj.weight", 4)
        patch = shapes.patch_size("patch_embed.proj.weight")
        numbers = {
            "patch_size": patch,
            "width": width,
            "depth": count(shapes, "blocks.{}.norm1.weight"),
            "mlp_dim": shapes.of("blocks.0.mlp.fc1.weight", 2)[0],
        }
        args = model_args(config)
        tables = (OWN_TABLE, SHARED_TABLE, "pos_embed")
        position_bias, absolute, heads = positions_of(shapes, *tables)
        heads = heads or args.integer("num_heads")
        numbers |= {"num_heads": heads} if heads else {}
        classes = shapes.side("head.weight", 0, 2, default=0)
        arguments = {
            "channels": channels,
            "num_classes": classes,
            "pool": _pool(shapes, config),
            "position_bias": position_bias,
            "absolute_positions": absolute,
            "final_norm": True,
            "qkv_bias": "blocks.0.attn.q_bias" in shapes,
            "layer_scale": None,
            "activation": "gelu",
            "epsilon": 1e-6,
        }
        if "blocks.0.gamma_1" in shapes:
            large = width == 1024 or config.text("architecture").startswith("beitv2")
            start = args.get("init_values") or (1e-5 if large else 0.1)
            arguments["layer_scale"] = start
        stated = image_size(config)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers=numbers,
            arguments=arguments,
            kernel=self.kernel,
            grid=grid_of_patches(shapes, patch, stated or input_size(config), *tables),
            stride=patch,
            image_size=stated,
            label_names=names_of_classes(config.names("label_names"), classes),
            architecture=config.text("architecture"),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        block, ours = "blocks.{i}.", "encoder_block_{i}/"
        qkv = tuple(f"{ours}attention/{name}" for name in ("query", "key", "value"))
        behind = kwargs["pool"] == "average_then_norm"
        if shapes:  # the class token may be normalised by either
            behind = "norm.weight" not in shapes
        return KeyMap(
            ("cls_token", "class_token/tokens"),
            ("pos_embed", "position_embedding/table"),
            ("patch_embed.proj.weight", "embedding/kernel", CONVOLUTION),
            ("patch_embed.proj.bias", "embedding/bias"),
            (SHARED_TABLE, "position_bias/table"),
            *torch_norm(block + "norm1", ours + "attention_norm"),
            (block + "attn.q_bias", qkv[0] + "/bias"),
            (block + "attn.v_bias", qkv[2] + "/bias"),
            (
                block + "attn.relative_position_bias_table",
                ours + "attention/position_bias/table",
            ),
            *torch_stacked(block + "attn.qkv", *qkv),
            *torch_dense(block + "attn.proj", ours + "attention/output"),
            (block + "gamma_1", ours + "attention_scale"),
            *torch_norm(block + "norm2", ours + "mlp_norm"),
            *torch_dense(block + "mlp.fc1", ours + "mlp/dense_0"),
            *torch_dense(block + "mlp.fc2", ours + "mlp/dense_1"),
            (block + "gamma_2", ours + "mlp_scale"),
            *torch_norm("fc_norm" if behind else "norm", "encoder_norm"),
            *torch_dense("head", "head"),
        )

    def differs(self, record: dict[str, Any]) -> str | None:
        kwargs = record["kwargs"]
        if kwargs["resampling"] is not None:
            return "it takes images of any size, timm's of one"
        known = {"activation": ["gelu"], "epsilon": [1e-6], "final_norm": [True]}
        # timm has no scales that start at 0.
        known["layer_scale"] = [kwargs["layer_scale"] or None]
        return differing(kwargs, known)

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        pool = "token" if kwargs["pool"] == "token" else "avg"
        return {
            # The name is arbitrary: `model_args` states all numbers.
            "architecture": "beit_base_patch16_224",
            "num_classes": kwargs["num_classes"],
            "num_features": kwargs["width"],
            "global_pool": pool,
            "pretrained_cfg": cfg("patch_embed.proj", "head"),
            "model_args": {
                "img_size": list(kwargs["image_size"]),
                "patch_size": kwargs["patch_size"],
                "embed_dim": kwargs["width"],
                "depth": kwargs["depth"],
                "num_heads": kwargs["num_heads"],
                "mlp_ratio": ratio(kwargs["mlp_dim"], kwargs["width"]),
                "qkv_bias": kwargs["qkv_bias"],
                "init_values": kwargs["layer_scale"],
                "use_abs_pos_emb": kwargs["absolute_positions"],
                "use_rel_pos_bias": kwargs["position_bias"] == "blocks",
                "use_shared_rel_pos_bias": kwargs["position_bias"] == "shared",
                "global_pool": pool,
                "use_fc_norm": kwargs["pool"] == "average_then_norm",
            },
        }


def positions_of(
    shapes: Shapes, own: str, shared: str, absolute: str
) -> tuple[str, bool, int | None]:
    """Returns `position_bias`, `absolute_positions` and the number of heads or None.

    Args:
        shapes: Shapes of a BEiT's tensors.
        own, shared, absolute: Names of the tables: of the first block, of all blocks,
            and of absolute positions.

    Raises:
        CheckpointError: There is a table of each block, and one for all of them.
    """
    if own in shapes and shared in shapes:
        raise CheckpointError(
            "The file has biases of relative positions for each block, and others for "
            "all of them. kerasvit builds BEiTs with either."
        )
    heads = [shapes.of(name, 2)[1] for name in (own, shared) if name in shapes]
    found = "blocks" if own in shapes else "shared" if shared in shapes else "none"
    return found, absolute in shapes, heads[0] if heads else None


def grid_of_patches(
    shapes: Shapes,
    patch: PatchSize,
    stated: Size | None,
    own: str,
    shared: str,
    absolute: str,
) -> TokenGrid | None:
    """Returns the table that depends on the patches; None if none determines them.

    Args:
        shapes: Shapes of a BEiT's tensors.
        patch: Side of a patch in pixels, or (height, width).
        stated: (height, width) in pixels that the configuration states, or None.
        own, shared, absolute: As for `positions_of`.
    """
    if absolute in shapes:
        return TokenGrid(absolute, shapes.of(absolute, 3)[1] - 1, patch)
    table = own if own in shapes else shared
    if table not in shapes:
        return None
    rows = shapes.of(table, 2)[0] - 3  # the last are those of the class token
    grids = [[(round(max(rows, 0) ** 0.5) + 1) // 2] * 2]
    if stated:
        grids.insert(0, [*whole_patches(stated, patch)])
    for height, width in grids:
        if (2 * height - 1) * (2 * width - 1) == rows:
            return TokenGrid(table, height * width, patch)
    return None


def _refuse_unlike(shapes: Shapes, config: Config) -> None:
    """Raises if kerasvit cannot build timm's model."""
    if "lm_head.weight" in shapes:
        raise CheckpointError(
            "The file has a head that predicts masked patches (lm_head), which "
            "kerasvit does not build. Use the files of a fine-tuned model."
        )
    args = model_args(config)
    other = sorted(
        key for key in args if args[key] is not None and key not in _ARGUMENTS
    )
    if other:
        raise CheckpointError(
            f"The configuration asks for timm's BEiT with the arguments "
            f"{', '.join(map(printable, other))}, which kerasvit does not know. It "
            f"knows {', '.join(sorted(_ARGUMENTS))}."
        )
    for key in _UNLIKE:
        if args.get(key):
            raise CheckpointError(
                f"config.json states {key}={args[key]!r:.200} for timm's BEiT, which "
                "kerasvit does not build."
            )


def _pool(shapes: Shapes, config: Config) -> str:
    behind = "fc_norm.weight" in shapes
    args = model_args(config)
    stated = args if "global_pool" in args else config
    if stated.get("global_pool") is None:  # as in Microsoft's code
        pool = "avg" if behind else "token"
    else:
        pool = stated.text("global_pool")
    known = {"token": "token", "avg": "average_then_norm" if behind else "average"}
    if pool not in known:
        raise CheckpointError(
            f"The configuration asks for timm's pooling {pool!r:.100}. kerasvit builds "
            f"{' and '.join(known)}."
        )
    return known[pool]
