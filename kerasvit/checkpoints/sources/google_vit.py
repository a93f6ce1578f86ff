"""Google's `.npz` files: google-research/vision_transformer and big_vision.

Flax names as vit_jax/models_vit.py and big_vision/models/vit.py write them. The two
code bases number the parts of a block differently. big_vision stores the position table
at the top level, without a row for the class token.
"""

from collections.abc import Iterator, Set
from typing import Any

from kerasvit.types import PatchSize

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import KeyMap, split_heads
from .google import GoogleSource, dense, norm
from .source import count, names_of_classes

TABLE = "Transformer/posembed_input/pos_embedding"  # with a row for the class token
_TABLE_PATCHES = "pos_embedding"


class GoogleViT(GoogleSource):
    """Vision Transformers without a ResNet."""

    builder = "VisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        return "conv_root/kernel" not in names and holds_transformer(names)

    def describe(self, shapes: Shapes, config: Config) -> Description:
        return describe_vit(shapes)

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return KeyMap(*rules(kwargs, shapes or Shapes()))


def holds_transformer(names: Set[str]) -> bool:
    """Returns whether the names include Google's embedding and encoder."""
    return "embedding/kernel" in names and any(
        name.startswith("Transformer/encoderblock_") for name in names
    )


def describe_vit(shapes: Shapes) -> Description:
    """Returns the description of a ViT from its tensors."""
    patch = shapes.patch_size("embedding/kernel", 0)
    attention, _, mlp = (name.format(i=0) for name in _block(shapes))
    arguments = _arguments(shapes)
    return Description(
        code_base=GoogleViT.code_base,
        builder=GoogleViT.builder,
        numbers={
            "patch_size": patch,
            "width": shapes.of("embedding/kernel", 4)[-1],
            "depth": count(shapes, "Transformer/encoderblock_{}/LayerNorm_0/scale"),
            "num_heads": shapes.of(f"{attention}/query/kernel", 3)[1],
            "mlp_dim": shapes.of(f"{mlp}/Dense_0/kernel", 2)[1],
        },
        arguments=arguments,
        kernel=GoogleViT.kernel,
        grid=_grid(shapes, patch, arguments),
        label_names=names_of_classes(None, arguments["num_classes"]),
    )


def _arguments(shapes: Shapes) -> dict[str, Any]:
    """Returns the builder's arguments that the tensor names determine."""
    class_token = "cls" in shapes
    if "MAPHead_0/probe" in shapes:
        pool = "attention"
    else:
        pool = "token" if class_token else "average"
    if TABLE in shapes:
        positions = "tokens"
    else:
        positions = "patches" if _TABLE_PATCHES in shapes else "sincos2d"
    return {
        "channels": shapes.of("embedding/kernel", 4)[2],
        "num_classes": shapes.side("head/kernel", 1, 2, default=0),
        "pool": pool,
        "class_token": class_token,
        "register_tokens": 0,
        "positions": positions,
        "representation_size": shapes.side("pre_logits/kernel", 1, 2),
        "qkv_bias": f"{_block(shapes)[0]}/query/bias".format(i=0) in shapes,
        "layer_scale": None,
        "activation": "gelu_tanh",  # flax.linen.gelu's default
        "epsilon": 1e-6,  # flax.linen.LayerNorm's default
    }


def _grid(
    shapes: Shapes, patch: PatchSize, arguments: dict[str, Any]
) -> TokenGrid | None:
    """Returns the position table; None if the model computes positions."""
    # Only the table inside the encoder has a row for the class token.
    for name, prefix in ((TABLE, int(arguments["class_token"])), (_TABLE_PATCHES, 0)):
        if name in shapes:
            return TokenGrid(name, shapes.of(name, 3)[1], patch, prefix)
    return None


def _block(shapes: Shapes) -> list[str]:
    """Returns the names of (attention, second normalisation, MLP) in a block."""
    # Released files number all parts of a block with one counter, as older versions of
    # Flax did. big_vision has one counter per kind of part.
    block = "Transformer/encoderblock_{i}/"
    names = ("MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
    if block.format(i=0) + names[1] + "/scale" not in shapes:
        names = ("MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")
    return [block + name for name in names]


def rules(kwargs: dict[str, Any], shapes: Shapes) -> tuple[tuple, ...]:
    """Returns the rules of the embedding and all layers after it."""
    attention, second_norm, mlp = _block(shapes)
    heads, ours = kwargs["num_heads"], "encoder_block_{i}/"
    block = "Transformer/encoderblock_{i}/"
    pool = "MAPHead_0/"
    table = TABLE if kwargs["positions"] == "tokens" else _TABLE_PATCHES
    return (
        ("cls", "class_token/tokens"),
        (table, "position_embedding/table"),
        *dense("embedding", "embedding"),
        *norm(block + "LayerNorm_0", ours + "attention_norm"),
        *_attention(attention, ours + "attention", heads),
        *norm(second_norm, ours + "mlp_norm"),
        *dense(mlp + "/Dense_0", ours + "mlp/dense_0"),
        *dense(mlp + "/Dense_1", ours + "mlp/dense_1"),
        *norm("Transformer/encoder_norm", "encoder_norm"),
        (pool + "probe", "pool/probe"),
        *_attention(pool + "MultiHeadDotProductAttention_0", "pool/attention", heads),
        *norm(pool + "LayerNorm_0", "pool/mlp_norm"),
        *dense(pool + "MlpBlock_0/Dense_0", "pool/mlp/dense_0"),
        *dense(pool + "MlpBlock_0/Dense_1", "pool/mlp/dense_1"),
        *dense("pre_logits", "pre_logits"),
        *dense("head", "head"),
    )


def _attention(name: str, path: str, heads: int) -> Iterator[tuple]:
    for part in ("query", "key", "value"):  # kernel (D, heads, d), bias (heads, d)
        yield f"{name}/{part}/kernel", f"{path}/{part}/kernel", split_heads(heads, 1)
        yield f"{name}/{part}/bias", f"{path}/{part}/bias", split_heads(heads, 0)
    # The output's kernel is (heads, d, D).
    yield f"{name}/out/kernel", f"{path}/output/kernel", split_heads(heads, 0)
    yield f"{name}/out/bias", f"{path}/output/bias"
