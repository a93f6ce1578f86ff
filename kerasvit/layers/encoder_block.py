"""The encoder block of a Vision Transformer."""

from collections.abc import Callable
from typing import Any

import keras

from kerasvit.types import Shape, Tensor

from .layer import Block
from .layer_norm import LayerNormalization
from .stochastic_depth import StochasticDepth


@keras.saving.register_keras_serializable("kerasvit")
class EncoderBlock(Block):
    """Pre-norm Transformer block: attention, then an MLP, both residual.

    Shape: (batch, N, D) → same. What follows the tokens in a call, such as the angles
    of `RotaryPositions`, is handed on to the attention.

    Args:
        attention: Layer that mixes the tokens, such as `Attention`. Its name must be
            "attention": it is part of the variables' paths and so of the checkpoint
            format.
        mlp: Layer that maps each token separately, such as `MLP`, named "mlp".
        epsilon: Small constant added to the variance in both normalisations.
        stochastic_depth: Probability of dropping each branch in training, in [0, 1).

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, equations 2 and 3;
    `Encoder1DBlock` in google-research/vision_transformer vit_jax/models_vit.py.
    """

    def __init__(
        self,
        attention: keras.layers.Layer,
        mlp: keras.layers.Layer,
        *,
        epsilon: float = 1e-6,
        stochastic_depth: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.attention = attention
        self.mlp = mlp
        self.epsilon = epsilon
        self.stochastic_depth = stochastic_depth

    def build(self, input_shape: Shape) -> None:
        same = {"epsilon": self.epsilon, "dtype": self.dtype_policy}
        self.attention_norm = LayerNormalization(name="attention_norm", **same)
        self.mlp_norm = LayerNormalization(name="mlp_norm", **same)
        self.drop = StochasticDepth(
            self.stochastic_depth, name="drop", dtype=self.dtype_policy
        )
        norms = (self.attention_norm, self.mlp_norm)
        for layer in (*norms, self.attention, self.mlp, self.drop):
            layer.build(input_shape)

    def call(
        self, x: Tensor, positions: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        branch = self._attended(self.attention_norm(x), positions, training)
        x = x + self.drop(branch, training=training)  # (B, N, D)
        branch = self.mlp(self.mlp_norm(x), training=training)
        return x + self.drop(branch, training=training)

    def _attended(
        self, x: Tensor, positions: Tensor | None, training: bool | None
    ) -> Tensor:
        others = () if positions is None else (positions,)
        return self.attention(x, *others, training=training)

    @property
    def grid(self) -> tuple[int, int]:
        """Grid of the cells or patches, of an attention that depends on it."""
        return self.attention.grid

    def resamplers(self) -> dict[str, Callable]:
        """Returns {variable path: method} of the variables that depend on the grid."""
        method = getattr(self.attention, "resamplers", dict)
        return method()
