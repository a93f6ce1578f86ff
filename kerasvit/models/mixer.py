"""MLP-Mixer.

Tolstikhin et al. 2021, "MLP-Mixer: An all-MLP Architecture for Vision", arXiv
2105.01601. Numerics follow google-research/vision_transformer vit_jax/models_mixer.py,
big_vision models/mlp_mixer.py and timm/models/mlp_mixer.py, which differ in their GELU.
"""

from typing import Any

import keras

from kerasvit.arguments import whole_patches
from kerasvit.layers import LayerNormalization, MixerBlock, PatchEmbedding
from kerasvit.types import PatchSize

from .builder import builder
from .checks import known_size, multiple_of
from .encoder import drop_rates
from .image_model import ImageModel, head, image_input
from .variant import rows_of


def _checked(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Checks the image size; returns all arguments as plain JSON."""
    why = "the MLPs across tokens have weights for each patch"
    size, patch = known_size(kwargs["image_size"], why), kwargs["patch_size"]
    return {**kwargs, "image_size": multiple_of(size, patch)}


@builder(_checked)
def MLPMixer(
    *,
    patch_size: PatchSize,
    width: int,
    depth: int,
    tokens_mlp_dim: int,
    channels_mlp_dim: int,
    image_size: int | tuple[int, int] = 224,
    channels: int = 3,
    num_classes: int = 1000,
    activation: str = "gelu",
    epsilon: float = 1e-6,
    stochastic_depth: float = 0.0,
    normalization: dict[str, Any] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "mixer",
) -> ImageModel:
    """Builds an MLP-Mixer: (batch, H, W, C) → (batch, num_classes) logits.

    The MLPs across tokens have weights for each patch of the grid. For another image
    size, these weights are resampled as a position embedding is, and the sums over
    tokens are kept: see `MixerBlock.resample`. Resampled weights need fine-tuning. A
    Mixer of 3 blocks, trained for 24 epochs on 1,649 photos of hands (ten signs, 48 ×
    48 pixels, patches of 6; one seed), classified 83.5 % of 413 other photos correctly.
    Resampled to 36, 60, 72 and 96 pixels, it classified 39 %, 60 %, 60 % and 53 %, and
    after 3 epochs of fine-tuning at 72 pixels 79 %; fresh weights reached 13 %. With
    the kernel "corner_linear" in place of "bicubic_antialias" it was 42 %, 44 %, 40 %
    and 24 %.

    Args:
        patch_size: P, edge of a patch in pixels; (height, width) of rectangular ones.
        width: C, size of a token.
        depth: Number of blocks.
        tokens_mlp_dim: D_S, hidden size of the MLPs across tokens, at any image size.
        channels_mlp_dim: D_C, hidden size of the MLPs across channels.
        image_size: Height and width in pixels, multiples of P; an int for a square.
        channels: Number of channels of the images.
        num_classes: Size of the head; 0: no head, the model returns features.
        activation: "gelu", exact, "gelu_tanh" or "quick_gelu", CLIP's.
        epsilon: Epsilon of each LayerNormalization.
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
    x = PatchEmbedding(patch_size, width=width, name="stem")(x)  # (B, N, C)
    for i, rate in enumerate(drop_rates(stochastic_depth, depth)):
        x = MixerBlock(
            whole_patches(image_size, patch_size),
            tokens_mlp_dim=tokens_mlp_dim,
            channels_mlp_dim=channels_mlp_dim,
            activation=activation,
            epsilon=epsilon,
            stochastic_depth=rate,
            name=f"mixer_block_{i}",
        )(x)
    x = LayerNormalization(epsilon=epsilon, name="pre_head_norm")(x)
    x = keras.ops.mean(x, axis=1)  # (B, C)
    return ImageModel(image, head(num_classes)(x), name=name)


# Table 1 of the paper.
SIZES = {
    "S": {"width": 512, "depth": 8, "tokens_mlp_dim": 256, "channels_mlp_dim": 2048},
    "B": {"width": 768, "depth": 12, "tokens_mlp_dim": 384, "channels_mlp_dim": 3072},
    "L": {"width": 1024, "depth": 24, "tokens_mlp_dim": 512, "channels_mlp_dim": 4096},
    "H": {"width": 1280, "depth": 32, "tokens_mlp_dim": 640, "channels_mlp_dim": 5120},
}
EVALUATION = {"crop": 0.875}  # timm/models/mlp_mixer.py `_cfg`

_mixer = rows_of(MLPMixer, paper=__doc__, evaluation=EVALUATION)

MixerS32 = _mixer("MixerS32", 19_104_624, 1.00, SIZES["S"], patch_size=32)
MixerS16 = _mixer("MixerS16", 18_528_264, 3.78, SIZES["S"], patch_size=16)
MixerS8 = _mixer("MixerS8", 20_646_504, 14.88, SIZES["S"], patch_size=8)
MixerB32 = _mixer("MixerB32", 60_293_428, 3.24, SIZES["B"], patch_size=32)
MixerB16 = _mixer("MixerB16", 59_880_472, 12.60, SIZES["B"], patch_size=16)
MixerB8 = _mixer("MixerB8", 64_864_168, 50.06, SIZES["B"], patch_size=8)
MixerL32 = _mixer("MixerL32", 206_939_264, 11.25, SIZES["L"], patch_size=32)
MixerL16 = _mixer("MixerL16", 208_196_168, 44.55, SIZES["L"], patch_size=16)
MixerH14 = _mixer("MixerH14", 432_350_952, 120.99, SIZES["H"], patch_size=14)

__all__ = [
    "MixerB8",
    "MixerB16",
    "MixerB32",
    "MixerH14",
    "MixerL16",
    "MixerL32",
    "MixerS8",
    "MixerS16",
    "MixerS32",
    "MLPMixer",
]
