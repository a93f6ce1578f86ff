"""The gated MLP of a Transformer block."""

from typing import Any

import keras
from keras import ops

from kerasvit.ops import gated, reshape
from kerasvit.types import Shape, Tensor

from .dense import dense_in
from .dropout import Dropout
from .layer import Layer
from .layer_norm import LayerNormalization


@keras.saving.register_keras_serializable("kerasvit")
class SwiGLU(Layer):
    """MLP with a gated hidden layer, applied to each token.

    (silu(x G) ⊙ (x V)) W with silu(x) = x · σ(x); all three products have a bias. With
    `inner_norm` the hidden layer is normalised before W (EVA-02, arXiv 2303.11331).

    Shape: (batch, ..., D) → same.

    Args:
        mlp_dim: Size of the hidden layer, of G and V each.
        inner_norm: Whether the hidden layer is normalised.
        epsilon: Small constant added to the variance in this normalisation.
        dropout: Dropout rate after the hidden and the last layer, in [0, 1).

    Reference: Shazeer 2020, arXiv 2002.05202, equation 6; `SwiGLUFFN` in
    facebookresearch/dinov2 dinov2/layers/swiglu_ffn.py and `SwiGLUPacked` in
    timm/layers/mlp.py, which store G and V in one tensor.
    """

    def __init__(
        self,
        mlp_dim: int,
        *,
        inner_norm: bool = False,
        epsilon: float = 1e-6,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.inner_norm = inner_norm
        self.epsilon = epsilon
        self.dropout = dropout

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        self.gate = dense_in(self, "gate", width, self.mlp_dim)
        self.dense_0 = dense_in(self, "dense_0", width, self.mlp_dim)
        self.dense_1 = dense_in(self, "dense_1", self.mlp_dim, width)
        self.drop = Dropout(self.dropout, name="drop", dtype=self.dtype_policy)
        self.drop.build((None, width))
        if self.inner_norm:
            self.norm = LayerNormalization(
                epsilon=self.epsilon, name="norm", dtype=self.dtype_policy
            )
            self.norm.build((None, self.mlp_dim))

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        shape = ops.shape(x)
        x = reshape(x, (-1, x.shape[-1]))  # one row per token; see MLP
        x = gated(self.gate(x), self.dense_0(x))
        x = self.drop(x, training=training)
        x = self.norm(x) if self.inner_norm else x
        x = self.drop(self.dense_1(x), training=training)
        return reshape(x, shape)
