"""Embeds the patches of an image as tokens."""

from typing import Any

import keras
from keras import ops

from kerasvit.typing import Shape, Tensor


@keras.saving.register_keras_serializable("kerasvit")
class PatchEmbedding(keras.layers.Layer):
    """Projects each square patch of an image to a token.

    It is a convolution whose stride is its kernel size, computed as one matrix product
    over flattened patches. `kernel` has the convolution's shape (P, P, C, D), in which
    checkpoints store it.

    Shape: (batch, H, W, C) → (batch, H/P · W/P, D), rows of patches one after another.

    Args:
        patch_size: P, side of a patch in pixels; H and W must be multiples of it.
        width: D, size of a token.

    Raises:
        ValueError: H or W is not known or not a multiple of P.

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, equation 1.
    """

    def __init__(self, patch_size: int, *, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.patch_size = patch_size
        self.width = width

    def build(self, input_shape: Shape) -> None:
        """Creates the kernel, after checking that the image divides into patches."""
        _, height, width, channels = input_shape
        p = self.patch_size
        if None in (height, width) or height % p or width % p:
            raise ValueError(
                f"The image must be a whole number of patches of {p} × {p} pixels. "
                f"Received: {height} × {width}. Choose multiples of {p}."
            )
        self.kernel = self.add_weight(
            name="kernel",
            shape=(p, p, channels, self.width),
            initializer=keras.initializers.LecunNormal(),
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.width,), initializer="zeros"
        )

    def call(self, images: Tensor) -> Tensor:
        _, height, width, channels = images.shape
        p = self.patch_size
        rows, columns = height // p, width // p
        x = ops.reshape(images, (-1, rows, p, columns, p, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, rows, columns, P, P, C)
        x = ops.reshape(x, (-1, p * p * channels))
        x = ops.matmul(x, ops.reshape(self.kernel, (-1, self.width))) + self.bias
        return ops.reshape(x, (-1, rows * columns, self.width))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the output shape: (batch, H, W, C) → (batch, H/P · W/P, D)."""
        batch, height, width, _ = input_shape
        tokens = (height // self.patch_size) * (width // self.patch_size)
        return batch, tokens, self.width

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = {"patch_size": self.patch_size, "width": self.width}
        return {**super().get_config(), **config}
