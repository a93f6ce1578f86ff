"""Multi-head attention with rotary position embeddings."""

from typing import Any

import keras

from kerasvit.ops import attention_weights
from kerasvit.types import Shape, Tensor

from .attention import Attention
from .dense import Dense, dense_in
from .layer_norm import LayerNormalization
from .rotation import Rotation


@keras.saving.register_keras_serializable("kerasvit")
class RotaryAttention(Attention):
    """Multi-head self-attention whose queries and keys are rotated by their positions.

    Shape: (batch, N, D), and the result of `RotaryPositions`, (N, 4) → (batch, N, D).

    Args:
        num_heads: H, a divisor of D.
        rotation: `Rotation` of queries and keys, named "rotation"; None: none.
        use_bias: Whether query and value have a bias. The output always has one.
        key_bias: Whether the key has one, if `use_bias`.
        inner_norm: Whether the joined heads are normalised before the output layer
            (EVA-02-CLIP).
        epsilon: Small constant added to the variance in this normalisation.
        dropout: As for `Attention`.

    Raises:
        ValueError: D is not a multiple of `num_heads`.

    Reference: Su et al. 2021, arXiv 2104.09864; `EvaAttention` in timm/models/eva.py
    and `AttentionRope` in timm/layers/attention.py.
    """

    def __init__(
        self,
        num_heads: int,
        rotation: Rotation | None = None,
        *,
        key_bias: bool = True,
        inner_norm: bool = False,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, **kwargs)
        self.rotation = rotation
        self.key_bias = key_bias
        self.inner_norm = inner_norm
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        width = input_shape[-1]
        if self.rotation is not None:
            self.rotation.build((None, None, self.num_heads, width // self.num_heads))
        if self.inner_norm:
            self.norm = LayerNormalization(
                epsilon=self.epsilon, name="norm", dtype=self.dtype_policy
            )
            self.norm.build(input_shape)

    def _build_key(self, width: int) -> Dense:
        bias = self.use_bias and self.key_bias
        return dense_in(self, "key", width, width, use_bias=bias)

    def call(
        self, x: Tensor, positions: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        query, key = self._rotated_heads(x, positions)
        value = self._heads(self.value, x)
        return self._attended(x, query, key, value, None, training)

    def attention_weights(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Returns the weights softmax(q kᵀ / √d), (batch, H, N, N); see `Attention`."""
        query, key = self._rotated_heads(x, positions)
        return attention_weights(query, key, None, self._multiplied)

    def _rotated_heads(
        self, x: Tensor, positions: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns queries and keys, (B, N, H, d), rotated."""
        query, key = self._heads(self.query, x), self._heads(self.key, x)
        if positions is None or self.rotation is None:
            return query, key
        turns = self.rotation.turns(positions, query.shape[-1])
        return self.rotation.rotate(query, turns), self.rotation.rotate(key, turns)

    def _joined(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.inner_norm else x
