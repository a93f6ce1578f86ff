"""Hugging Face transformers' image towers of CLIP, SigLIP and SigLIP 2.

Tensor names as `CLIPVisionModel`, `SiglipVisionModel` and `Siglip2VisionModel` write
them; as parts of larger models, with the prefix "vision_model.". SigLIP 2 with images
of one size is a `SiglipVisionModel`; that with any size, NaFlex, embeds patches with a
dense layer. transformers/models/{clip,siglip,siglip2}/modeling_*.py.
"""

import math
from collections.abc import Set
from typing import Any

import numpy as np

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import CONVOLUTION, KeyMap, Transform, stacked, torch_dense, torch_norm
from ..reader import CheckpointError
from .source import count
from .transformers import (
    TransformersSource,
    activation,
    heads,
    label_names,
    open_arguments,
)

_PATCHES = "embeddings.patch_embedding.weight"
_TABLE = "embeddings.position_embedding.weight"
_CLASS = "embeddings.class_embedding"
_QUERY = "encoder.layers.0.self_attn.q_proj."
_BLOCK, _OURS = "encoder.layers.{i}.", "encoder_block_{i}/"
_OTHERS = ("text_model.", "text_projection.", "logit_scale", "logit_bias")


class TransformersCLIP(TransformersSource):
    """Image towers, with CLIP's projection as the head."""

    builder = "VisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        return _PATCHES in names and _QUERY + "weight" in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        stated = config.part("vision_config") or config
        patch, flat = _patch_size(shapes)
        size = stated.image_size("image_size")
        arguments = _arguments(shapes, stated)
        if any(side % patch for side in size or ()):
            arguments["partial_patches"] = True
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "patch_size": patch,
                "width": shapes[_PATCHES][0],
                "depth": count(shapes, "encoder.layers.{}.layer_norm1.weight"),
                "mlp_dim": shapes.of("encoder.layers.0.mlp.fc1.weight", 2)[0],
                **heads(stated),
            },
            arguments=arguments,
            kernel="bilinear_antialias" if flat else self.kernel,
            grid=TokenGrid(
                _TABLE, shapes.of(_TABLE, 2)[0], patch, int(arguments["class_token"])
            ),
            image_size=size,
            label_names=label_names(config),
            open_arguments=open_arguments(stated),
            architecture=config.text("model_type"),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        flat = shapes is not None and len(shapes[_PATCHES]) == 2
        embedding = _dense_patches(kwargs["patch_size"]) if flat else CONVOLUTION
        return KeyMap(
            (_CLASS, "class_token/tokens", _with_axes(2)),
            (_TABLE, "position_embedding/table", _with_axes(1)),
            (_PATCHES, "embedding/kernel", embedding),
            ("embeddings.patch_embedding.bias", "embedding/bias"),
            *torch_norm("pre_layrnorm", "pre_norm"),  # the name in transformers
            *_block(),
            *torch_norm("post_layernorm", "encoder_norm"),
            *_pooling(),
            *torch_dense("classifier", "head"),
            ("visual_projection.weight", ("head/kernel", "head/bias"), _WITHOUT_BIAS),
        )

    def short_name(self, name: str) -> str:
        return name.removeprefix("vision_model.")

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.startswith(_OTHERS):
            return "part of the text tower, or of the comparison with it"
        if name == "embeddings.position_ids":
            return "numbers of the positions, which older files hold"
        if "classifier.weight" not in names:
            return None
        if name.startswith("head."):
            return "pooling, which SiglipForImageClassification does not use"
        if name.startswith("post_layernorm.") and _CLASS in names:
            return "normalisation that CLIPForImageClassification does not use"
        return None


