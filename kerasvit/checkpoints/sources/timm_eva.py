"""timm's EVA models: EVA-02, DINOv3, Perception Encoder, ViTs with rotary positions.

Tensor names and layouts as timm/models/eva.py writes them. The tensors do not determine
the positions: they follow from the name of the architecture, or its `model_args`.
"""

import re
from collections.abc import Set
from typing import Any

import numpy as np

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import (
    CONVOLUTION,
    KeyMap,
    Transform,
    torch_dense,
    torch_norm,
    torch_stacked,
)
from ..reader import CheckpointError, printable
from .source import count, names_of_classes
from .timm import TimmSource, cfg, differing, image_size, model_args, ratio
from .timm_names import refuse_unlike
from .timm_vit import GATED, POOLING

_FC2 = "blocks.0.mlp.fc2.weight"
_AXIAL = {"use_rot_pos_emb": True}
_NAVER = {"rope_grid_indexing": "xy", "rope_temperature": 100.0, "global_pool": "token"}
_PE = {**_AXIAL, "rope_grid_indexing": "xy", "epsilon": 1e-5}
# What the tensors do not determine, by the name of the architecture; all that match.
# `epsilon` is that of `norm_layer`, which model_args cannot state.
_NAMED: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "_dinov3|_lingbot",
        {
            **_AXIAL,
            "rope_type": "dinov3",
            "rope_temperature": 100.0,
            "rope_rotate_half": True,
            "epsilon": 1e-5,
        },
    ),
    ("_lingbot|^eva.*_clip_", {"global_pool": "token"}),
    ("^eva02_(?!enormous)", {**_AXIAL, "ref_feat_shape": [16, 16]}),
    ("^eva02_enormous", {"use_post_norm": True}),
    (r"_rope_reg\d", {**_AXIAL, "ref_feat_shape": [16, 16]}),
    (r"_rope(_mixed)?(_ape)?_\d", {**_AXIAL, **_NAVER}),
    ("_rope_mixed", {"rope_type": "mixed", "rope_temperature": 10.0}),
    ("_rope.*_ape_", {"no_embed_class": True}),
    ("_pe_", {**_PE, "ref_feat_shape": [32, 32]}),
    ("_pe_(?!.*gigantic)", {"rope_grid_offset": 1.0}),
    ("_pe_core_", {"attn_pool_num_heads": 8}),
    ("_pe_core_(tiny|small|large)", {"ref_feat_shape": [24, 24]}),
    ("_pe_core_base", {"ref_feat_shape": [14, 14]}),
)
_HEADS = {
    "tiny": 3,
    "small": 6,
    "medium": 8,
    "mediumd": 8,
    "betwixt": 10,
    "base": 12,
    "large": 16,
    "huge": 20,
    "giant": 16,
    "gigantic": 16,
    "enormous": 16,
    "7b": 32,
}
_NAMES = r"eva(02|_giant)_|vit_(\w+_)?(dinov3|lingbot|rope|pe)(_|$)"
# Arguments that are applied, that the tensors determine, and for training only.
_ARGUMENTS = {
    *("use_rot_pos_emb", "rope_type", "rope_temperature", "rope_grid_offset"),
    *("rope_grid_indexing", "rope_rotate_half", "ref_feat_shape", "use_post_norm"),
    *("no_embed_class", "attn_pool_num_heads", "global_pool", "num_heads", "img_size"),
    *("patch_size", "in_chans", "num_classes", "embed_dim", "depth", "mlp_ratio"),
    *("qkv_bias", "qkv_fused", "swiglu_mlp", "swiglu_align_to", "scale_mlp"),
    *("scale_attn_inner", "attn_type", "init_values", "class_token", "num_reg_tokens"),
    *("use_abs_pos_emb", "use_pre_transformer_norm", "use_post_transformer_norm"),
    *("use_fc_norm", "attn_pool_mlp_ratio", "dynamic_img_size", "head_init_scale"),
    *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate"),
    *("attn_drop_rate", "drop_path_rate"),
    *("rope_shift_coords", "rope_jitter_coords", "rope_rescale_coords"),
}


