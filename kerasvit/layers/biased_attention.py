"""Multi-head attention with biases of its scores."""

from collections.abc import Callable
from typing import Any

import keras

from kerasvit.ops import attention_weights
from kerasvit.types import Shape, Tensor

from .attention import Attention
from .dense import Dense, dense_in
from .relative_position_bias import RelativePositionBias


@keras.saving.register_keras_serializable("kerasvit")
class BiasedAttention(Attention):
    """Multi-head self-attention with a bias for each head and pair of tokens.

    softmax(q kᵀ / √d + b) v. The key has no bias of its own: one would add the same
    number to all scores of a query.

    Shape: (batch, N, D) → same. What follows the tokens in a call is the image, of
    which `position_bias` takes the size; without it, biases (1, heads, N, N).

    Args:
        num_heads: Number of heads, a divisor of D.
        position_bias: `RelativePositionBias` of this layer, named "position_bias".
            None: it has none of its own.
        use_bias: Whether query and value have a bias. The output always has one.
        dropout: As for `Attention`.

    Raises:
        ValueError: D is not a multiple of `num_heads`.

    Reference: Bao et al. 2021 (BEiT), arXiv 2106.08254; `Attention` in
    timm/models/beit.py.
    """

    def __init__(
        self,
        num_heads: int,
        position_bias: RelativePositionBias | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, **kwargs)
        self.position_bias = position_bias
        if position_bias is not None:
            self.grid = position_bias.grid

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        if self.position_bias is not None:
            self.position_bias.build(input_shape)

    def _build_key(self, width: int) -> Dense:
        return dense_in(self, "key", width, width, use_bias=False)

    def call(
        self, x: Tensor, positions: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        query, key = self._heads(self.query, x), self._heads(self.key, x)
        value, biases = self._heads(self.value, x), self._biases(positions)
        return self._attended(x, query, key, value, biases, training)

    def attention_weights(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Returns the weights softmax(q kᵀ / √d + b), (batch, H, N, N)."""
        query, key = self._heads(self.query, x), self._heads(self.key, x)
        biases = self._biases(positions)
        return attention_weights(query, key, biases, self._multiplied)

    def _biases(self, positions: Tensor | None) -> Tensor | None:
        if self.position_bias is None:
            return positions
        return self.position_bias.scores(positions)

    def resamplers(self) -> dict[str, Callable]:
        """Returns {variable path: method} of the variables that depend on the grid."""
        return {} if self.position_bias is None else self.position_bias.resamplers()
