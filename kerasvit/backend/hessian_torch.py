"""Second derivatives of a loss on PyTorch."""

from collections.abc import Callable
from typing import Any

import keras
import torch

from kerasvit.types import LossDerivatives, Tensor

from .threads import seen_here

_FUSED = torch.nn.functional, "scaled_dot_product_attention"


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
        # Fused attention has no second derivative. `sdpa_kernel` is of all threads.
        with (
            seen_here([(*_FUSED, lambda _: _explicit_attention)]),
            keras.StatelessScope(mapping, collect_losses=True),
        ):
            value = loss(x, y)
            gradients = _gradients([value], weights, create_graph=True)
            products = _gradients(gradients, weights, vector)
        return value.detach(), [gradient.detach() for gradient in gradients], products

    return derivatives


def _explicit_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(
            attn_mask.logical_not(), -torch.inf
        )
    explicit = torch.ops.aten._scaled_dot_product_attention_math
    arguments = query, key, value, attn_mask, dropout_p, is_causal
    return explicit(*arguments, **options)[0]


def _gradients(
    values: list[Tensor],
    weights: list[Tensor],
    multiples: list[Tensor] | None = None,
    create_graph: bool = False,
) -> list[Tensor]:
    """Returns the gradients of the sum of values, times multiples if they are given."""
    # Others are constant: for second derivatives, where the loss is linear.
    chosen = [i for i, value in enumerate(values) if value.requires_grad]
    if not chosen:
        return [torch.zeros_like(weight) for weight in weights]
    return list(
        torch.autograd.grad(
            [values[i] for i in chosen],
            weights,
            multiples and [multiples[i] for i in chosen],
            create_graph=create_graph,
            allow_unused=True,
            materialize_grads=True,
        )
    )
