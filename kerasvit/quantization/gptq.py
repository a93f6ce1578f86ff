"""Quantises dense layers to int4 by GPTQ, with the inputs that images give them.

Frantar et al. 2022, "GPTQ: accurate post-training quantization for generative
pre-trained transformers", arXiv 2210.17323, Algorithm 1: the rows of a kernel (inputs,
units) are rounded one after the other, and the error of each is made up for by those
that are not rounded yet, weighted by the inverse of H = XᵀX of the layer's inputs X.
Its Cholesky decomposition gives the weights of all steps at once.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import integer
from kerasvit.backend.keras_private import layers_in
from kerasvit.types import Tensor

from .simulation import check_finite, check_floating, floating_copy, images_of
from .stored import Filters, QuantizableModel, checked, quantize_all

DAMPING = 0.01  # share of the mean of H's diagonal that is added to it, as the paper's


def gptq(
    model: QuantizableModel,
    batches: Any,
    filters: Filters = None,
    block_size: int = 128,
) -> None:
    """Quantises the dense layers of a model in place to int4, by GPTQ.

    The result is that of `model.quantize("int4")`, with other integers: those that
    change the outputs of each layer least, for the inputs that the images give it after
    the layers before it were quantised. Files, exports and `weight_formats` are as
    there.

        kerasvit.quantization.gptq(model, images)
        kerasvit.save_pretrained(model, "int4")

    Args:
        model: Model of kerasvit, in floating point.
        batches: Images, as for `simulate`; a hundred or more. They pass the model in
            one batch.
        filters: Which dense layers: as for `model.quantize`.
        block_size: Inputs that share a scale and a zero.

    Raises:
        ValueError: As `simulate` and `model.quantize`. The model is unchanged.

    Reference: Frantar et al. 2022, arXiv 2210.17323, Algorithm 1.
    """
    check_floating(model)
    integer("block_size", block_size, 1)
    config = keras.quantizers.Int4QuantizationConfig(
        activation_quantizer=None, block_size=block_size
    )
    layers = checked(model, config, filters)
    images = np.concatenate([*map(ops.convert_to_numpy, images_of(model, batches))])
    copy = floating_copy(model)
    copy.trainable = False  # PyTorch would keep the activations
    again = dict(zip(layers_in(model), layers_in(copy), strict=True))
    found = {layer: Rounding(block_size, layer.path) for layer in layers}
    for layer, rounding in found.items():
        again[layer].rounding = rounding
    copy(ops.convert_to_tensor(images), training=False)
    quantize_all(model, layers, config)
    for layer, rounding in found.items():
        for variable in layer.variables:
            if variable.name in rounding.results:
                variable.assign(rounding.results[variable.name])


class Rounding:
    """Rounds the kernel of a layer at its call, to inputs of that call.

    Args:
        block_size: Inputs that share a scale and a zero.
        path: Of the layer, for errors.

    Attributes:
        results: {name of a variable of Keras's int4 layer: its value}.
    """

    def __init__(self, block_size: int, path: str) -> None:
        self._block_size, self._path = block_size, path
        self.results: dict[str, Any] = {}

    def __call__(self, operation: Callable, operands: dict[str, Tensor]) -> Tensor:
        x, kernel = operands["inputs"], operands["kernel"]
        inputs = ops.convert_to_numpy(x).astype("float64").reshape(-1, kernel.shape[0])
        before = ops.convert_to_numpy(kernel).astype("float64")
        check_finite(self._path, (inputs, before))
        integers, scales, zeros = rounded(before, inputs, self._block_size)
        packed, _, _ = keras.quantizers.pack_int4(integers, axis=-1)
        self.results = {
            "kernel": packed,
            "kernel_scale": scales,
            "kernel_zero": zeros,
        }
        blocks = np.arange(len(before)) // self._block_size
        values = ((integers - zeros[blocks]) * scales[blocks]).astype("float32")
        return operation(x, ops.cast(values, kernel.dtype))


def rounded(
    kernel: np.ndarray, inputs: np.ndarray, block_size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the integers of a kernel, with the scale and zero of each block.

    Args:
        kernel: float64 (inputs, units).
        inputs: float64 (samples, inputs).
        block_size: Inputs that share a scale and a zero.

    Returns:
        Integers from -8 to 7 (inputs, units), scales (blocks, units) and zeros (blocks,
        units). The kernel is (integer - zero) · scale.
    """
    kernel = kernel.copy()
    hessian = inputs.T @ inputs
    unused = np.diag(hessian) == 0
    hessian[unused, unused] = 1
    kernel[unused] = 0
    hessian[np.diag_indices_from(hessian)] += DAMPING * np.diag(hessian).mean()
    factor = np.linalg.cholesky(np.linalg.inv(hessian)).T  # upper
    integers = np.empty(kernel.shape, "int8")
    scales, zeros = [], []
    for start in range(0, len(kernel), block_size):
        block = kernel[start : start + block_size]  # a view
        errors = np.empty_like(block)
        _, (scale,), (zero,) = map(
            ops.convert_to_numpy,
            keras.quantizers.abs_max_quantize_grouped_with_zero_point(
                block.astype("float32"), block_size, to_numpy=True
            ),
        )
        own = factor[start : start + len(block)]
        for i, row in enumerate(block):
            near = (np.round(row / scale) + zero).clip(-8, 7)
            integers[start + i] = near
            errors[i] = (row - (near - zero) * scale) / own[i, start + i]
            later = own[i, start + i + 1 : start + len(block)]
            block[i + 1 :] -= np.outer(later, errors[i])
        kernel[start + len(block) :] -= own[:, start + len(block) :].T @ errors
        scales.append(scale)
        zeros.append(zero)
    return integers, np.stack(scales), np.stack(zeros)
