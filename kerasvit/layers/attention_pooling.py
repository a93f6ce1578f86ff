"""Pools tokens to one vector by attention."""

from typing import Any

import keras
from keras import ops

from kerasvit.types import Shape, Tensor

from .attention import Attention
from .layer import OwnLayer
from .layer_norm import LayerNormalization
from .mlp import MLP


@keras.saving.register_keras_serializable("kerasvit")
class AttentionPooling(OwnLayer, keras.layers.Layer):
    """Pools tokens by the attention of a learned probe, followed by an MLP.

    Shape: (batch, N, D) → (batch, D).

    Args:
        num_heads: Number of attention heads.
        mlp_dim: Hidden size of the MLP.
        activation: Activation of the MLP, as for `MLP`.
        epsilon: Small constant added to the variance in the normalisation before the
            MLP.

    Reference: Zhai et al. 2022, arXiv 2106.04560; `MAPHead` in big_vision/models/vit.py
    and `AttentionPoolLatent` in timm, which are the same.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        mlp_dim: int,
        activation: str = "gelu",
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        self.probe = self.add_weight(
            name="probe",
            shape=(1, 1, width),
            initializer=keras.initializers.GlorotUniform(),
        )
        policy = {"dtype": self.dtype_policy}
        self.attention = Attention(self.num_heads, name="attention", **policy)
        self.mlp_norm = LayerNormalization(
            epsilon=self.epsilon, name="mlp_norm", **policy
        )
        self.mlp = MLP(self.mlp_dim, activation=self.activation, name="mlp", **policy)
        for layer in (self.attention, self.mlp_norm, self.mlp):
            layer.build((None, 1, width))

    def call(self, x: Tensor) -> Tensor:
        probe = ops.broadcast_to(self.probe, (ops.shape(x)[0], 1, x.shape[-1]))
        x = self.attention(ops.cast(probe, x.dtype), x)  # (B, 1, D)
        x = x + self.mlp(self.mlp_norm(x))
        return x[:, 0]

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape[0], input_shape[-1]
