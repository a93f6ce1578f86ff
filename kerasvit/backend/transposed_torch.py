"""A transposed matrix in memory of its own on PyTorch, and so its gradient."""

from typing import Any

import torch


def transposed(x: torch.Tensor) -> torch.Tensor:
    """Returns a contiguous transposed matrix, whose gradient is contiguous, too.

    A matrix that lies in this order already is not copied, nor is its gradient.
    """
    return x.t() if x.t().is_contiguous() else _Transposed.apply(x)


class _Transposed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        """Keeps nothing."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.t().contiguous()
