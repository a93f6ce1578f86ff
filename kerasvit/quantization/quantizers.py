"""Functions that round a tensor to few values, in arithmetic of floating point."""

from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.types import Tensor


class Quantizer:
    """Base of the functions that round tensors."""

    def rounded(self, x: Any, of: Any = np) -> tuple[Any, Any]:
        """Returns rounded values, and which of `x` are within the range.

        Args:
            x: Array of NumPy, or a tensor, of float32 or float64.
            of: Module of its operations, `numpy` or `keras.ops`.
        """
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        """Returns rounded values with the gradient of `x` within the range, else 0.

        They are computed in float32 at least, and returned in the dtype of `x`.

        Reference: Bengio et al. 2013, arXiv 1308.3432, section 3.1 (straight-through).
        """
        exact = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        fixed = ops.stop_gradient(exact)
        values, inside = self.rounded(fixed, ops)
        moved = ops.where(inside, exact, fixed) - fixed  # 0, with the gradient
        return ops.cast(values + moved, x.dtype)


@dataclass(frozen=True)
class Uniform(Quantizer):
    """Rounds to values at the same distance.

        q = clip(round(x / scale) + zero, lowest, highest),  x̂ = (q - zero) · scale

    Attributes:
        scale: Distance, an array of float32; it and `zero` broadcast to the tensor.
        zero: The whole number that stands for 0.
        lowest, highest: Range of the whole numbers.

    Reference: Jacob et al. 2017, arXiv 1712.05877, equation 1.
    """

    scale: Any
    zero: Any
    lowest: int
    highest: int

    @classmethod
    def of_range(cls, low: Any, high: Any, bits: int) -> "Uniform":
        """Returns that of the numbers 0 to 2^bits − 1 for [low, high] and 0 in it."""
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = _scale(high - low, 2**bits - 1)
        return cls(scale, np.round(-low / scale).astype("float32"), 0, 2**bits - 1)

    @classmethod
    def symmetric(cls, largest: Any, bits: int) -> "Uniform":
        """Returns that of ±(2^(bits − 1) − 1) steps for [-largest, largest]."""
        steps = 2 ** (bits - 1) - 1
        return cls(_scale(largest, steps), np.float32(0), -steps, steps)

    def rounded(self, x: Any, of: Any = np) -> tuple[Any, Any]:
        """Returns rounded values, and which of `x` are within the range."""
        numbers = of.add(of.round(of.divide(x, self.scale)), self.zero)
        kept = of.clip(numbers, self.lowest, self.highest)
        values = of.multiply(of.subtract(kept, self.zero), self.scale)
        return values, of.equal(numbers, kept)


@dataclass(frozen=True)
class TwinUniform(Quantizer):
    """Rounds small and large values to two distances; a bit tells which.

    Attributes:
        small: `Uniform` of the values below `split`, of one bit less than both.
        large: `Uniform` of the others, with a scale that is 2^m times that of `small`,
            so that hardware aligns both by a shift.
        split: Where the second range begins.

    Reference: Yuan et al. 2021 (PTQ4ViT), arXiv 2111.12293, section 3.2 and figure 4;
    `SoSPTQSLQuantMatMul` and `PostGeluPTQSLBatchingQuantLinear` in quant_layers of
    hahnyuan/PTQ4ViT.
    """

    small: Uniform
    large: Uniform
    split: float

    @classmethod
    def of_softmax(cls, shift: int, bits: int) -> "TwinUniform":
        """Returns that of [0, 2^-shift) and [2^-shift, 1]."""
        steps = 2 ** (bits - 1) - 1
        large = Uniform(np.float32(1 / steps), np.float32(0), 0, steps)
        small = replace(large, scale=np.float32(large.scale * 2.0**-shift))
        return cls(small, large, 2.0**-shift)

    @classmethod
    def of_gelu(cls, lowest: float, shift: int, bits: int) -> "TwinUniform":
        """Returns that of [lowest, 0) and of positive values, with 2^shift its scale.

        The first covers all negative values, as in the paper.
        """
        steps = 2 ** (bits - 1) - 1
        small = Uniform(_scale(-lowest, steps), np.float32(0), -steps, 0)
        scale = np.float32(small.scale * 2.0**shift)
        return cls(small, Uniform(scale, np.float32(0), 0, steps), 0.0)

    def rounded(self, x: Any, of: Any = np) -> tuple[Any, Any]:
        """Returns rounded values, and which of `x` are within the range."""
        is_small = of.less(x, self.split)
        both = zip(self.small.rounded(x, of), self.large.rounded(x, of), strict=True)
        values, inside = (of.where(is_small, *each) for each in both)
        return values, inside


@dataclass(frozen=True)
class Log2(Quantizer):
    """Rounds values in [0, 1] to powers of two, so that a shift multiplies by them.

        q = round(−log2 x),  x̂ = 2^−q for q < 2^bits, else 0

    Attributes:
        bits: Number of bits of q.

    Reference: Lin et al. 2021 (FQ-ViT), arXiv 2111.13824, section 4.2, the values of
    log-int-softmax with an exact softmax; models/ptq/quantizer/log2.py in
    megvii-research/FQ-ViT.
    """

    bits: int

    def rounded(self, x: Any, of: Any = np) -> tuple[Any, Any]:
        """Returns rounded values, and which of them are not 0."""
        tiny = 2.0**-126  # the logarithm of 0 is infinite; float32 has no smaller ones
        numbers = of.round(of.negative(of.log2(of.maximum(x, tiny))))
        kept = of.logical_and(of.less(numbers, 2**self.bits), of.greater_equal(x, tiny))
        values = of.power(of.full_like(x, 2), of.negative(of.maximum(numbers, 0)))
        return of.where(kept, values, of.zeros_like(x)), kept


def _scale(largest: Any, steps: int) -> np.ndarray:
    """Returns the distance of `steps` up to the largest value; 1 for zeros alone."""
    scale = np.asarray(largest, "float32") / np.float32(steps)
    return np.where(scale > 0, scale, np.float32(1))
