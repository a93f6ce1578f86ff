"""Multi-head attention."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import ArgumentError
from kerasvit.backend.direct_calls import DirectCalls
from kerasvit.backend.linear import product
from kerasvit.backend.recorded import is_recorded
from kerasvit.backend.reshaping import reshape
from kerasvit.typing import Shape, Tensor

from .dense import Dense
from .dropout import Dropout

BACKEND = keras.backend.backend()
if BACKEND == "torch":
    from kerasvit.backend import attention_torch
elif BACKEND == "jax":
    from kerasvit.backend import attention_jax


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any = None,
    training: bool | None = False,
) -> Tensor:
    """Computes scaled dot-product attention of H heads.

    Args:
        query: (B, N, H, d).
        key: (B, M, H, d).
        value: (B, M, H, d).
        mask: Booleans that broadcast to (B, H, N, M), True where a query attends to a
            key; None: everywhere.
        training: Whether gradients may follow.

    Returns:
        (B, N, H, d).
    """
    if is_fused(query, key, mask, training):
        if BACKEND == "torch":
            return attention_torch.fused_attention(query, key, value, mask)
        return attention_jax.fused_attention(query, key, value, training)
    scores = _scores(query, key, mask)
    value = ops.transpose(value, (0, 2, 1, 3))
    if _divides_last(value.dtype):
        largest = ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True))
        weights = ops.exp(scores - largest)
        x = ops.matmul(ops.cast(weights, value.dtype), value)
        x = ops.cast(x / ops.sum(weights, axis=-1, keepdims=True), value.dtype)
    else:
        x = ops.matmul(ops.cast(ops.softmax(scores), value.dtype), value)
    return ops.transpose(x, (0, 2, 1, 3))


def _divides_last(dtype: Any) -> bool:
    """Returns whether the sums of the softmax divide the products with the values.

    For XLA a softmax is another pass over all weights, which are more than the results.
    The softmax of TensorFlow is one operation. float16 could overflow in the products.
    """
    name = keras.backend.standardize_dtype(dtype)
    return BACKEND == "jax" and name != "float16"


def is_fused(
    query: Tensor, key: Tensor, mask: Any = None, training: bool | None = False
) -> bool:
    """Returns whether `attend` leaves attention to one operation of the backend.

    PyTorch has one for all devices and chooses its kernel. JAX has cuDNN's flash
    attention on GPUs, for self-attention without a mask in 16 bits, with heads whose
    size is a multiple of 8 up to 128. It has gradients for even numbers of tokens only,
    and a token is added to odd ones. With Keras's distributions it is not, and
    the operation that Keras takes then needs 1.16 times the time of the products here
    (ViT-B/16, 577 tokens, H200). Keras computes the softmax product on GPUs older than
    Ampere. TensorFlow has none: Keras refuses `flash_attention=True` there.

    cuDNN's operation has no forward or second derivatives, and JAX cannot vectorise its
    gradients by `vmap`: use 32 bits for these. `kerasvit.inspection` computes second
    derivatives in the dtype of the variables, 32 bits or more, and so without it.
    """
    if BACKEND != "jax":
        return BACKEND == "torch"
    return mask is None and attention_jax.computes(query, key, training)


def softmax_weights(query: Tensor, key: Tensor, mask: Any = None) -> Tensor:
    """Returns the weights of `attend`, (B, H, N, M), float32 at least."""
    return ops.softmax(_scores(query, key, mask))


def _scores(query: Tensor, key: Tensor, mask: Any = None) -> Tensor:
    """Returns the scores before the softmax, (B, H, N, M), float32 at least."""
    query = ops.transpose(query, (0, 2, 1, 3)) * query.shape[-1] ** -0.5
    scores = ops.matmul(query, ops.transpose(key, (0, 2, 3, 1)))  # (B, H, N, M)
    # bfloat16 has 8 bits of precision: too few for a sum over hundreds of weights.
    at_least = keras.backend.result_type(scores.dtype, "float32")
    exact = ops.cast(scores, at_least)
    if mask is not None:
        exact = ops.where(mask, exact, -1e9)  # its exponential is 0
    return exact


@keras.saving.register_keras_serializable("kerasvit")
class Attention(DirectCalls):
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

    _mask: Any = None  # of `attend`; subclasses set it

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
        """Creates query, key, value and output projections."""
        width = input_shape[-1]
        if width % self.num_heads:
            raise ArgumentError(
                "The width of the tokens must be a multiple of `num_heads`. Received: "
                f"width={width}, num_heads={self.num_heads}.",
                "width",
                "num_heads",
            )

        def dense(name: str, use_bias: bool) -> Dense:
            layer = Dense(width, use_bias=use_bias, name=name, dtype=self.dtype_policy)
            layer.build((None, width))
            return layer

        self.query = dense("query", self.use_bias)
        self.key = dense("key", self.use_bias)
        self.value = dense("value", self.use_bias)
        self.output_dense = dense("output", True)
        self.drop = Dropout(self.dropout, name="drop", dtype=self.dtype_policy)
        self.drop.build((None, width))

    def call(
        self, x: Tensor, context: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        shape = ops.shape(x)
        query, key, value = self._projected(x, context)
        x = attend(query, key, value, self._mask, training)
        x = self.output_dense(reshape(x, (-1, shape[-1])))
        return reshape(self.drop(x, training=training), shape)

    def attention_weights(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Returns the weights softmax(q kᵀ / √d), (batch, H, N, M).

        They are computed explicitly, where `call` may use a fused operation, in float32
        at least. M = N without a context.
        """
        context = x if context is None else context
        query, key = self._heads(self.query, x), self._heads(self.key, context)
        return softmax_weights(query, key, self._mask)

    def _projected(self, x: Tensor, context: Tensor | None) -> list[Tensor]:
        """Returns queries of `x`, keys and values of the context, (B, N or M, H, d)."""
        projections = (self.query, self.key, self.value)
        floating = all(dense.quantization_mode is None for dense in projections)
        if not is_recorded() or context is not None or not floating:
            inputs = (x, *[x if context is None else context] * 2)
            return [
                self._heads(*each) for each in zip(projections, inputs, strict=True)
            ]
        # One large product takes less time on a GPU than three, and its gradient is no
        # sum of three. The compiler joins the kernels as it casts them.
        width, length = x.shape[-1], ops.shape(x)[1]
        kernel = ops.concatenate([dense.kernel for dense in projections], axis=1)
        biases = [dense.bias for dense in projections] if self.use_bias else None
        bias = ops.concatenate(biases) if biases else None
        heads = (-1, length, 3, self.num_heads, width // self.num_heads)
        joined = product(reshape(x, (-1, width)), kernel, bias)
        return list(ops.unstack(reshape(joined, heads), axis=2))

    def _heads(self, dense: Dense, x: Tensor) -> Tensor:
        """Projects tokens to the heads: (B, N, D) → (B, N, H, d)."""
        width = x.shape[-1]
        length = ops.shape(x)[1]
        x = dense(reshape(x, (-1, width)))  # one row per token; see MLP
        return reshape(x, (-1, length, self.num_heads, width // self.num_heads))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the shape of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = {
            "num_heads": self.num_heads,
            "use_bias": self.use_bias,
            "dropout": self.dropout,
        }
        return {**super().get_config(), **config}
