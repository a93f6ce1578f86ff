"""Products of large matrices on CPUs by PyTorch's 1 × 1 convolution.

PyTorch computes matrix products in float32 with MKL, and convolutions with oneDNN. On
an AMD EPYC with AVX-512 oneDNN has 2.1 times the rate of MKL for 1,576 rows, 768
columns and 3,072 units.
"""

from typing import Any

import torch
from torch.backends import mkldnn
from torch.nn import functional
from torch.nn.grad import conv2d_weight

WITH_AVX512 = mkldnn.is_available() and (
    torch.backends.cpu.get_cpu_capability() == "AVX512"
)
# For fewer rows or multiplications the matrix product is faster.
LEAST_ROWS = 256
LEAST_MULTIPLICATIONS = 2**23
LEAST_ROWS_OF_GRADIENT = 1024  # for the gradient of the kernel


def product(
    x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns `x @ kernel`, plus the bias if there is one.

    Args:
        x: (rows, D).
        kernel: (D, units).
        bias: (units,).
    """
    if _by_convolution(x, kernel):
        # A view that a function returns may not be changed in place.
        return _rows(_Product.apply(x, kernel, bias))
    return x @ kernel if bias is None else torch.addmm(bias, x, kernel)


def _by_convolution(x: torch.Tensor, kernel: torch.Tensor) -> bool:
    return (
        WITH_AVX512
        # Before the sizes, which a program for any batch must not fix.
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch.is_autocast_enabled("cpu")
        and mkldnn.enabled
        and x.device.type == "cpu"
        and x.dtype == kernel.dtype == torch.float32
        and torch.get_num_threads() > 1  # with one, PyTorch does not call oneDNN
        and len(x) >= LEAST_ROWS
        and len(x) * kernel.numel() >= LEAST_MULTIPLICATIONS
    )


class _Product(torch.autograd.Function):
    """The product as the pixels of an image, (1, units, 1, rows)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        # A transposed convolution's kernel has the units last; a convolution's has them
        # first, as the transposed kernel of the backward pass has in memory.
        if kernel.is_contiguous():
            convolve = functional.conv_transpose2d
        else:
            convolve, kernel = functional.conv2d, kernel.t()
        return convolve(_maps(x), kernel[:, :, None, None], bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        x, kernel, bias = inputs
        ctx.with_bias = bias is not None
        of_x, of_kernel, _ = ctx.needs_input_grad
        # The inputs of a frozen kernel are not kept.
        ctx.save_for_backward(x if of_kernel else None, kernel if of_x else None)
        ctx.save_for_forward(x, kernel)

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> torch.Tensor:
        of_x, of_kernel, of_bias = tangents
        x, kernel = ctx.saved_tensors
        parts = []
        if of_x is not None:
            parts.append(product(of_x, kernel))
        if of_kernel is not None:
            parts.append(product(x, of_kernel))
        if of_bias is not None:
            parts.append(of_bias.expand(len(x), -1))
        return _maps(sum(parts))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, kernel = ctx.saved_tensors
        of_x, of_kernel, of_bias = ctx.needs_input_grad
        gradient = _rows(gradient)
        return (
            product(gradient, kernel.t()) if of_x else None,
            _of_kernel(x, gradient) if of_kernel else None,
            gradient.sum(0) if of_bias and ctx.with_bias else None,
        )


def _of_kernel(x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Returns `x.T @ gradient`."""
    # PyTorch differentiates the gradient of a kernel by a convolution with a kernel as
    # large as its maps.
    if torch.is_grad_enabled():
        return product(x.t(), gradient)
    if len(x) < LEAST_ROWS_OF_GRADIENT:
        return x.t() @ gradient
    size = (x.shape[1], gradient.shape[1], 1, 1)
    return conv2d_weight(_maps(gradient), size, _maps(x))[:, :, 0, 0]


def _maps(x: torch.Tensor) -> torch.Tensor:
    """Returns rows as the pixels of an image, in the memory format of channels last."""
    return x.contiguous()[None, None].permute(0, 3, 1, 2)


def _rows(maps: torch.Tensor) -> torch.Tensor:
    """Returns the pixels of an image as rows."""
    return maps.squeeze((0, 2)).t()  # the gradient of an index is a copy
