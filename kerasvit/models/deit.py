"""DeiT, distilled DeiT and DeiT III.

Touvron et al. 2021, "Training data-efficient image transformers & distillation through
attention", arXiv 2012.12877; Touvron et al. 2022, "DeiT III: Revenge of the ViT", arXiv
2204.07118. Numerics follow timm/models/deit.py. DeiT and DeiT III are Vision
Transformers; the distilled models have one more token and one more head.
"""

from typing import Any

import keras

from kerasvit.layers import LayerNormalization, PatchEmbedding, PrefixTokens
from kerasvit.preprocessing.defaults import IMAGENET
from kerasvit.types import PatchSize

from .builder import builder
from .encoder import SIZES, encoder, position_embedding
from .image_model import HEADS, ImageModel, image_input, mean_of_heads
from .variant import rows_of
from .vit import VisionTransformer, check_arguments


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks the arguments as a ViT's; returns all as plain JSON."""
    # Two tokens with a row each in the position table, before the patches.
    fixed = {
        "pool": "token",
        "class_token": True,
        "register_tokens": 1,
        "positions": "tokens",
        "representation_size": None,
        "partial_patches": False,
        "final_norm": True,
    }
    checked = check_arguments({**kwargs, **fixed})
    return {key: checked[key] for key in kwargs}


@builder(_checked)
def DistilledVisionTransformer(
    *,
    patch_size: PatchSize,
    width: int,
    depth: int,
    num_heads: int,
    mlp_dim: int,
    image_size: int | tuple[int, int] | tuple[None, None] = 224,
    resampling: dict[str, Any] | None = None,
    channels: int = 3,
    num_classes: int = 1000,
    qkv_bias: bool = True,
    layer_scale: float | None = None,
    activation: str = "gelu",
    epsilon: float = 1e-6,
    dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "deit_distilled",
) -> ImageModel:
    """Builds a distilled ViT: (batch, H, W, C) → logits.

    The class token and the distillation token each have a head; the logits are the mean
    of both. `distillation_heads` returns both separately, for training.

    Args:
        patch_size: P, edge of a patch in pixels; (height, width) of rectangular ones.
        width: D, size of a token.
        depth: L, number of encoder blocks.
        num_heads: Attention heads, a divisor of D.
        mlp_dim: Hidden size of the blocks' MLPs.
        image_size: Height and width in pixels, multiples of P; an int for a square.
            (None, None): the model takes images of any such size, and resamples its
            position table in the graph.
        resampling: {"image_size": that of the position table, "kernel": the kernel to
            resample it, one of `kerasvit.layers.position_embedding.POSITION_KERNELS`},
            for an `image_size` of (None, None), where loading sets it. None: 224 pixels
            and "bicubic_antialias".
        channels: Number of channels of the images.
        num_classes: Size of both heads; 0: no heads, the model returns the mean of the
            two tokens.
        qkv_bias: Whether query, key and value have a bias.
        layer_scale: Initial value of learned scales of the residual branches (arXiv
            2103.17239); None: no scales.
        activation: "gelu", exact, "gelu_tanh" or "quick_gelu", CLIP's.
        epsilon: Epsilon of each LayerNormalization.
        dropout: Dropout rate after the position embedding and in each block, in [0, 1).
        stochastic_depth: Probability of dropping a residual branch of the last block,
            in [0, 1). It grows linearly from 0 in the first block.
        normalization: {"mean": numbers, "std": numbers} of pixels in [0, 1], one for
            each channel: the model takes pixels in [0, 255] and normalises them. None:
            it does not.
        dtype: Dtype policy, such as "mixed_bfloat16"; None: Keras's global policy.
        name: Name of the model.

    Raises:
        ValueError: An argument is out of range, or `image_size` is not a multiple of P.
    """
    image, x = image_input(image_size, normalization, channels)
    x = PatchEmbedding(patch_size, width=width, name="embedding")(x)  # (B, N, D)
    x = PrefixTokens(stddev=0.02, name="distillation_token")(x)
    x = PrefixTokens(name="class_token")(x)  # (B, 2 + N, D)
    x = position_embedding(image, resampling, patch_size=patch_size, prefix=2)(x)
    x = encoder(
        x,
        depth=depth,
        num_heads=num_heads,
        mlp_dim=mlp_dim,
        activation=activation,
        epsilon=epsilon,
        dropout=dropout,
        stochastic_depth=stochastic_depth,
        qkv_bias=qkv_bias,
        layer_scale=layer_scale,
    )
    x = LayerNormalization(epsilon=epsilon, name="encoder_norm")(x)
    return ImageModel(image, mean_of_heads(x, num_classes), name=name)


