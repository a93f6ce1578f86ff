"""BEiT, BEiT v2 and data2vec: ViTs with biases of relative positions.

Bao et al. 2021, "BEiT: BERT Pre-Training of Image Transformers", arXiv 2106.08254; Peng
et al. 2022, "BEiT v2: Masked Image Modeling with Vector-Quantized Visual Tokenizers",
arXiv 2208.06366; Baevski et al. 2022, "data2vec", arXiv 2202.03555. Numerics follow
timm/models/beit.py.
"""

import functools
from typing import Any

import keras

from kerasvit.arguments import whole_patches
from kerasvit.layers import (
    MLP,
    BiasedAttention,
    EncoderBlock,
    LayerScaleBlock,
    PatchEmbedding,
    RelativePositionBias,
)
from kerasvit.layers.resampling import KERNELS
from kerasvit.types import PatchSize

from .builder import builder
from .checks import (
    check_transformer,
    multiple_of,
    sizes_of,
)
from .encoder import SIZES, drop_rates, pooled, position_embedding, prefixed
from .image_model import ImageModel, head, image_input
from .variant import rows_of

CHOICES = {
    "pool": ("token", "average", "average_then_norm"),
    "position_bias": ("blocks", "shared", "none"),
    "absolute_positions": (True, False),
    "final_norm": (True, False),
}


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks what only this builder has; returns all as plain JSON."""
    checked = check_transformer(kwargs, CHOICES)
    fitting = functools.partial(multiple_of, patch=kwargs["patch_size"])
    return {**checked, **sizes_of(kwargs, fitting, KERNELS, "geometric_linear")}


@builder(_checked)
def BEiTTransformer(
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
    pool: str = "average_then_norm",
    position_bias: str = "blocks",
    absolute_positions: bool = False,
    final_norm: bool = True,
    qkv_bias: bool = True,
    layer_scale: float | None = None,
    activation: str = "gelu",
    epsilon: float = 1e-6,
    dropout: float = 0.0,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "beit",
) -> ImageModel:
    """Builds a BEiT: (batch, H, W, C) → (batch, num_classes) logits.

    Args:
        patch_size: P, edge of a patch in pixels; (height, width) of rectangular ones.
        width: D, size of a token.
        depth: L, number of encoder blocks.
        num_heads: Attention heads, a divisor of D.
        mlp_dim: Hidden size of the blocks' MLPs.
        image_size: Height and width in pixels, multiples of P; an int for a square.
            (None, None): the model takes images of any such size, and resamples its
            tables of positions in the graph.
        resampling: {"image_size": that of the tables, "kernel": the kernel to resample
            them, one of `kerasvit.layers.resampling.KERNELS`}, for an `image_size` of
            (None, None), where loading sets it. None: 224 pixels and
            "geometric_linear". A table of absolute positions then has
            "bicubic_antialias".
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        pool: How tokens become one vector. "average_then_norm": the mean of the
            patches, then the normalisation. "average": the other order. "token": the
            class token after the normalisation.
        position_bias: Tables of biases for relative positions. "blocks": one for each
            block, as in models that are fine-tuned. "shared": one for all blocks, as in
            pretraining. "none".
        absolute_positions: Whether a learned embedding is added to each token, too.
        final_norm: Whether there is that normalisation. Without it, "average" and
            "average_then_norm" are the same.
        qkv_bias: Whether query and value have a bias. The key has none.
        layer_scale: Initial value of learned scales of the residual branches (arXiv
            2103.17239); None: no scales.
        activation: "gelu", exact, "gelu_tanh" or "quick_gelu".
        epsilon: Epsilon of each LayerNormalization.
        dropout: Dropout rate after the embedding and in each block, in [0, 1).
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
    image, pixels = image_input(image_size, normalization, channels)
    x = PatchEmbedding(patch_size, width=width, name="embedding")(pixels)  # (B, N, D)
    add = None
    if absolute_positions:
        add = position_embedding(image, resampling, patch_size=patch_size, prefix=1)
    x = prefixed(x, True, 0, add, everywhere=True)  # (B, 1 + N, D)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    bias = functools.partial(
        _bias, image_size, resampling, patch_size=patch_size, num_heads=num_heads
    )
    # Blocks of tables of their own take the size of the image from it.
    positions = [image] if position_bias == "blocks" and resampling else []
    if position_bias == "shared":
        positions = [bias()(image)]
    for i, rate in enumerate(drop_rates(stochastic_depth, depth)):
        attention = BiasedAttention(
            num_heads,
            bias() if position_bias == "blocks" else None,
            use_bias=qkv_bias,
            dropout=dropout,
            name="attention",
        )
        parts: dict[str, Any] = {
            "attention": attention,
            "mlp": MLP(mlp_dim, activation=activation, dropout=dropout, name="mlp"),
            "epsilon": epsilon,
            "stochastic_depth": rate,
            "name": f"encoder_block_{i}",
        }
        if layer_scale is None:
            block = EncoderBlock(**parts)
        else:
            block = LayerScaleBlock(init_value=layer_scale, **parts)
        x = block(x, *positions)
    if not final_norm and pool == "average_then_norm":
        pool = "average"
    x = pooled(x, pool, 1, final_norm=final_norm, epsilon=epsilon)
    return ImageModel(image, head(num_classes)(x), name=name)


def _bias(
    image_size: Any,
    resampling: dict[str, Any] | None,
    *,
    patch_size: PatchSize,
    num_heads: int,
) -> RelativePositionBias:
    """Returns a table of biases; the arguments are those of the builder."""
    options: dict[str, Any] = {"name": "position_bias"}
    if resampling is not None:
        image_size = resampling["image_size"]
        options |= {"patch_size": patch_size}
        options |= {"resampling_kernel": resampling["kernel"]}
    grid = whole_patches(image_size, patch_size)
    return RelativePositionBias(num_heads, grid, **options)


_beit = rows_of(BEiTTransformer, paper=__doc__)

# Fine-tuned models; BEiT v2 and data2vec have the same. Initial scales as in timm.
BEiTB16 = _beit(
    "BEiTB16", 86_530_984, 17.56, SIZES["B"], patch_size=16, layer_scale=0.1
)
BEiTL16 = _beit(
    "BEiTL16", 304_430_568, 61.55, SIZES["L"], patch_size=16, layer_scale=1e-5
)

__all__ = ["BEiTB16", "BEiTL16", "BEiTTransformer"]
