"""Embeds the patches of an image as tokens."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import patch_sides, whole_patches
from kerasvit.ops import checked_in_graph, product
from kerasvit.types import PatchSize, Shape, Tensor

from .layer import OwnLayer, Roundable
from .resampling import resample_patches


@keras.saving.register_keras_serializable("kerasvit")
class PatchEmbedding(OwnLayer, Roundable, keras.layers.Layer):
    """Projects each patch of an image to a token.

    It is a convolution whose stride is its kernel size, computed as one matrix product
    over flattened patches. `kernel` has the convolution's shape (P, Q, C, D), in which
    checkpoints store it, for patches of P × Q pixels, which most models have square.

    Shape: (batch, H, W, C) → (batch, H/P · W/Q, D), rows of patches one after another.
    H and W may be unknown until the call.

    Args:
        patch_size: Side of a square patch in pixels, or (P, Q); H must be a multiple of
            P and W of Q.
        width: D, size of a token.
        partial: True: pixels at the bottom and at the right that fill no patch are
            ignored.
        use_bias: Whether a bias is added.

    Raises:
        ValueError: H or W is not such a multiple; with `partial`, less than P or Q. In
            a graph of TensorFlow with unknown sides it is `InvalidArgumentError`.

    Reference: Dosovitskiy et al. 2021, arXiv 2010.11929, equation 1.
    """

    def __init__(
        self,
        patch_size: PatchSize,
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
        if None not in (height, width):
            self._checked(None, height, width)
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*patch_sides(self.patch_size), channels, self.width),
            initializer=keras.initializers.LecunNormal(),
        )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.width,), initializer="zeros"
            )

    def call(self, images: Tensor) -> Tensor:
        batch, height, width, channels = ops.shape(images)
        images = self._checked(images, height, width)
        p, q = patch_sides(self.patch_size)
        rows, columns = height // p, width // q
        if self.partial:
            images = images[:, : rows * p, : columns * q]
        x = ops.reshape(images, (batch, rows, p, columns, q, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, rows, columns, P, Q, C)
        x = ops.cast(ops.reshape(x, (-1, p * q * channels)), self.compute_dtype)
        kernel = ops.reshape(self.kernel, (-1, self.width))
        bias = ops.convert_to_tensor(self.bias) if self.use_bias else None
        x = self.operate(
            lambda x, kernel: product(x, kernel, bias), inputs=x, kernel=kernel
        )
        return ops.reshape(x, (-1, rows * columns, self.width))

    def _checked(self, images: Tensor | None, height: Any, width: Any) -> Tensor | None:
        """Returns the images after checking their sides, numbers or tensors."""
        sides, (p, q) = (height, width), patch_sides(self.patch_size)
        whole = [
            side >= patch if self.partial else side % patch == 0
            for side, patch in zip(sides, (p, q), strict=True)
        ]
        message = f"The image must be a whole number of patches of {p} × {q} pixels."
        each = f"{p}" if p == q else f"{p} and {q}"
        choice = f"multiples of {each}"
        if self.partial:
            message = f"The image must have at least one patch of {p} × {q} pixels."
            choice = f"sides of at least {each}"
        if not all(isinstance(side, int) for side in sides):
            return checked_in_graph(images, whole, message, *sides)
        if not all(whole):
            raise ValueError(
                f"{message} Received: {height} × {width}. Choose {choice}."
            )
        return images

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, height, width, _ = input_shape
        rows, columns = whole_patches((height, width), self.patch_size)
        known = None not in (rows, columns)
        return batch, rows * columns if known else None, self.width

    def resamplers(self) -> dict[str, Callable]:
        """Returns {variable path: method} of the variables that depend on P and Q."""
        return {self.kernel.path: self.resample}

    def resample(self, array: np.ndarray, **of_tables: Any) -> np.ndarray:
        """Resamples the kernel of patches of another size.

        Args:
            array: Array of floats, (height, width, C, D).
            **of_tables: Not used; the arguments of `PositionEmbedding.resample`.

        Returns:
            (P, Q, C, D) array of the same dtype; see `resample_patches`.
        """
        sides = patch_sides(self.patch_size)
        return resample_patches(array, sides, "bicubic_antialias")
