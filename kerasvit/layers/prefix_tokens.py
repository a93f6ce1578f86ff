"""Learned tokens before the patch tokens: class token, registers."""

from typing import Any

import keras
from keras import ops

from kerasvit.types import Shape, Tensor

from .layer import OwnLayer


@keras.saving.register_keras_serializable("kerasvit")
class PrefixTokens(OwnLayer, keras.layers.Layer):
    """Prepends learned tokens, such as class and register tokens.

    One token is the class token of ViT; several are the register tokens of Darcet et
    al. 2024.

    Shape: (batch, N, D) → (batch, count + N, D).

    Args:
        count: Number of tokens, ≥ 1.
        stddev: Standard deviation of the initial values; 0 for zeros, as in
            google-research/vision_transformer for the class token.

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, equation 1; registers:
    arXiv 2309.16588.
    """

    def __init__(self, count: int = 1, *, stddev: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.count = count
        self.stddev = stddev

    def build(self, input_shape: Shape) -> None:
        self.tokens = self.add_weight(
            name="tokens",
            shape=(1, self.count, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )

    def call(self, x: Tensor) -> Tensor:
        batch = ops.shape(x)[0]
        tokens = ops.broadcast_to(self.tokens, (batch, self.count, x.shape[-1]))
        return ops.concatenate([ops.cast(tokens, x.dtype), x], axis=1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, length, width = input_shape
        return batch, None if length is None else length + self.count, width