def _patch_size(shapes: Shapes) -> tuple[int, bool]:
    """Returns (patch size, whether the embedding is a dense layer)."""
    if len(shapes[_PATCHES]) != 2:
        return shapes.square_patch(_PATCHES), False
    numbers = shapes.of(_PATCHES, 2)[1]
    patch = math.isqrt(numbers // 3)
    if 3 * patch**2 != numbers:
        raise CheckpointError(
            f"{_PATCHES} must have 3 · P · P columns for patches of P × P pixels. "
            f"Received: {numbers} columns. Use the complete file."
        )
    return patch, True


def _arguments(shapes: Shapes, config: Config) -> dict[str, Any]:
    """Returns the builder's arguments that tensors and `config.json` determine."""
    clip = _CLASS in shapes
    classes = shapes.side("visual_projection.weight", 0, 2, default=0)
    # CLIPForImageClassification averages patches that are not normalised.
    classifier = clip and "classifier.weight" in shapes
    pool = "token" if clip and not classifier else "average"
    flat = len(shapes[_PATCHES]) == 2
    return {
        "channels": 3 if flat else shapes.of(_PATCHES, 4)[1],
        "num_classes": shapes.side("classifier.weight", 0, 2, default=classes),
        "pool": "attention" if "head.probe" in shapes else pool,
        "class_token": clip,
        "register_tokens": 0,
        "positions": "tokens",
        "representation_size": None,
        "patch_bias": "embeddings.patch_embedding.bias" in shapes,
        "pre_norm": "pre_layrnorm.weight" in shapes,
        "final_norm": not classifier,
        "qkv_bias": _QUERY + "bias" in shapes,
        "layer_scale": None,
        "activation": activation(config, "quick_gelu" if clip else "gelu_pytorch_tanh"),
        "epsilon": config.get("layer_norm_eps", 1e-5 if clip else 1e-6),
    }


def _block() -> tuple[tuple, ...]:
    """Returns the rules of a block."""
    attention = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
    dense = {f"self_attn.{name}": f"attention/{n}" for name, n in attention.items()}
    dense |= {"self_attn.out_proj": "attention/output"}
    dense |= {"mlp.fc1": "mlp/dense_0", "mlp.fc2": "mlp/dense_1"}
    return (
        *torch_norm(_BLOCK + "layer_norm1", _OURS + "attention_norm"),
        *torch_norm(_BLOCK + "layer_norm2", _OURS + "mlp_norm"),
        *(
            rule
            for name, ours in dense.items()
            for rule in torch_dense(_BLOCK + name, _OURS + ours)
        ),
    )


def _pooling() -> tuple[tuple, ...]:
    """Returns the rules of SigLIP's attention pooling."""
    qkv = [f"pool/attention/{name}/" for name in ("query", "key", "value")]
    return (
        ("head.probe", "pool/probe"),
        *(
            (f"head.attention.in_proj_{name}", tuple(f"{n}{part}" for n in qkv), three)
            for name, part, three in (
                ("weight", "kernel", stacked(3)),
                ("bias", "bias", stacked(3)),
            )
        ),
        *torch_dense("head.attention.out_proj", "pool/attention/output"),
        *torch_norm("head.layernorm", "pool/mlp_norm"),
        *torch_dense("head.mlp.fc1", "pool/mlp/dense_0"),
        *torch_dense("head.mlp.fc2", "pool/mlp/dense_1"),
    )


def _with_axes(count: int) -> Transform:
    """Returns the transform that adds `count` first axes of size 1."""
    return Transform(
        lambda a: [a.reshape((1,) * count + a.shape)],
        lambda arrays: arrays[0].reshape(arrays[0].shape[count:]),
    )


def _dense_patches(patch: int) -> Transform:
    """Returns the transform of a dense kernel (D, P · P · C) for flattened patches."""
    return Transform(
        lambda a: [a.T.reshape(patch, patch, -1, a.shape[0])],
        lambda arrays: arrays[0].reshape(-1, arrays[0].shape[-1]).T,
    )


# CLIP's projection has no bias: as in timm, that of the head is zeros.
_WITHOUT_BIAS = Transform(
    lambda a: [a.T, np.zeros(a.shape[0], a.dtype)],
    lambda arrays: arrays[0].T,
)
