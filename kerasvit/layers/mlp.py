"""The MLP of a Transformer block."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import one_of
from kerasvit.ops import gelu, gelu_tanh, quick_gelu, reshape
from kerasvit.types import Shape, Tensor

from .dense import dense_in
from .dropout import Dropout
from .layer import Layer

ACTIVATIONS = {"gelu": gelu, "gelu_tanh": gelu_tanh, "quick_gelu": quick_gelu}


@keras.saving.register_keras_serializable("kerasvit")
class MLP(Layer):
    """Two dense layers with a GELU in between, applied to each token.

    Shape: (batch, ..., D) → same.

    Args:
        mlp_dim: Size of the hidden layer.
        activation: "gelu", exact, as timm and transformers compute it; "gelu_tanh",
            the approximation that Google's JAX code uses; logits differ by about 1e-4;
            or "quick_gelu", x · σ(1.702 x), of openai/CLIP clip/model.py.
        dropout: Dropout rate after each dense layer, in [0, 1).

    Raises:
        ValueError: `activation` is none of them.

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, equation 3; `MlpBlock` in
    google-research/vision_transformer vit_jax/models_vit.py.
    """

    def __init__(
        self,
        mlp_dim: int,
        *,
        activation: str = "gelu",
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim
        self.activation = one_of("activation", activation, tuple(ACTIVATIONS))
        self.dropout = dropout

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        bias = keras.initializers.RandomNormal(stddev=1e-6)  # as vit_jax
        sizes = width, self.mlp_dim
        self.dense_0 = dense_in(self, "dense_0", *sizes, bias_initializer=bias)
        self.dense_1 = dense_in(self, "dense_1", *sizes[::-1], bias_initializer=bias)
        self.drop = Dropout(self.dropout, name="drop", dtype=self.dtype_policy)
        self.drop.build((None, width))

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        shape = ops.shape(x)
        # One row per token: on CPU, XLA takes twice as long for the gradient of the
        # same product with three axes.
        x = reshape(x, (-1, x.shape[-1]))
        x = ACTIVATIONS[self.activation](self.dense_0(x))
        x = self.drop(x, training=training)
        x = self.drop(self.dense_1(x), training=training)
        return reshape(x, shape)
