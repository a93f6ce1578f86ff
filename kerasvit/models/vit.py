"""Vision Transformer.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", arXiv 2010.11929. Numerics
follow google-research/vision_transformer vit_jax/models_vit.py, big_vision
models/vit.py and timm/models/vision_transformer.py, by the arguments in which they
differ.
"""

import operator

import keras

from kerasvit.layers import (
    MLP,
    Attention,
    AttentionPooling,
    EncoderBlock,
    LayerScaleBlock,
    PatchEmbedding,
    PositionEmbedding,
    PrefixTokens,
    SinCosPositionEmbedding,
)

from .image_model import ImageModel
from .variant import Variant

NUMBERS = ("patch_size", "width", "depth", "num_heads", "mlp_dim")
POSITIONS = ("tokens", "patches", "sincos2d")
POOLS = ("token", "average", "average_then_norm", "attention")


def VisionTransformer(
    *,
    patch_size: int,
    width: int,
    depth: int,
    num_heads: int,
    mlp_dim: int,
    image_size: int | tuple[int, int] = 224,
    num_classes: int = 1000,
    pool: str = "token",
    class_token: bool | None = None,
    register_tokens: int = 0,
    positions: str = "tokens",
    representation_size: int | None = None,
    qkv_bias: bool = True,
    layer_scale: float | None = None,
    activation: str = "gelu",
    epsilon: float = 1e-6,
    dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    normalization: dict | None = None,
    name: str = "vit",
) -> ImageModel:
    """Builds a Vision Transformer: (batch, H, W, 3) → (batch, num_classes) logits.

    Args:
        patch_size: P, edge of a patch in pixels.
        width: D, size of a token.
        depth: L, number of encoder blocks.
        num_heads: Attention heads, a divisor of D.
        mlp_dim: Hidden size of the blocks' MLPs.
        image_size: Height and width in pixels, multiples of P; an int for a square.
        num_classes: Size of the head; 0 leaves it off: the model returns the features.
        pool: How tokens become one vector. "token": the class token after the last
            normalisation. "average": normalise, then average the patches (Google).
            "average_then_norm": the other order (timm). "attention": big_vision's MAP
            head.
        class_token: Whether there is one; None: only where `pool` is "token".
        register_tokens: How many learned tokens stand between the class token and the
            patches (arXiv 2309.16588).
        positions: "tokens": a learned row for every token, class and registers too.
            "patches": for the patches only, added before other tokens join. "sincos2d":
            fixed sines and cosines for the patches (arXiv 2205.01580).
        representation_size: Size of a dense layer with tanh before the head, the
            paper's pre-logits; None leaves it out.
        qkv_bias: Whether query, key and value have a bias.
        layer_scale: First value of learned scales on the branches (arXiv 2103.17239);
            None leaves them out.
        activation: "gelu", exact, or "gelu_tanh".
        epsilon: Of every LayerNormalization.
        dropout: Rate after the position embedding and in every block, in [0, 1).
        stochastic_depth: Chance of dropping a branch of the last block; it grows
            linearly from 0 at the first, in [0, 1).
        normalization: {"mean": 3 numbers, "std": 3 numbers} for pixels in 0…1 puts the
            normalisation into the model, which then takes 0…255.
        name: Of the model.

    Raises:
        ValueError: An argument is out of range, or `image_size` is not a multiple of P.
    """
    kwargs = _checked({k: v for k, v in locals().items() if k != "name"})
    patch_size, width, depth, num_heads, mlp_dim = (kwargs[key] for key in NUMBERS)
    image_size, num_classes = kwargs["image_size"], kwargs["num_classes"]
    class_token, representation_size = (
        kwargs[key] for key in ("class_token", "representation_size")
    )
    prefix = class_token + register_tokens

    image = keras.Input((*image_size, 3), name="image")
    x = image
    if normalization:
        x = _normalization(**normalization)(x)
    x = PatchEmbedding(patch_size, width=width, name="embedding")(x)  # (B, N, D)
    grid = (image_size[0] // patch_size, image_size[1] // patch_size)
    if positions == "patches":
        x = PositionEmbedding(grid, name="position_embedding")(x)
    if positions == "sincos2d":
        x = SinCosPositionEmbedding(grid, name="position_embedding")(x)
    if register_tokens:
        x = PrefixTokens(register_tokens, stddev=1e-6, name="register_tokens")(x)
    if class_token:
        x = PrefixTokens(name="class_token")(x)  # (B, prefix + N, D)
    if positions == "tokens":
        x = PositionEmbedding(grid, prefix=prefix, name="position_embedding")(x)
    x = keras.layers.Dropout(dropout, name="dropout")(x)

    for i in range(depth):
        block = {
            "attention": Attention(
                num_heads, use_bias=qkv_bias, dropout=dropout, name="attention"
            ),
            "mlp": MLP(mlp_dim, activation=activation, dropout=dropout, name="mlp"),
            "epsilon": epsilon,
            "stochastic_depth": stochastic_depth * i / max(depth - 1, 1),
            "name": f"encoder_block_{i}",
        }
        if layer_scale is None:
            x = EncoderBlock(**block)(x)
        else:
            x = LayerScaleBlock(init_value=layer_scale, **block)(x)

    norm = keras.layers.LayerNormalization(epsilon=epsilon, name="encoder_norm")
    if pool == "average_then_norm":
        x = norm(_average(x, prefix))
    else:
        x = norm(x)
        if pool == "token":
            x = x[:, 0]
        elif pool == "average":
            x = _average(x, prefix)
        else:
            x = AttentionPooling(
                num_heads,
                mlp_dim=mlp_dim,
                activation=activation,
                epsilon=epsilon,
                name="pool",
            )(x)  # (B, D)
    if representation_size:
        x = keras.layers.Dense(
            representation_size, activation="tanh", name="pre_logits"
        )(x)
    if num_classes:
        x = _head(num_classes)(x)
    record = {"builder": "VisionTransformer", "kwargs": kwargs}
    return ImageModel(image, x, name=name, record=record)


def _checked(kwargs):
    """The builder's arguments, as plain JSON would give them back."""
    checked = dict(kwargs)
    for key in NUMBERS:
        checked[key] = _integer(key, kwargs[key], 1)
    for key in ("num_classes", "register_tokens"):
        checked[key] = _integer(key, kwargs[key], 0)
    if kwargs["representation_size"] is not None:
        size = _integer("representation_size", kwargs["representation_size"], 0)
        checked["representation_size"] = size or None
    for key in ("dropout", "stochastic_depth"):
        if not 0 <= kwargs[key] < 1:
            raise ValueError(
                f"`{key}` must be a probability in [0, 1). Received: {kwargs[key]}."
            )
    for key, known in (("pool", POOLS), ("positions", POSITIONS)):
        if kwargs[key] not in known:
            raise ValueError(
                f"`{key}` must be one of {known}. Received: {kwargs[key]!r}."
            )
    if kwargs["class_token"] is None:
        checked["class_token"] = kwargs["pool"] == "token"
    elif kwargs["pool"] == "token" and not kwargs["class_token"]:
        raise ValueError(
            '`pool="token"` needs a class token. Received: class_token=False. Choose '
            '`pool="average"` or leave `class_token` out.'
        )
    checked["image_size"] = _sides(kwargs["image_size"], checked["patch_size"])
    return checked


def _integer(key, value, least):
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise ValueError(
            f"`{key}` must be an integer, at least {least}. Received: {value!r}."
        )
    return number


def _sides(image_size, p):
    sides = image_size if isinstance(image_size, (tuple, list)) else [image_size] * 2
    if len(sides) != 2:
        raise ValueError(
            "`image_size` must be an integer or (height, width), in pixels. Received: "
            f"{image_size!r}."
        )
    sides = [_integer("image_size", side, 1) for side in sides]
    if any(side % p for side in sides):
        near = " × ".join(str(max(p, round(side / p) * p)) for side in sides)
        raise ValueError(
            f"`image_size` must be a multiple of the patch size, {p}. Received: "
            f"{sides[0]} × {sides[1]}. The nearest that fits is {near}."
        )
    return sides


def _normalization(mean, std):
    # In the variables' dtype: bfloat16 would round the pixels before they are centred.
    return keras.layers.Rescaling(
        [1 / (255 * s) for s in std],
        [-m / s for m, s in zip(mean, std, strict=True)],
        dtype=keras.config.dtype_policy().variable_dtype,
        name="normalization",
    )


def _average(tokens, prefix):
    return keras.ops.mean(tokens[:, prefix:] if prefix else tokens, axis=1)


def _head(num_classes):
    # Zero at the start, as in vit_jax; full precision, for the loss.
    return keras.layers.Dense(
        num_classes,
        kernel_initializer="zeros",
        dtype=keras.config.dtype_policy().variable_dtype,
        name="head",
    )


# Table 1 of the paper; Ti and S from Steiner et al. 2022, arXiv 2106.10270.
SIZES = {
    "Ti": {"width": 192, "depth": 12, "num_heads": 3, "mlp_dim": 768},
    "S": {"width": 384, "depth": 12, "num_heads": 6, "mlp_dim": 1536},
    "B": {"width": 768, "depth": 12, "num_heads": 12, "mlp_dim": 3072},
    "L": {"width": 1024, "depth": 24, "num_heads": 16, "mlp_dim": 4096},
    "H": {"width": 1280, "depth": 32, "num_heads": 16, "mlp_dim": 5120},
}

ViTTi16 = Variant("ViTTi16", VisionTransformer, patch_size=16, **SIZES["Ti"])
ViTS32 = Variant("ViTS32", VisionTransformer, patch_size=32, **SIZES["S"])
ViTS16 = Variant("ViTS16", VisionTransformer, patch_size=16, **SIZES["S"])
ViTS14 = Variant("ViTS14", VisionTransformer, patch_size=14, **SIZES["S"])
ViTS8 = Variant("ViTS8", VisionTransformer, patch_size=8, **SIZES["S"])
ViTB32 = Variant("ViTB32", VisionTransformer, patch_size=32, **SIZES["B"])
ViTB16 = Variant("ViTB16", VisionTransformer, patch_size=16, **SIZES["B"])
ViTB8 = Variant("ViTB8", VisionTransformer, patch_size=8, **SIZES["B"])
ViTL32 = Variant("ViTL32", VisionTransformer, patch_size=32, **SIZES["L"])
ViTL16 = Variant("ViTL16", VisionTransformer, patch_size=16, **SIZES["L"])
ViTH14 = Variant("ViTH14", VisionTransformer, patch_size=14, **SIZES["H"])
