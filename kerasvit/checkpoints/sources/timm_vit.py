"""timm's Vision Transformers; kerasvit also saves ViTs in this format.

Tensor names and layouts as timm/models/vision_transformer.py writes them.
"""

from collections.abc import Set
from typing import Any

from kerasvit.arguments import patch_sides
from kerasvit.types import PatchSize

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import CONVOLUTION, KeyMap, torch_dense, torch_norm, torch_stacked
from ..reader import CheckpointError
from . import timm_names
from .source import count, names_of_classes
from .timm import TimmSource, cfg, differing, image_size, input_size, model_args, ratio

NUMERICS = {"epsilon": [1e-6]}  # values that timm's ViTs without CLIP support
_FC1, _FC2 = "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc2.weight"

# {(width, depth, heads): (size in timm's names, patch sizes that names of 224 pixels
# have)}; timm/models/vision_transformer.py.
_SIZES: dict[tuple[int, int, int], tuple] = {
    (192, 12, 3): ("tiny", 16),
    (384, 12, 6): ("small", 16, 32, 8),
    (768, 12, 12): ("base", 16, 32, 8),
    (1024, 24, 16): ("large", 16, 32, 14),
    (1280, 32, 16): ("huge", 14),
}
# timm's SwiGLUPacked: the gate is the first half of the tensor.
GATED = torch_stacked(
    "blocks.{i}.mlp.fc1", "encoder_block_{i}/mlp/gate", "encoder_block_{i}/mlp/dense_0"
)
# `AttentionPoolLatent`.
POOLING = (
    ("attn_pool.latent", "pool/probe"),
    *torch_dense("attn_pool.q", "pool/attention/query"),
    *torch_stacked("attn_pool.kv", "pool/attention/key", "pool/attention/value"),
    *torch_dense("attn_pool.proj", "pool/attention/output"),
    *torch_norm("attn_pool.norm", "pool/mlp_norm"),
    *torch_dense("attn_pool.mlp.fc1", "pool/mlp/dense_0"),
    *torch_dense("attn_pool.mlp.fc2", "pool/mlp/dense_1"),
)


class TimmViT(TimmSource):
    """Vision Transformers, except distilled DeiTs and hybrids."""

    builder = "VisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        others = ("dist_token", "patch_embed.backbone.")
        if any(name.startswith(others) for name in names):
            return False
        return "patch_embed.proj.weight" in names and "blocks.0.norm1.weight" in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        return describe_vit(shapes, config)

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        # The final LayerNormalization is called fc_norm if it follows the pooling.
        behind = kwargs["pool"] == "average_then_norm"
        if shapes:
            behind = "norm.weight" not in shapes
        gated = kwargs["mlp"] == "swiglu"
        return KeyMap(
            *(GATED if gated else ()),
            *transformer("fc_norm" if behind else "norm"),
            ("reg_token", "register_tokens/tokens"),
            *torch_norm("norm_pre", "pre_norm"),
            *POOLING,
        )

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name == "mask_token":  # of DINOv2 by facebookresearch, which has these names
            return "takes the place of masked patches in training only"
        return None

    def differs(self, record: dict[str, Any]) -> str | None:
        # timm's ViTs have learned positions, no pre-logits, and a bias of the patches
        # unless they normalise before the blocks. `act_layer` states the GELU, the name
        # the epsilon and SwiGLU, with LayerScale and SiLU in attention pooling.
        kwargs = record["kwargs"]
        known: dict[str, list[Any]] = {
            "pool": ["token", "average", "average_then_norm", "attention"],
            "positions": ["tokens", "patches"],
            "representation_size": [None],
            "patch_bias": [not kwargs["pre_norm"]],
            "epsilon": [1e-6, 1e-5],
        }
        if kwargs["mlp"] == "swiglu":
            scale = kwargs["layer_scale"]
            known["epsilon"] = [1e-6]
            known["layer_scale"] = [1e-5 if scale is None else scale]
            known["pool"].remove("attention")
        return differing(kwargs, known)

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        base = transformer_config(kwargs)
        pool = kwargs["pool"]
        global_pool = {"token": "token", "attention": "map"}.get(pool, "avg")
        # `model_args` states all numbers; the name has the rest.
        clip = kwargs["epsilon"] == 1e-5
        name = "vit_base_patch16_clip_224" if clip else _name_of(kwargs)
        mlp: dict[str, Any] = {}
        if kwargs["mlp"] == "swiglu":
            name = "vit_giant_patch14_dinov2"
            packed = ratio(2 * kwargs["mlp_dim"], kwargs["width"])
            mlp = {"mlp_ratio": packed, "act_layer": "silu"}
        return {
            "architecture": name,
            **base,
            "global_pool": global_pool,
            "model_args": {
                **base["model_args"],
                **mlp,
                "pre_norm": kwargs["pre_norm"],
                "final_norm": kwargs["final_norm"],
                "global_pool": global_pool,
                "fc_norm": pool == "average_then_norm",
                "class_token": kwargs["class_token"],
                "reg_tokens": kwargs["register_tokens"],
                "no_embed_class": kwargs["positions"] == "patches",
            },
        }