class TimmEva(TimmSource):
    """ViTs with rotary positions, and EVA's without."""

    builder = "RotaryVisionTransformer"

    def named(self, config: Config) -> bool:
        return bool(re.match(_NAMES, config.text("architecture")))

    def recognises(self, names: Set[str]) -> bool:
        own = ("attn.q_bias", "attn.q_proj.weight", "attn.norm.weight", "gamma_1")
        of_blocks = {f"blocks.0.{name}" for name in own}
        return "patch_embed.proj.weight" in names and bool(
            names & {*of_blocks, "rope.freqs"}
        )

    def describe(self, shapes: Shapes, config: Config) -> Description:
        patch = shapes.patch_size("patch_embed.proj.weight")
        numbers = {
            "patch_size": patch,
            "width": shapes.of("patch_embed.proj.weight", 4)[0],
            "depth": count(shapes, "blocks.{}.norm1.weight"),
            "mlp_dim": shapes.of(_FC2, 2)[1],
        }
        stated = _stated(config)
        arguments = _arguments(shapes, stated)
        if heads := _heads(config):
            numbers["num_heads"] = heads
        grid = None
        if "pos_embed" in shapes:
            prefix = arguments["class_token"] + arguments["register_tokens"]
            rows = shapes.of("pos_embed", 3)[1]
            grid = TokenGrid("pos_embed", rows, patch, prefix)
        open_arguments = () if stated else ("num_heads", "rotary", "epsilon")
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers=numbers,
            arguments=arguments,
            kernel=self.kernel,
            grid=grid,
            stride=patch,
            image_size=image_size(config),
            label_names=names_of_classes(
                config.names("label_names"), arguments["num_classes"]
            ),
            open_arguments=open_arguments,
            architecture=config.text("architecture"),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return key_map(kwargs, shapes)

    def differs(self, record: dict[str, Any]) -> str | None:
        known = {
            "activation": ["gelu"],
            "epsilon": [1e-6, 1e-5],
            "layer_scale": [record["kwargs"]["layer_scale"]],
        }
        if record["kwargs"]["branch_norm"] == "after":
            known["layer_scale"] = [None]
        return differing(record["kwargs"], known)

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        # The name states the epsilon, `model_args` all else.
        wide = kwargs["epsilon"] == 1e-5
        name = "vit_small_patch16_dinov3" if wide else "eva_giant_patch14_224"
        pool = {"token": "token", "attention": "map"}.get(kwargs["pool"], "avg")
        return {
            "architecture": name,
            "num_classes": kwargs["num_classes"],
            "num_features": kwargs["width"],
            "global_pool": pool,
            "pretrained_cfg": cfg("patch_embed.proj", "head"),
            "model_args": _timm_arguments(kwargs) | {"global_pool": pool},
        }


def _stated(config: Config) -> dict[str, Any]:
    """Returns timm's arguments that the tensors do not determine; {} if none is known.

    Raises:
        CheckpointError: The configuration has other arguments than timm's EVA models,
            or asks for an architecture that kerasvit cannot build.
    """
    name, args = config.text("architecture"), model_args(config)
    other = sorted(
        key for key in args if args[key] is not None and key not in _ARGUMENTS
    )
    if other:
        raise CheckpointError(
            f"The configuration asks for timm's {printable(name or 'EVA model')} with "
            f"the arguments {', '.join(map(printable, other))}, which kerasvit does "
            f"not know. It knows {', '.join(sorted(_ARGUMENTS))}."
        )
    if not name and not args:
        return {}
    refuse_unlike(name)
    if name and not re.match(_NAMES, name):
        raise CheckpointError(
            f"timm's {printable(name)} has parts that kerasvit cannot build."
        )
    found: dict[str, Any] = {"rope_type": "cat", "rope_temperature": 10_000.0}
    found |= {"epsilon": 1e-6, "global_pool": "avg"}
    for pattern, given in _NAMED:
        if re.search(pattern, name):
            found |= given
    return {**found, **{k: v for k, v in args.items() if v is not None}}


def _heads(config: Config) -> int | None:
    """Returns timm's number of attention heads, or None."""
    name = config.text("architecture")
    stated = model_args(config).integer("num_heads")
    if stated is not None:
        return stated
    if name == "vit_giant_patch16_lingbot":
        return 24
    words = [word for word in name.split("_") if word in _HEADS]
    return _HEADS[words[0]] if words else None


