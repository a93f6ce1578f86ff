"""First and second derivatives of a loss by the weights, on PyTorch."""

from collections.abc import Callable
from typing import Any

import keras
import torch

from kerasvit.backend.threads import seen_here
from kerasvit.types import LossDerivatives, Tensor

_FUSED = torch.nn.functional, "scaled_dot_product_attention"


def value_at(
    variables: list[keras.Variable], function: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Returns a function that computes at given values of variables.

    Args:
        variables: All variables that `function` reads.
        function: Function of tensors, or structures of them, that calls a model and
            returns a scalar tensor.

    Returns:
        Function of a list of values, one for each variable, and the arguments of
        `function`. No variable is changed.
    """

    def value(values: list[Tensor], *args: Any) -> Tensor:
        with torch.no_grad():
            return _at(variables, function, values, args)

    return value


def gradients_at(
    variables: list[keras.Variable], function: Callable[..., Tensor], count: int
) -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """Returns a function that computes a value and gradients at values of variables.

    Args:
        variables: All variables that `function` reads.
        function: As for `value_at`.
        count: Number of variables, the first ones, to differentiate by.

    Returns:
        Function of the same arguments as that of `value_at`. It returns the value and
        `count` gradients, with zeros where the value does not depend on a variable.
    """

    def gradients(values: list[Tensor], *args: Any) -> tuple[Tensor, list[Tensor]]:
        weights = [value.detach().requires_grad_() for value in values[:count]]
        value = _at(variables, function, [*weights, *values[count:]], args)
        if not value.requires_grad:
            return value, [torch.zeros_like(weight) for weight in weights]
        found = torch.autograd.grad(
            value, weights, allow_unused=True, materialize_grads=True
        )
        return value.detach(), list(found)

    return gradients


def _at(
    variables: list[keras.Variable],
    function: Callable[..., Tensor],
    values: list[Tensor],
    args: tuple,
) -> Tensor:
    mapping = zip(variables, values, strict=True)
    with keras.StatelessScope(mapping, collect_losses=True):
        return function(*args)


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


def input_gradient(
    model: keras.Model, function: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the gradient of a scalar function of `x` and `y` by `x`, as a function.

    It has the shape of `x`, and zeros where the function does not depend on it.

    Args:
        model: `keras.Model` that the function calls.
        function: Function of floating tensors `x` and `y`.
    """

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        value = function(x, y)
        if not value.requires_grad:
            return torch.zeros_like(x)
        options = {"allow_unused": True, "materialize_grads": True}
        return torch.autograd.grad(value, x, **options)[0]

    return gradient
