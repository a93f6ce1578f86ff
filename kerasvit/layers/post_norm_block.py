"""The encoder block with normalisation after each residual sum."""

import keras

from kerasvit.types import Tensor

from .encoder_block import EncoderBlock


@keras.saving.register_keras_serializable("kerasvit")
class PostNormBlock(EncoderBlock):
    """Post-norm Transformer block: normalisation after each residual sum.

    x ← LN(x + attention(x)), x ← LN(x + MLP(x)). The variables are those of
    `EncoderBlock`. The block ends in a normalisation, so that the last block of an
    encoder needs no further one.

    Shape: (batch, N, D) → same.

    Args: those of `EncoderBlock`.

    Reference: Vaswani et al. 2017, arXiv 1706.03762, section 3.1; compared with
    normalising first by Xiong et al. 2020, arXiv 2002.04745.
    """

    def call(
        self, x: Tensor, positions: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        branch = self._attended(x, positions, training)
        x = self.attention_norm(x + self.drop(branch, training=training))  # (B, N, D)
        branch = self.mlp(x, training=training)
        return self.mlp_norm(x + self.drop(branch, training=training))
