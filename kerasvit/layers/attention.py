"""Multi-head attention."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import ArgumentError
from kerasvit.ops import attention, attention_weights, reshape
from kerasvit.types import Shape, Tensor

from .dense import Dense, dense_in
from .dropout import Dropout
from .layer import Layer


@keras.saving.register_keras_serializable("kerasvit")
class Attention(Layer):
    """Multi-head self-attention.

    softmax(q kᵀ / √d) v with d = D / num_heads, then a dense layer over the joined
    heads. Query, key and value have a kernel each, heads side by side, (D, D).

    Shape: (batch, N, D) → same. With a context (batch, M, D) the N tokens attend to the
    context instead of themselves.

    Args:
        num_heads: H, a divisor of D.
        use_bias: Whether query, key and value have a bias. The output always has one.
        dropout: Dropout rate after the output layer, in [0, 1). Attention weights are
            not dropped, as in the configurations of vit_jax.

    Raises:
        ValueError: D is not a multiple of `num_heads`.

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, appendix A.
    """

    _mask: Any = None  # of `ops.attention`; subclasses set it

    def __init__(
        self,
        num_heads: int,
        *,
        use_bias: bool = True,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.use_bias = use_bias
        self.dropout = dropout

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        if width % self.num_heads:
            raise ArgumentError(
                "The width of the tokens must be a multiple of `num_heads`. Received: "
                f"width={width}, num_heads={self.num_heads}.",
                "width",
                "num_heads",
            )

        self.query = dense_in(self, "query", width, width, use_bias=self.use_bias)
        self.key = self._build_key(width)
        self.value = dense_in(self, "value", width, width, use_bias=self.use_bias)
        self.output_dense = dense_in(self, "output", width, width)
        self.drop = Dropout(self.dropout, name="drop", dtype=self.dtype_policy)
        self.drop.build((None, width))

    def _build_key(self, width: int) -> Dense:
        return dense_in(self, "key", width, width, use_bias=self.use_bias)

    def call(
        self, x: Tensor, context: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        context = x if context is None else context
        query = self._heads(self.query, x)
        key, value = self._heads(self.key, context), self._heads(self.value, context)
        return self._attended(x, query, key, value, self._mask, training)

    def _attended(
        self,
        x: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any,
        training: bool | None,
    ) -> Tensor:
        """Returns the output for tokens `x` with their projections, (B, N, D).

        `mask` is that of `ops.attention`.
        """
        shape = ops.shape(x)
        if self.rounding is None:
            x = attention(query, key, value, mask, training)
        else:
            x = self._by_products(query, key, value, mask)
        x = self._joined(reshape(x, (-1, shape[-1])))
        x = self.output_dense(x)
        return reshape(self.drop(x, training=training), shape)

    def _by_products(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Any
    ) -> Tensor:
        """Returns `ops.attention` of rounded operands."""
        weights = attention_weights(query, key, mask, self._multiplied)
        operands = ops.cast(weights, value.dtype), ops.transpose(value, (0, 2, 1, 3))
        x = self.operate(ops.matmul, weights=operands[0], value=operands[1])
        return ops.transpose(x, (0, 2, 1, 3))

    def _multiplied(self, query: Tensor, key: Tensor) -> Tensor:
        return self.operate(ops.matmul, query=query, key=key)

    def _joined(self, x: Tensor) -> Tensor:
        """Returns the joined heads, (B·N, D), as the output layer takes them."""
        return x

    def attention_weights(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Returns the weights softmax(q kᵀ / √d), (batch, H, N, M).

        They are computed explicitly, where `call` may use a fused operation, in float32
        at least. M = N without a context.
        """
        context = x if context is None else context
        query, key = self._heads(self.query, x), self._heads(self.key, context)
        return attention_weights(query, key, self._mask, self._multiplied)

    def _heads(self, dense: Dense, x: Tensor) -> Tensor:
        """Projects tokens to the heads: (B, N, D) → (B, N, H, d)."""
        width = x.shape[-1]
        length = ops.shape(x)[1]
        x = dense(reshape(x, (-1, width)))  # one row per token; see MLP
        return reshape(x, (-1, length, self.num_heads, width // self.num_heads))
