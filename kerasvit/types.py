"""Types for annotations that several rooms share."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

# A tensor of the Keras backend (`tf.Tensor`, `jax.Array` or `torch.Tensor`), or a
# `keras.KerasTensor` while a functional model is built; they have no common class.
Tensor: TypeAlias = Any
# A shape as Keras passes it to `build`: integers, or None for an unknown size.
Shape: TypeAlias = tuple[Any, ...]
# Side of square patches in pixels, or (height, width) of rectangular ones.
PatchSize: TypeAlias = int | Sequence[int]
# One tensor per trainable variable; None where the loss does not depend on it.
Gradients: TypeAlias = list[Tensor | None]
# Returns the loss and its gradients at given values of the trainable variables.
LossAndGradients: TypeAlias = Callable[[list[Tensor]], tuple[Tensor, Gradients]]
# Returns a loss, its gradient and the product of its Hessian with a vector, given the
# vector and a batch `x`, `y`.
LossDerivatives: TypeAlias = Callable[
    [list[Tensor], Any, Any], tuple[Tensor, list[Tensor], list[Tensor]]
]
