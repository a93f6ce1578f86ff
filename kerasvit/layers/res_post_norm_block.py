"""The encoder block with normalised branches."""

import keras

from kerasvit.types import Tensor

from .encoder_block import EncoderBlock


@keras.saving.register_keras_serializable("kerasvit")
class ResPostNormBlock(EncoderBlock):
    """Transformer block that normalises the output of each branch.

    x ← x + LN(attention(x)), x ← x + LN(MLP(x)). The variables are those of
    `EncoderBlock`.

    Shape: (batch, N, D) → same.

    Args: those of `EncoderBlock`.

    Reference: Liu et al. 2022 (Swin V2), arXiv 2111.09883, section 3.2;
    `EvaBlockPostNorm` in timm/models/eva.py.
    """

    def call(
        self, x: Tensor, positions: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        branch = self.attention_norm(self._attended(x, positions, training))
        x = x + self.drop(branch, training=training)  # (B, N, D)
        branch = self.mlp_norm(self.mlp(x, training=training))
        return x + self.drop(branch, training=training)
