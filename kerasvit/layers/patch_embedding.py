"""Embeds the patches of an image as tokens."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.ops import checked_in_graph, product
from kerasvit.types import Shape, Tensor

from .layer import OwnLayer
from .resampling import resample_patches


@keras.saving.register_keras_serializable("kerasvit")
class PatchEmbedding(OwnLayer, keras.layers.Layer):
    """Projects each square patch of an image to a token.

    It is a convolution whose stride is its kernel size, computed as one matrix product
    over flattened patches. `kernel` has the convolution's shape (P, P, C, D), in which
    checkpoints store it.

    Shape: (batch, H, W, C) → (batch, H/P · W/P, D), rows of patches one after another.
    H and W may be unknown until the call.

    Args:
        patch_size: P, side of a patch in pixels; H and W must be multiples of it.
        width: D, size of a token.
        partial: True: pixels at the bottom and at the right that fill no patch are
            ignored.
        use_bias: Whether a bias is added.

    Raises:
        ValueError: H or W is not a multiple of P; with `partial`, less than P. In a
            graph of TensorFlow with unknown sides it is `InvalidArgumentError`.

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, equation 1.
    """

    def __init__(
        self,
        patch_size: int,
        *,
        width: int,
        partial: bool = False,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.patch_size = patch_size
        self.width = width
        self.partial = partial
        self.use_bias = use_bias

    def build(self, input_shape: Shape) -> None:
        _, height, width, channels = input_shape
        p = self.patch_size
        if None not in (height, width):
            self._checked(None, height, width)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(p, p, channels, self.width),
            initializer=keras.initializers.LecunNormal(),
        )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.width,), initializer="zeros"
            )

    def call(self, images: Tensor) -> Tensor:
        batch, height, width, channels = ops.shape(images)
        images = self._checked(images, height, width)
        p = self.patch_size
        rows, columns = height // p, width // p
        if self.partial:
            images = images[:, : rows * p, : columns * p]
        x = ops.reshape(images, (batch, rows, p, columns, p, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, rows, columns, P, P, C)
        x = ops.cast(ops.reshape(x, (-1, p * p * channels)), self.compute_dtype)
        kernel = ops.reshape(self.kernel, (-1, self.width))
        bias = ops.convert_to_tensor(self.bias) if self.use_bias else None
        x = product(x, kernel, bias)
        return ops.reshape(x, (-1, rows * columns, self.width))

    def _checked(self, images: Tensor | None, height: Any, width: Any) -> Tensor | None:
        """Returns the images after checking their sides, numbers or tensors."""
        p, sides = self.patch_size, (height, width)
        whole = [side >= p if self.partial else side % p == 0 for side in sides]
        message = f"The image must be a whole number of patches of {p} × {p} pixels."
        choice = f"multiples of {p}"
        if self.partial:
            message = f"The image must have at least one patch of {p} × {p} pixels."
            choice = f"sides of at least {p}"
        if not all(isinstance(side, int) for side in sides):
            return checked_in_graph(images, whole, message, *sides)
        if not all(whole):
            raise ValueError(
                f"{message} Received: {height} × {width}. Choose {choice}."
            )
        return images

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, height, width, _ = input_shape
        known = None not in (height, width)
        p = self.patch_size
        return batch, height // p * (width // p) if known else None, self.width

    def resamplers(self) -> dict[str, Callable]:
        """Returns {variable path: method} of the variables that depend on P."""
        return {self.kernel.path: self.resample}

    def resample(self, array: np.ndarray, **of_tables: Any) -> np.ndarray:
        """Resamples the kernel of patches of another size, (p, q, C, D).

        Args:
            array: Array of floats.
            **of_tables: Not used; the arguments of `PositionEmbedding.resample`.

        Returns:
            (P, P, C, D) array of the same dtype; see `resample_patches`.
        """
        sides = self.patch_size, self.patch_size
        return resample_patches(array, sides, "bicubic_antialias")