def _arguments(shapes: Shapes, stated: dict[str, Any]) -> dict[str, Any]:
    """Returns the builder's arguments that the files determine."""
    attention, mlp = "blocks.0.attn.", "blocks.0.mlp."
    packed = mlp + "fc1.weight" in shapes and (
        shapes.of(mlp + "fc1.weight", 2)[0] == 2 * shapes.of(_FC2, 2)[1]
    )
    own_bias = {attention + "q_bias", attention + "q_proj.bias"} & set(shapes)
    key_bias = {attention + "qkv.bias", attention + "k_proj.bias"} & set(shapes)
    arguments: dict[str, Any] = {
        "channels": shapes.of("patch_embed.proj.weight", 4)[1],
        "num_classes": shapes.side("head.weight", 0, 2, default=0),
        "pool": _pool(shapes, stated),
        "pool_heads": None,
        "class_token": "cls_token" in shapes,
        "register_tokens": shapes.side("reg_token", 1, 3, default=0),
        "positions": "none",
        "patch_bias": "patch_embed.proj.bias" in shapes,
        "pre_norm": "norm_pre.weight" in shapes,
        "final_norm": bool({"norm.weight", "fc_norm.weight"} & set(shapes)),
        "qkv_bias": bool(own_bias or key_bias),
        "key_bias": bool(key_bias) or not own_bias,
        "attention_norm": attention + "norm.weight" in shapes,
        "mlp": "swiglu" if packed or mlp + "fc1_g.weight" in shapes else "plain",
        "mlp_norm": mlp + "norm.weight" in shapes,
        "layer_scale": None,
        "activation": "gelu",
    }
    if "pos_embed" in shapes:
        rows = "patches" if stated.get("no_embed_class") else "tokens"
        arguments["positions"] = rows
    if "blocks.0.gamma_1" in shapes:
        arguments["layer_scale"] = stated.get("init_values", 1e-5)
    if "attn_pool.latent" in shapes:
        arguments["pool_heads"] = stated.get("attn_pool_num_heads")
    if stated:
        arguments["epsilon"] = stated["epsilon"]
        arguments["branch_norm"] = "after" if stated.get("use_post_norm") else "before"
        arguments["rotary"] = _rotary(stated)
    return arguments