def distillation_heads(model: ImageModel) -> keras.Model:
    """Returns a distilled model with two outputs, for training with a teacher.

    Hard distillation: one head learns the labels, the other the teacher's predictions
    for the same images; each has half of the loss. With
    `heads = distillation_heads(model)` and
    `crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)`:

        losses = {"head": crossentropy, "head_distillation": crossentropy}
        heads.compile("adamw", losses, loss_weights=dict.fromkeys(losses, 0.5))
        heads.fit(x, {"head": y, "head_distillation": teacher.predict(x).argmax(-1)})

    trains `model`, which has the same variables. `kerasvit.SAM(heads)` works as well.
    `kerasvit.DistillationTrainer(model, teacher)` needs no `heads`: it calls the
    teacher in each step, for augmented images.

    Args:
        model: Model of `DistilledVisionTransformer`, or of `PoolingVisionTransformer`
            with `distilled`, with `num_classes` above 0.

    Returns:
        `keras.Model` over the same variables, (batch, H, W, C) → {"head": logits of the
        class token's head, "head_distillation": those of the distillation token's}.

    Raises:
        ValueError: The model does not have the two heads.

    Reference: arXiv 2012.12877, equation 3.
    """
    named = {layer.name: layer for layer in getattr(model, "layers", ())}
    if not all(name in named for name in HEADS):
        raise ValueError(
            "`model` must be distilled, such as kerasvit.DeiTS16Distilled() or "
            "kerasvit.PiTS16Distilled(), with `num_classes` above 0. Received: "
            f"{model!r}."
        )
    outputs = {name: named[name].output for name in HEADS}
    return keras.Model(model.input, outputs, name=f"{model.name}_heads")


_deit = rows_of(
    VisionTransformer, paper=__doc__, architecture="deit", evaluation=IMAGENET
)
_distilled = rows_of(DistilledVisionTransformer, paper=__doc__, evaluation=IMAGENET)

DeiTTi16 = _deit("DeiTTi16", 5_717_416, 1.25, SIZES["Ti"], patch_size=16)
DeiTS16 = _deit("DeiTS16", 22_050_664, 4.60, SIZES["S"], patch_size=16)
DeiTB16 = _deit("DeiTB16", 86_567_656, 17.56, SIZES["B"], patch_size=16)
DeiTTi16Distilled = _distilled(
    "DeiTTi16Distilled", 5_910_800, 1.26, SIZES["Ti"], patch_size=16
)
DeiTS16Distilled = _distilled(
    "DeiTS16Distilled", 22_436_432, 4.62, SIZES["S"], patch_size=16
)
DeiTB16Distilled = _distilled(
    "DeiTB16Distilled", 87_338_192, 17.66, SIZES["B"], patch_size=16
)

# Position rows for the patches only, and LayerScale.
M = {"width": 512, "depth": 12, "num_heads": 8, "mlp_dim": 2048}  # timm's deit.py
DEIT3 = {"positions": "patches", "layer_scale": 1e-6}

DeiT3S16 = _deit("DeiT3S16", 22_059_496, 4.60, SIZES["S"], DEIT3, patch_size=16)
DeiT3M16 = _deit("DeiT3M16", 38_849_512, 7.99, M, DEIT3, patch_size=16)
DeiT3B16 = _deit("DeiT3B16", 86_585_320, 17.56, SIZES["B"], DEIT3, patch_size=16)
DeiT3L16 = _deit("DeiT3L16", 304_374_760, 61.55, SIZES["L"], DEIT3, patch_size=16)
DeiT3H14 = _deit("DeiT3H14", 632_126_440, 167.3, SIZES["H"], DEIT3, patch_size=14)

__all__ = [
    "DeiT3B16",
    "DeiT3H14",
    "DeiT3L16",
    "DeiT3M16",
    "DeiT3S16",
    "DeiTB16",
    "DeiTB16Distilled",
    "DeiTS16",
    "DeiTS16Distilled",
    "DeiTTi16",
    "DeiTTi16Distilled",
    "DistilledVisionTransformer",
    "distillation_heads",
]