def transformer(norm: str = "norm") -> tuple[tuple, ...]:
    """Returns the rules of a plain ViT; `norm` is the final normalisation's name."""
    block, ours = "blocks.{i}.", "encoder_block_{i}/"
    qkv = (f"{ours}attention/{name}" for name in ("query", "key", "value"))
    return (
        ("cls_token", "class_token/tokens"),
        ("pos_embed", "position_embedding/table"),
        ("patch_embed.proj.weight", "embedding/kernel", CONVOLUTION),
        ("patch_embed.proj.bias", "embedding/bias"),
        *torch_norm(block + "norm1", ours + "attention_norm"),
        *torch_stacked(block + "attn.qkv", *qkv),
        *torch_dense(block + "attn.proj", ours + "attention/output"),
        (block + "ls1.gamma", ours + "attention_scale"),
        *torch_norm(block + "norm2", ours + "mlp_norm"),
        *torch_dense(block + "mlp.fc1", ours + "mlp/dense_0"),
        *torch_dense(block + "mlp.fc2", ours + "mlp/dense_1"),
        (block + "ls2.gamma", ours + "mlp_scale"),
        *torch_norm(norm, "encoder_norm"),
        *torch_dense("head", "head"),
    )


def _name_of(kwargs: dict[str, Any]) -> str:
    """Returns timm's plain ViT of this size, of this patch size if timm has it."""
    numbers = (kwargs["width"], kwargs["depth"], kwargs["num_heads"])
    size, first, *patches = _SIZES.get(numbers, ("base", 16))
    patch = kwargs["patch_size"]
    return f"vit_{size}_patch{patch if patch in patches else first}_224"


def describe_vit(shapes: Shapes, config: Config) -> Description:
    """Returns the description of a ViT from its tensors and `config.json`."""
    timm_names.check_supported(config)
    timm_names.check_supported_names(shapes, config)
    patch = shapes.patch_size("patch_embed.proj.weight")
    arguments = _arguments(shapes, config)
    open_arguments, assumptions = _assumed(shapes, config)
    return Description(
        code_base=TimmViT.code_base,
        builder=TimmViT.builder,
        numbers=numbers(shapes, config),
        arguments=arguments,
        kernel=TimmViT.kernel,
        grid=_grid(shapes, patch, arguments),
        image_size=image_size(config),
        label_names=names_of_classes(
            config.names("label_names"), arguments["num_classes"]
        ),
        open_arguments=open_arguments,
        assumptions=assumptions,
        architecture=config.text("architecture"),
    )


def numbers(shapes: Shapes, config: Config) -> dict[str, Any]:
    """Returns the numbers of the architecture that the files determine."""
    numbers = {
        "patch_size": shapes.patch_size("patch_embed.proj.weight"),
        "width": shapes.of("patch_embed.proj.weight", 4)[0],
        "depth": count(shapes, "blocks.{}.norm1.weight"),
        "mlp_dim": shapes.of(_FC2, 2)[1],
    }
    heads = timm_names.heads(config)
    return {**numbers, "num_heads": heads} if heads else numbers


def _grid(
    shapes: Shapes, patch: PatchSize, arguments: dict[str, Any]
) -> TokenGrid | None:
    """Returns the position table; None if the model computes positions."""
    if "pos_embed" not in shapes:
        return None
    prefix = arguments["class_token"] + arguments["register_tokens"]
    return TokenGrid("pos_embed", shapes.of("pos_embed", 3)[1], patch, prefix)


