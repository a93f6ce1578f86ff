"""timm's hybrids of a ResNet with group normalisation and a Vision Transformer.

Tensor names and layouts as timm/models/vision_transformer_hybrid.py and resnetv2.py
write them. Hybrids with timm's other backbones are not supported.
"""

from collections.abc import Set
from dataclasses import replace
from typing import Any

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import CONVOLUTION, KeyMap, torch_norm
from ..reader import CheckpointError
from . import timm_vit
from .big_transfer import unless_standard
from .google_hybrid import stride
from .source import count, count_stages
from .timm import TimmSource, cfg, differing

_BACKBONE = "patch_embed.backbone."
_SHARED = ("num_classes", "pool", "representation_size", "activation", "epsilon")

# {units of the ResNet's stages: timm's model}. Only these numbers cannot be stated in
# `model_args`.
_ARCHITECTURES = {
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}


class TimmHybrid(TimmSource):
    """Vision Transformers on the feature map of a ResNet with group normalisation."""

    builder = "HybridVisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        roots = (_BACKBONE + "stem.norm.weight", _BACKBONE + "norm.weight")
        return "blocks.0.norm1.weight" in names and any(root in names for root in roots)

    def describe(self, shapes: Shapes, config: Config) -> Description:
        vit = timm_vit.describe_vit(shapes, config)
        _refuse_unlike(shapes, vit.arguments)
        stages = count_stages(shapes, _BACKBONE + "stages.{}.blocks.0.conv1.weight")
        units = [
            count(shapes, f"{_BACKBONE}stages.{i}.blocks.{{}}.conv1.weight")
            for i in range(stages)
        ]
        root, channels, *_ = shapes.of(_stem(not units) + "conv.weight", 4)
        last = _BACKBONE + "stages.{}.blocks.0.conv3.weight"
        widths = [shapes.of(last.format(i), 4)[0] for i in range(stages)]
        return replace(
            vit,
            builder=self.builder,
            numbers={"resnet_depths": units, **vit.numbers},
            arguments={
                **{key: vit.arguments[key] for key in _SHARED},
                "channels": channels,
                "width_factor": root / 64,
                "stage_widths": unless_standard(widths, root),
                "group_epsilon": 1e-5,  # layers/norm_act.py, GroupNormAct
                "kernel_epsilon": 1e-8,  # StdConv2dSame, as _resnetv2 has it
                "add_to_deviation": False,
            },
            grid=TokenGrid(
                "pos_embed",
                shapes.of("pos_embed", 3)[1],
                shapes.square_patch("patch_embed.proj.weight") * stride(units),
                prefix=int(vit.arguments["pool"] == "token"),
            ),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        stem = _stem(not kwargs["resnet_depths"])
        unit, ours = _BACKBONE + "stages.{i}.blocks.{j}.", "stage_{i}_unit_{j}/"
        resnet = [
            (stem + "conv.weight", "root_conv/kernel", CONVOLUTION),
            *torch_norm(stem + "norm", "root_norm"),
            (unit + "downsample.conv.weight", ours + "projection/kernel", CONVOLUTION),
            *torch_norm(unit + "downsample.norm", ours + "projection_norm"),
        ]
        for k in range(3):
            conv = f"{unit}conv{k + 1}.weight"
            resnet.append((conv, f"{ours}conv_{k}/kernel", CONVOLUTION))
            resnet += torch_norm(f"{unit}norm{k + 1}", f"{ours}norm_{k}")
        return KeyMap(*resnet, *timm_vit.transformer("norm"))

    def differs(self, record: dict[str, Any]) -> str | None:
        # timm's ResNets have the paper's width, one of four lists of stages, and the
        # epsilons 1e-5 and 1e-8; the latter is added to the variance.
        known = {
            "resnet_depths": [list(depths) for depths in _ARCHITECTURES],
            "width_factor": [1],
            "stage_widths": [None],
            "group_epsilon": [1e-5],
            "kernel_epsilon": [1e-8],
            "add_to_deviation": [False],
            "representation_size": [None],
        }
        return differing(record["kwargs"], {**timm_vit.NUMERICS, **known})

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        base = timm_vit.transformer_config(
            {**kwargs, "qkv_bias": True, "layer_scale": None}
        )
        name = _ARCHITECTURES[tuple(kwargs["resnet_depths"])]
        token = kwargs["pool"] == "token"
        pool = "token" if token else "avg"
        stem = "stem." if kwargs["resnet_depths"] else ""
        pooling = {"global_pool": pool, "class_token": token, "fc_norm": False}
        return {
            "architecture": name,
            **base,
            "pretrained_cfg": cfg(f"{_BACKBONE}{stem}conv", "head"),
            "global_pool": pool,
            "model_args": {**base["model_args"], **pooling},
        }


def _refuse_unlike(shapes: Shapes, arguments: dict[str, Any]) -> None:
    """Raises if kerasvit cannot build a hybrid with such a Transformer."""
    if "reg_token" in shapes:
        raise CheckpointError(
            "The file has register tokens (timm's reg_tokens). kerasvit builds hybrids "
            "without register tokens only."
        )
    if arguments["class_token"] and arguments.get("positions") == "patches":
        raise CheckpointError(
            "The configuration states that the class token has no row in the position "
            "table (timm's no_embed_class=True). kerasvit builds hybrids with such a "
            "row only."
        )
    built = ("token", True) if arguments["pool"] == "token" else ("average", False)
    if (arguments["pool"], arguments["class_token"]) != built:
        raise CheckpointError(
            f"The file has the pooling {arguments['pool']!r} and class token "
            f"{arguments['class_token']}. kerasvit builds hybrids that pool the class "
            "token, or the average of the normalised patches without a class token."
        )


def _stem(alone: bool) -> str:
    """Returns the name prefix of the root; `alone` if the ResNet has no stages."""
    return _BACKBONE if alone else _BACKBONE + "stem."
