"""Group normalisation with two operations of PyTorch, forward and backward."""

import math
from typing import Any

import torch
from torch.nn import functional

from .recorded import is_recorded


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
    on_cpu = x.device.type == "cpu"
    if is_recorded() and not (on_cpu and torch.is_grad_enabled()):
        return _in_plain_operations(x, groups, gamma, beta, epsilon)
    if not on_cpu or torch.compiler.is_compiling() or not len(x):
        maps = functional.group_norm(_first(x), groups, gamma, beta, epsilon)
        return maps.permute(0, 2, 3, 1)
    normalized, _, _ = _GroupNorm.apply(x, gamma, beta, groups, epsilon)
    return normalized


def _in_plain_operations(
    x: torch.Tensor,
    groups: int,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    epsilon: float,
) -> torch.Tensor:
    """Computes it by operations that the compiler joins, on maps as they lie.

    PyTorch's own operation needs maps with channels first on a GPU: a copy of each map
    and of each gradient. On a CPU its gradient is faster.
    """
    at_least = torch.promote_types(x.dtype, torch.float32)
    maps = x.to(at_least)
    # Of each channel first, so that neighbouring threads read neighbouring numbers.
    variances, means = torch.var_mean(maps, (1, 2), correction=0)  # (batch, C)
    means, variances = (v.unflatten(1, (groups, -1)) for v in (means, variances))
    mean = means.mean(2, keepdim=True)
    variance = (variances + (means - mean).square()).mean(2, keepdim=True)
    scale = (variance + epsilon).rsqrt() * gamma.to(at_least).unflatten(0, (groups, -1))
    shift = beta.to(at_least).unflatten(0, (groups, -1)) - mean * scale
    scale, shift = (each.flatten(1)[:, None, None] for each in (scale, shift))
    return (maps * scale + shift).to(x.dtype)


def _first(x: torch.Tensor) -> torch.Tensor:
    """Returns a view with channels first, in the memory format of channels last."""
    return x.permute(0, 3, 1, 2)


class _GroupNorm(torch.autograd.Function):
    """Group normalisation on a CPU.

    For maps with channels last, PyTorch 2.13 there subtracts the square of the mean
    from the mean of the squares, which loses digits of the variance far from zero, and
    crashes if the gradient of the maps is not needed, as where they are the input of
    the model.
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
        # The statistics of batch normalisation, of each image: of pixels of a channel.
        found = [
            torch.batch_norm_update_stats(each, None, None, 0.0)
            for each in x.flatten(1, 2)
        ]
        means, variances = (
            torch.stack(each).unflatten(1, (groups, -1))
            for each in zip(*found, strict=True)
        )
        mean = means.mean(2, keepdim=True)  # (batch, groups, 1)
        variance = (variances + (means - mean).square()).mean(2, keepdim=True)
        rstd = (variance + epsilon).rsqrt()
        scale = rstd * gamma.unflatten(0, (groups, -1))
        shift = beta.unflatten(0, (groups, -1)) - mean * scale
        scale, shift = (each.flatten(1)[:, None, None] for each in (scale, shift))
        return torch.addcmul(shift, x, scale), mean[..., 0], rstd[..., 0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        x, gamma, _, ctx.groups, ctx.epsilon = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(x, gamma, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple:
        x, gamma, mean, rstd = ctx.saved_tensors
        gradient, x = _first(gradient), _first(x)
        if torch.is_grad_enabled():  # the gradient is differentiated again
            found = _gradients(gradient, x, gamma, ctx.groups, ctx.epsilon)
        else:
            sizes = (*x.shape[:2], math.prod(x.shape[2:]))
            found = torch.ops.aten.native_group_norm_backward(
                gradient, x, mean, rstd, gamma, *sizes, ctx.groups, [True, True, True]
            )
        return found[0].permute(0, 2, 3, 1), *found[1:], None, None


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