def _arguments(shapes: Shapes, config: Config) -> dict[str, Any]:
    """Returns the builder's arguments that tensors and `config.json` determine."""
    registers = shapes.side("reg_token", 1, 3, default=0)
    gated = _gated(shapes)
    arguments = {
        "channels": shapes.of("patch_embed.proj.weight", 4)[1],
        "num_classes": shapes.side("head.weight", 0, 2, default=0),
        "pool": _pool(shapes, config, gated),
        "class_token": "cls_token" in shapes,
        "register_tokens": registers,
        "representation_size": None,
        "patch_bias": "patch_embed.proj.bias" in shapes,
        "pre_norm": "norm_pre.weight" in shapes,
        "final_norm": bool({"norm.weight", "fc_norm.weight"} & set(shapes)),
        "qkv_bias": "blocks.0.attn.qkv.bias" in shapes,
        "layer_scale": None,
        "mlp": "swiglu" if gated else "plain",
        "activation": timm_names.activation(config, gated),
        "epsilon": timm_names.epsilon(shapes, config),
    }
    if not timm_names.names_model(config) and timm_names.tanh_by_size(shapes):
        arguments["activation"] = "gelu_tanh"
    if "blocks.0.ls1.gamma" in shapes:
        arguments["layer_scale"] = model_args(config).get("init_values", 1e-5)
    patch = patch_sides(shapes.patch_size("patch_embed.proj.weight"))
    size = image_size(config) or input_size(config) or ()
    if any(side % each for side, each in zip(size, patch, strict=False)):
        # timm's convolution ignores pixels that fill no patch.
        arguments["partial_patches"] = True
    # The tensors do not determine whether class and register tokens have rows in the
    # position table. Most of timm's published models with registers have none.
    if registers or config:
        patches_only = timm_names.no_embed_class(config) if config else True
        arguments["positions"] = "patches" if patches_only else "tokens"
    return arguments


def _assumed(shapes: Shapes, config: Config) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (arguments that no file states, other assumptions)."""
    args = model_args(config)
    if config.get("architecture"):
        # timm builds some CLIPs with GELU and notes that QuickGELU is the original's.
        noted = "QuickGELU" in str(config.part("pretrained_cfg").get("notes"))
        exact = timm_names.activation(config, _gated(shapes)) == "gelu"
        assumed = noted and exact and not args.get("act_layer")
        return ("activation",) if assumed else (), ()
    stated = {
        "num_heads": args.get("num_heads"),
        "activation": args.get("act_layer") or _gated(shapes),
        "epsilon": "norm_pre.weight" not in shapes,
        "pool": _pool_of(config)
        or "cls_token" not in shapes
        or {"attn_pool.latent", "fc_norm.weight"} & set(shapes),
    }
    words = []
    # In timm only blocks that normalise before the branches have LayerScale.
    if not (args or "blocks.0.ls1.gamma" in shapes):
        words.append("normalisation before attention and MLP, not after them")
    prefix = {"cls_token", "reg_token"} & set(shapes)
    if prefix and "attn_pool.latent" in shapes and not args:
        words.append("attention pooling over the patches only")
    return tuple(key for key, known in stated.items() if not known), tuple(words)


def _gated(shapes: Shapes) -> bool:
    """Returns whether the blocks have timm's SwiGLUPacked."""
    return shapes.of(_FC1, 2)[0] == 2 * shapes.of(_FC2, 2)[1]


def _pool_of(config: Config) -> Any:
    return model_args(config).get("global_pool", config.get("global_pool"))


def _pool(shapes: Shapes, config: Config, gated: bool) -> str:
    args, pool = model_args(config), _pool_of(config)
    if pool is None:
        pool = "token" if "cls_token" in shapes else "avg"
        if "attn_pool.latent" in shapes:
            pool = "map"
        elif "fc_norm.weight" in shapes:
            pool = "avg"
    if pool not in ("token", "avg", "map") or args.get("pool_include_prefix"):
        raise CheckpointError(
            f"The configuration asks for timm's pooling {pool!r} with "
            f"pool_include_prefix={args.get('pool_include_prefix', False)}. kerasvit "
            "builds token, avg and map, over the patches."
        )
    if pool == "map" and "fc_norm.weight" in shapes:
        raise CheckpointError(
            "The file has a normalisation after attention pooling (timm's "
            "fc_norm=True). kerasvit builds attention pooling of normalised tokens."
        )
    if pool == "map" and gated:
        raise CheckpointError(
            "The file has gated MLPs and attention pooling, for which timm has the "
            "activation SiLU. kerasvit builds attention pooling with a GELU."
        )
    if pool == "avg" and "fc_norm.weight" in shapes:
        return "average_then_norm"
    return {"token": "token", "avg": "average", "map": "attention"}[pool]


def transformer_config(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the part of `config.json` that all of timm's ViTs share."""
    resampling = kwargs.get("resampling")
    size = (resampling or kwargs)["image_size"]
    any_size = {"dynamic_img_size": True} if resampling else {}
    return {
        "num_classes": kwargs["num_classes"],
        "num_features": kwargs["width"],
        "pretrained_cfg": cfg("patch_embed.proj", "head"),
        "model_args": {
            "img_size": list(size),
            **any_size,
            "patch_size": kwargs["patch_size"],
            "embed_dim": kwargs["width"],
            "depth": kwargs["depth"],
            "num_heads": kwargs["num_heads"],
            "mlp_ratio": ratio(kwargs["mlp_dim"], kwargs["width"]),
            "qkv_bias": kwargs["qkv_bias"],
            "init_values": kwargs["layer_scale"],
            "act_layer": kwargs["activation"],
        },
    }
