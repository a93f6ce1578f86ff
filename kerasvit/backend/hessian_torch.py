"""Second derivatives of a loss on PyTorch."""

from collections.abc import Callable
from typing import Any

import keras
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kerasvit.typing import LossDerivatives, Tensor


def loss_derivatives(
    model: keras.Model,
    variables: list[keras.Variable],
    loss: Callable[[Any, Any], Tensor],
) -> LossDerivatives:
    """Returns a function that computes a loss, its gradient and a Hessian product.

    Args:
        model: Built `keras.Model`.
        variables: Variables of the model by which the loss is differentiated, of a
            floating dtype.
        loss: Function of a batch `x`, `y` that calls the model and returns a scalar
            tensor.

    Returns:
        Function of `vector`, `x` and `y`. `vector` is a list of tensors, one of the
        shape and dtype of each variable. The function returns the loss, a list of
        gradients and a list of products of the Hessian with the vector, with zeros for
        variables that the loss does not depend on. It computes at the present values of
        all variables and changes none.
    """

    def derivatives(
        vector: list[Tensor], x: Any, y: Any
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        weights = [v.value.detach().requires_grad_() for v in variables]
        mapping = zip(variables, weights, strict=True)
        # Fused attention has no second derivative.
        with (
            sdpa_kernel(SDPBackend.MATH),
            keras.StatelessScope(mapping, collect_losses=True),
        ):
            value = loss(x, y)
            gradients = _gradients(value, weights, create_graph=True)
            slope = sum(
                (gradient * part).sum()
                for gradient, part in zip(gradients, vector, strict=True)
            )
            products = _gradients(slope, weights)
        return value.detach(), [gradient.detach() for gradient in gradients], products

    return derivatives


def _gradients(
    value: Tensor, weights: list[Tensor], create_graph: bool = False
) -> list[Tensor]:
    if not value.requires_grad:  # the loss is linear in all weights
        return [torch.zeros_like(weight) for weight in weights]
    return list(
        torch.autograd.grad(
            value,
            weights,
            create_graph=create_graph,
            allow_unused=True,
            materialize_grads=True,
        )
    )
