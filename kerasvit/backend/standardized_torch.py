"""Weight standardisation in compiled passes on PyTorch: one kernel each way."""

from typing import Any

import torch


def standardized_rows(kernel: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Returns the standardised kernel, (k, k, C, filters), with the filters as rows.

    A convolution reads the filters in this order. PyTorch's compiler joins everything
    for a GPU: for statistics of columns it makes three kernels, and BiT-R50x1 has 54 of
    these layers in each direction, in whose step the GPU waits for Python.

    Args:
        kernel: (k, k, C, filters).
        epsilon: Small constant added to the variance.
    """
    rows, _, _ = _Standardized.apply(kernel, epsilon)
    return rows.t().unflatten(0, kernel.shape[:3])


def _rows(kernel: torch.Tensor) -> torch.Tensor:
    return _as_it_lies(kernel.flatten(0, 2).t().contiguous())


def _as_it_lies(x: torch.Tensor) -> torch.Tensor:
    """Returns a tensor in its own order, which the compiler then has in memory."""
    return x.as_strided(x.shape, x.stride())


class _Standardized(torch.autograd.Function):
    @staticmethod
    def forward(kernel: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, ...]:
        rows = _rows(kernel)
        variance, mean = torch.var_mean(rows, 1, correction=0, keepdim=True)
        inverse = (variance + epsilon).rsqrt()
        return (rows - mean) * inverse, mean, inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple:
        kernel, mean, inverse = ctx.saved_tensors
        rows = (_rows(kernel) - mean) * inverse
        along = (gradient * rows).mean(1, keepdim=True)
        found = inverse * (gradient - gradient.mean(1, keepdim=True) - rows * along)
        columns = _as_it_lies(found).t().contiguous()
        return columns.unflatten(0, kernel.shape[:3]), None
