"""Group normalisation in one operation of PyTorch, forward and backward."""

import math
from typing import Any

import torch
from torch.nn import functional


def group_norm(
    x: torch.Tensor,
    groups: int,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    epsilon: float,
) -> torch.Tensor:
    """Computes group normalisation.

    Args:
        x: Feature maps, (batch, H, W, C).
        groups: Number of groups, a divisor of C.
        gamma: Scale, (C,), in the dtype of `x`.
        beta: Shift, (C,), in the dtype of `x`.
        epsilon: Small constant added to the variance.
    """
    maps = x.permute(0, 3, 1, 2)  # a view, in the memory format of channels last
    # PyTorch subtracts squares of the mean from the mean of the squares, which loses
    # digits of the variance far from zero. The result is the same, and so are all its
    # derivatives, if a constant is subtracted first.
    means = maps.detach().mean((2, 3)).unflatten(1, (groups, -1))
    center = means.mean(2, keepdim=True).expand_as(means).flatten(1)
    maps = maps - center[..., None, None]
    if torch.is_grad_enabled():
        maps, _, _ = _GroupNorm.apply(maps, gamma, beta, groups, epsilon)
    else:
        maps = functional.group_norm(maps, groups, gamma, beta, epsilon)
    return maps.permute(0, 2, 3, 1)


class _GroupNorm(torch.autograd.Function):
    """`native_group_norm` with a backward pass that computes all three gradients.

    For maps with channels last, PyTorch 2.13 crashes on a CPU if the gradient of the
    maps is not needed, as where they are the input of the model.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: torch.Tensor,
        gamma: torch.Tensor,
        beta: torch.Tensor,
        groups: int,
        epsilon: float,
    ) -> tuple[torch.Tensor, ...]:
        sizes = (*x.shape[:2], math.prod(x.shape[2:]))
        return torch.native_group_norm(x, gamma, beta, *sizes, groups, epsilon)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        x, gamma, _, ctx.groups, ctx.epsilon = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(x, gamma, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple:
        x, gamma, mean, rstd = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is differentiated again
            found = _gradients(gradient, x, gamma, ctx.groups, ctx.epsilon)
            return *found, None, None
        sizes = (*x.shape[:2], math.prod(x.shape[2:]))
        found = torch.ops.aten.native_group_norm_backward(
            gradient, x, mean, rstd, gamma, *sizes, ctx.groups, [True, True, True]
        )
        return *found, None, None


def _gradients(
    gradient: torch.Tensor,
    x: torch.Tensor,
    gamma: torch.Tensor,
    groups: int,
    epsilon: float,
) -> tuple[torch.Tensor, ...]:
    """Returns the gradients of maps, scale and shift in differentiable operations."""
    inner = (2, 3, 4)  # of (batch, groups, C / groups, H, W)
    grouped = x.unflatten(1, (groups, -1))
    centered = grouped - grouped.mean(inner, keepdim=True)
    rstd = (centered.square().mean(inner, keepdim=True) + epsilon).rsqrt()
    normalized = centered * rstd
    scaled = (gradient * gamma[:, None, None]).unflatten(1, (groups, -1))
    mean = scaled.mean(inner, keepdim=True)
    along = (scaled * normalized).mean(inner, keepdim=True)
    of_x = rstd * (scaled - mean - normalized * along)
    of_gamma = (gradient * normalized.flatten(1, 2)).sum((0, 2, 3))
    return of_x.flatten(1, 2), of_gamma, gradient.sum((0, 2, 3))
