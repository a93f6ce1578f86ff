"""The image input and the classification head of all architectures."""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from kerasvit.layers import Rescaling
from kerasvit.types import Tensor


def image_input(
    image_size: Sequence[int | None], normalization: dict[str, Any] | None = None
) -> tuple[Tensor, Tensor]:
    """The model's input, and the image that its first layer sees.

    Args:
        image_size: (height, width) in pixels; (None, None) for images of any size.
        normalization: {"mean": ..., "std": ...} of pixels in 0…1 for a model that
            takes 0…255 and normalises itself; or None.

    Returns:
        (input, image), both (batch, H, W, 3).
    """
    image = keras.Input((*image_size, 3), name="image")
    if normalization is None:
        return image, image
    mean, std = normalization["mean"], normalization["std"]
    # In the variables' dtype: bfloat16 would round the pixels before they are centred.
    scale = Rescaling(
        [1 / (255 * s) for s in std],
        [-m / s for m, s in zip(mean, std, strict=True)],
        dtype=keras.config.dtype_policy().variable_dtype,
        name="normalization",
    )
    return image, scale(image)


def head(num_classes: int, name: str = "head") -> Callable[[Tensor], Tensor]:
    """Returns the layer from features to logits; the identity for no classes.

    Zero at the start, as in vit_jax; full precision, for the loss.
    """
    if not num_classes:
        return lambda features: features
    return keras.layers.Dense(
        num_classes,
        kernel_initializer="zeros",
        dtype=keras.config.dtype_policy().variable_dtype,
        name=name,
    )