def _rotary(stated: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the builder's argument `rotary`."""
    if not stated.get("use_rot_pos_emb"):
        return None
    kind = stated["rope_type"]
    if kind not in ("cat", "dinov3", "mixed"):
        raise CheckpointError(
            f"The configuration asks for timm's rope_type={kind!r:.100}. kerasvit "
            "builds cat, dinov3 and mixed."
        )
    reference = None
    if kind == "cat" and (size := Config(stated).image_size("ref_feat_shape")):
        reference = [*size]
    order = stated.get("rope_grid_indexing", "ij")
    halves = stated.get("rope_rotate_half", False)
    if order not in ("ij", "xy") or not isinstance(halves, bool):
        raise CheckpointError(
            "config.json must have `rope_grid_indexing` 'ij' or 'xy' and a boolean "
            f"`rope_rotate_half`. Received: {order!r:.100} and {halves!r:.100}."
        )
    return {
        "temperature": stated["rope_temperature"],
        "coordinates": "centered" if kind == "dinov3" else "index",
        "reference": reference,
        "offset": 0.0 if kind == "mixed" else stated.get("rope_grid_offset", 0.0),
        "order": "xy" if order == "xy" else "yx",
        "pairs": "halves" if halves else "neighbours",
        "mixed": kind == "mixed",
    }


def _pool(shapes: Shapes, stated: dict[str, Any]) -> str:
    pool = stated.get("global_pool")
    if "attn_pool.latent" in shapes:
        pool = "map"
    if pool is None:
        pool = "token" if "cls_token" in shapes else "avg"
    if pool == "avg" and "fc_norm.weight" in shapes:
        return "average_then_norm"
    known = {"token": "token", "avg": "average", "map": "attention"}
    behind = "fc_norm.weight" in shapes
    if not isinstance(pool, str) or pool not in known or behind:
        raise CheckpointError(
            f"The configuration asks for timm's pooling {pool!r:.100}, and the file "
            f"has {'a' if behind else 'no'} normalisation behind. "
            "kerasvit builds token, avg and map, and this normalisation for avg."
        )
    return known[pool]


def _timm_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns all of timm's arguments for a model, whatever its name's are."""
    resampling, rotary = kwargs["resampling"], kwargs["rotary"] or {}
    size = (resampling or kwargs)["image_size"]
    any_size = size[0] is None or resampling is not None
    kind = "dinov3" if rotary.get("coordinates") == "centered" else "cat"
    behind = kwargs["pool"] == "average_then_norm"
    return {
        "img_size": [224, 224] if size[0] is None else list(size),
        "dynamic_img_size": any_size,
        "patch_size": kwargs["patch_size"],
        "embed_dim": kwargs["width"],
        "depth": kwargs["depth"],
        "num_heads": kwargs["num_heads"],
        "mlp_ratio": ratio(kwargs["mlp_dim"], kwargs["width"]),
        "swiglu_mlp": kwargs["mlp"] == "swiglu",
        "swiglu_align_to": 0,
        "scale_mlp": kwargs["mlp_norm"],
        "scale_attn_inner": kwargs["attention_norm"],
        "qkv_bias": kwargs["qkv_bias"],
        "qkv_fused": True,
        "attn_type": "rope" if kwargs["key_bias"] and kwargs["qkv_bias"] else "eva",
        "init_values": kwargs["layer_scale"],
        "class_token": kwargs["class_token"],
        "num_reg_tokens": kwargs["register_tokens"],
        "use_abs_pos_emb": kwargs["positions"] != "none",
        "no_embed_class": kwargs["positions"] == "patches",
        "use_rot_pos_emb": bool(rotary),
        "rope_type": "mixed" if rotary.get("mixed") else kind,
        "rope_temperature": rotary.get("temperature", 10_000.0),
        "rope_grid_offset": rotary.get("offset", 0.0),
        "rope_grid_indexing": "xy" if rotary.get("order") == "xy" else "ij",
        "rope_rotate_half": rotary.get("pairs") == "halves",
        "ref_feat_shape": rotary.get("reference"),
        "use_post_norm": kwargs["branch_norm"] == "after",
        "use_pre_transformer_norm": kwargs["pre_norm"],
        "use_post_transformer_norm": kwargs["final_norm"] and not behind,
        "use_fc_norm": behind,
        "attn_pool_num_heads": kwargs["pool_heads"] or kwargs["num_heads"],
        "attn_pool_mlp_ratio": 4.0,
    }


def key_map(kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
    """Returns the map of an EVA model's names."""
    names = set(shapes or ())
    block, ours = "blocks.{i}.", "encoder_block_{i}/"
    attention = ours + "attention/"
    behind = kwargs["pool"] == "average_then_norm"
    if names:
        behind = "norm.weight" not in names
    by_block = Transform(
        lambda a: [a[:, i] for i in range(a.shape[1])],
        lambda arrays: np.stack(arrays, axis=1),
    )
    blocks = range(kwargs["depth"])
    rotation = "encoder_block_{}/attention/rotation/frequencies".format
    return KeyMap(
        ("cls_token", "class_token/tokens"),
        ("reg_token", "register_tokens/tokens"),
        ("pos_embed", "position_embedding/table"),
        ("patch_embed.proj.weight", "embedding/kernel", CONVOLUTION),
        ("patch_embed.proj.bias", "embedding/bias"),
        *torch_norm("norm_pre", "pre_norm"),
        *torch_norm(block + "norm1", ours + "attention_norm"),
        *_qkv(kwargs, block + "attn.", attention),
        *torch_norm(block + "attn.norm", attention + "norm"),
        *torch_dense(block + "attn.proj", attention + "output"),
        (block + "gamma_1", ours + "attention_scale"),
        *torch_norm(block + "norm2", ours + "mlp_norm"),
        *_hidden(kwargs, names, block + "mlp.", ours + "mlp/"),
        *torch_norm(block + "mlp.norm", ours + "mlp/norm"),
        *torch_dense(block + "mlp.fc2", ours + "mlp/dense_1"),
        (block + "gamma_2", ours + "mlp_scale"),
        ("rope.freqs", tuple(map(rotation, blocks)), by_block),
        *torch_norm("fc_norm" if behind else "norm", "encoder_norm"),
        *POOLING,
        *torch_dense("head", "head"),
    )


def _qkv(kwargs: dict[str, Any], theirs: str, ours: str) -> tuple:
    """Returns rules of query, key and value; one or three layers of timm."""
    qkv = [ours + name for name in ("query", "key", "value")]
    rules = [*torch_stacked(theirs + "qkv", *qkv)]
    for name, path in zip("qkv", qkv, strict=True):
        rules += torch_dense(f"{theirs}{name}_proj", path)
    if kwargs["qkv_bias"] and not kwargs["key_bias"]:
        # timm names the biases of query and value where the key has none.
        biases = [(theirs + "q_bias", qkv[0]), (theirs + "v_bias", qkv[2])]
        rules = [(name, path + "/bias") for name, path in biases] + rules
    return tuple(rules)


def _hidden(kwargs: dict[str, Any], names: set[str], theirs: str, ours: str) -> tuple:
    """Returns rules of an MLP's first layers; timm has gates apart or in one tensor."""
    plain = torch_dense(theirs + "fc1", ours + "dense_0")
    if kwargs["mlp"] == "plain":
        return tuple(plain)
    if "blocks.0.mlp.fc1_g.weight" not in names and not kwargs["mlp_norm"]:
        return (*GATED, *plain)
    gate = torch_dense(theirs + "fc1_g", ours + "gate")
    return (*gate, *torch_dense(theirs + "fc1_x", ours + "dense_0"), *plain)
