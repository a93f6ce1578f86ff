"""Embeds patches that overlap as cells of a map."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import patch_sides
from kerasvit.ops import convolution
from kerasvit.types import Shape, Tensor

from .patch_embedding import PatchEmbedding


@keras.saving.register_keras_serializable("kerasvit")
class OverlappingPatchEmbedding(PatchEmbedding):
    """Projects patches, at a distance of less than their side, to cells of a map.

    It is a convolution without padding, with a bias. Pixels at the bottom and at the
    right that fill no patch are ignored.

    Shape: (batch, H, W, C) → (batch, h, w, D) with h = ⌊(H - P) / stride⌋ + 1, and w
    alike. H and W may be unknown until the call.

    Args:
        patch_size: P, side of a square patch in pixels; H and W must be at least P.
        stride: Distance between neighbouring patches in pixels.
        width: D, size of a cell.

    Raises:
        ValueError: H or W is less than P. In a graph of TensorFlow with unknown sides
            it is `InvalidArgumentError`.

    Reference: Heo et al. 2021, arXiv 2103.16302; `ConvEmbedding` in timm/models/pit.py.
    """

    def __init__(
        self, patch_size: int, *, stride: int, width: int, **kwargs: Any
    ) -> None:
        super().__init__(patch_size, width=width, **{**kwargs, "partial": True})
        self.stride = stride

    def call(self, images: Tensor) -> Tensor:
        images = self._checked(images, *ops.shape(images)[1:3])
        kernel = ops.convert_to_tensor(self.kernel)
        x = ops.cast(images, self.compute_dtype)
        x = self.operate(
            lambda x, kernel: convolution(x, kernel, self.stride, 0),
            inputs=x,
            kernel=kernel,
        )
        return x + self.bias

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        batch, *sides, _ = input_shape
        cells = (
            side and (side - patch) // self.stride + 1
            for side, patch in zip(sides, patch_sides(self.patch_size), strict=True)
        )
        return batch, *cells, self.width
