"""Multi-head attention with rotary position embeddings."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import one_of
from kerasvit.ops import attention_weights
from kerasvit.types import Shape, Tensor

from .attention import Attention
from .dense import dense_in
from .layer_norm import LayerNormalization

PAIRS = ("halves", "neighbours")


@keras.saving.register_keras_serializable("kerasvit")
class RotaryAttention(Attention):
    """Multi-head self-attention whose queries and keys are rotated by their positions.

    Pair i of the entries of a query or key, (a, b), becomes (a cos θ − b sin θ,
    b cos θ + a sin θ) with the i-th angle θ of its token: the product of a query and a
    key then depends on the difference of their positions.

    Shape: (batch, N, D), and angles (N, d/2) of `RotaryPositions` → (batch, N, D). With
    `mixed`: coordinates (N, 2) in place of angles. Without either nothing is rotated.

    Args:
        num_heads: H, a divisor of D.
        use_bias: Whether query and value have a bias. The output always has one.
        key_bias: Whether the key has one, if `use_bias`.
        pairs: Which entries of a head are rotated together. "halves": i and i + d/2
            (DINOv3). "neighbours": 2 i and 2 i + 1 (EVA-02).
        mixed: Whether each head has learned frequencies, (2, H, d/2), of both
            coordinates (arXiv 2403.13298).
        inner_norm: Whether the joined heads are normalised before the output layer
            (EVA-02-CLIP).
        epsilon: Small constant added to the variance in this normalisation.
        dropout: As for `Attention`.

    Raises:
        ValueError: D is not a multiple of `num_heads`; `pairs` is none of those above.

    Reference: Su et al. 2021, arXiv 2104.09864; `EvaAttention` in timm/models/eva.py
    and `AttentionRope` in timm/layers/attention.py.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        key_bias: bool = True,
        pairs: str = "halves",
        mixed: bool = False,
        inner_norm: bool = False,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, **kwargs)
        self.key_bias = key_bias
        self.pairs = one_of("pairs", pairs, PAIRS)
        self.mixed = mixed
        self.inner_norm = inner_norm
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        width = input_shape[-1]
        if self.mixed:
            self.frequencies = self.add_weight(
                name="frequencies",
                shape=(2, self.num_heads, width // self.num_heads // 2),
                initializer=keras.initializers.RandomUniform(-1.0, 1.0),
                autocast=False,  # bfloat16 cannot multiply them by coordinates
            )
        if self.inner_norm:
            self.norm = LayerNormalization(
                epsilon=self.epsilon, name="norm", dtype=self.dtype_policy
            )
            self.norm.build(input_shape)

    def _build_key(self, width: int) -> Any:
        bias = self.use_bias and self.key_bias
        return dense_in(self, "key", width, width, use_bias=bias)

    def call(
        self, x: Tensor, positions: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        query, key = self._rotated_heads(x, positions)
        return self._attended(x, query, key, self._heads(self.value, x), training)

    def attention_weights(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Returns the weights softmax(q kᵀ / √d), (batch, H, N, N); see `Attention`."""
        return attention_weights(*self._rotated_heads(x, positions))

    def _rotated_heads(
        self, x: Tensor, positions: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns queries and keys, (B, N, H, d), rotated."""
        query, key = self._heads(self.query, x), self._heads(self.key, x)
        if positions is None:
            return query, key
        angles = positions[:, None]  # (N, 1, d/2)
        if self.mixed:
            frequencies = ops.convert_to_tensor(self.frequencies)
            first, second = positions[:, :1, None], positions[:, 1:, None]
            angles = first * frequencies[0] + second * frequencies[1]  # (N, H, d/2)
        sine, cosine = ops.sin(angles), ops.cos(angles)
        return self._rotated(query, sine, cosine), self._rotated(key, sine, cosine)

    def _rotated(self, x: Tensor, sine: Tensor, cosine: Tensor) -> Tensor:
        exact = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        if self.pairs == "halves":
            a, b = ops.split(exact, 2, axis=-1)
        else:
            a, b = exact[..., ::2], exact[..., 1::2]
        parts = [a * cosine - b * sine, b * cosine + a * sine]
        if self.pairs == "halves":
            rotated = ops.concatenate(parts, axis=-1)
        else:
            rotated = ops.reshape(ops.stack(parts, axis=-1), ops.shape(x))
        return ops.cast(rotated, x.dtype)

    def _joined(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.inner_norm else x
