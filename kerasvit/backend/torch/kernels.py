"""Operations that PyTorch computes in other ways than Keras; see `kerasvit.ops`."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from threading import local
from typing import Any

import keras
import torch
from keras import ops
from torch.backends import mkldnn
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from kerasvit.backend.keras_private import get_device

# PyTorch computes matrix products in float32 with MKL, and convolutions with oneDNN. On
# an AMD EPYC with AVX-512 oneDNN has 2.1 times the rate of MKL for 1,576 rows, 768
# columns and 3,072 units.
WITH_AVX512 = mkldnn.is_available() and (
    torch.backends.cpu.get_cpu_capability() == "AVX512"
)
# For fewer rows or multiplications the matrix product is faster.
LEAST_ROWS = 256
LEAST_MULTIPLICATIONS = 2**23
LEAST_ROWS_OF_GRADIENT = 1024  # for the gradient of the kernel


# PyTorch reads this where it compiles a layer's code, as it cannot a `ContextVar`.
_state = local()


def is_recorded() -> bool:
    """Returns whether a call is being compiled, for batches of one shape."""
    return getattr(_state, "recorded", False)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Context in which a call is compiled."""
    before = is_recorded()
    _state.recorded = True
    try:
        yield
    finally:
        _state.recorded = before


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
        and (is_recorded() or not torch.compiler.is_compiling())
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


def channels_first(x: torch.Tensor) -> torch.Tensor:
    """Returns maps (batch, H, W, C) as a view with channels first.

    Keras copies maps to channels first and back. A permuted view of channels last is a
    memory format of PyTorch, in which its operations read and write maps as they lie.
    """
    return x.permute(0, 3, 1, 2)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """Returns maps (batch, C, H, W) as a view with channels last."""
    return x.permute(0, 2, 3, 1)


def reshape(x: Any, shape: Sequence[Any]) -> torch.Tensor:
    """Returns `ops.reshape(x, shape)`, which takes symbolic tensors, too."""
    if isinstance(x, torch.Tensor):
        return torch.reshape(x, shape)
    return ops.reshape(x, shape)


def convolution(
    x: torch.Tensor, kernel: torch.Tensor, strides: int, border: int
) -> torch.Tensor:
    """Computes a convolution of maps; see `kerasvit.ops.convolution`."""
    # PyTorch would order the kernel as the maps by a slower copy, and leave its
    # gradient in that order.
    rows = transposed(kernel.flatten(0, 2)).unflatten(1, kernel.shape[:3])
    filters, groups = channels_first(rows), x.shape[-1] // kernel.shape[2]
    maps = functional.conv2d(
        channels_first(x), filters, None, strides, border, groups=groups
    )
    return channels_last(maps)


def max_pool(x: torch.Tensor, size: int, strides: int) -> torch.Tensor:
    """Computes the maximum of windows of maps; see `kerasvit.ops.max_pool`."""
    return channels_last(functional.max_pool2d(channels_first(x), size, strides))


def relu_of_new(x: torch.Tensor) -> torch.Tensor:
    """Computes the ReLU of maps that nothing else reads, in place."""
    return functional.relu(x, inplace=True)


def computes_group_norm(x: torch.Tensor) -> bool:
    """Returns whether `group_norm` computes with these maps.

    It does not where PyTorch compiles: its compiler joins plain operations, on maps as
    they lie. Nor with no image.
    """
    # Before the size, which a program for any batch must not fix.
    return not (is_recorded() or torch.compiler.is_compiling()) and len(x) > 0


def group_norm(
    x: torch.Tensor,
    groups: int,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    epsilon: float,
) -> torch.Tensor:
    """Computes group normalisation of one image or more; see `kerasvit.ops`."""
    if x.device.type == "cpu":
        return _GroupNorm.apply(x, gamma, beta, groups, epsilon)[0]
    maps = functional.group_norm(channels_first(x), groups, gamma, beta, epsilon)
    return channels_last(maps)


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
        gradient, x = channels_first(gradient), channels_first(x)
        if torch.is_grad_enabled():  # the gradient is differentiated again
            found = _gradients_of_group_norm(
                gradient, x, gamma, ctx.groups, ctx.epsilon
            )
        else:
            sizes = (*x.shape[:2], math.prod(x.shape[2:]))
            found = torch.ops.aten.native_group_norm_backward(
                gradient, x, mean, rstd, gamma, *sizes, ctx.groups, [True, True, True]
            )
        return found[0].permute(0, 2, 3, 1), *found[1:], None, None


def _gradients_of_group_norm(
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


def batch_norm(
    x: torch.Tensor,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalises maps by their own statistics, which have no gradient.

    See `kerasvit.ops.batch_norm`.
    """
    maps, mean, rstd = torch.native_batch_norm(
        channels_first(x), gamma, beta, None, None, True, 0.0, epsilon
    )
    variance = rstd.detach().square().reciprocal() - epsilon
    return channels_last(maps), mean.detach(), variance.clamp_min(0.0)


def normalized(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    epsilon: float,
) -> torch.Tensor:
    """Normalises maps by given statistics, (C,) each."""
    if torch.is_grad_enabled():
        # The backward pass needs them, and they may be updated in place before it.
        mean, variance = mean.clone(), variance.clone()
    maps = functional.batch_norm(
        channels_first(x), mean, variance, gamma, beta, False, 0.0, epsilon
    )
    return channels_last(maps)


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any = None
) -> torch.Tensor:
    """Returns what `ops.dot_product_attention` does; a mask of floats is a bias.

    On a GPU Keras asks for the kernel of FlashAttention 2 wherever it can compute.
    PyTorch itself chooses that of cuDNN on an H200, which takes 0.7 of the time.
    """
    device = getattr(query, "device", None)  # a symbolic tensor has none
    if mask is not None and keras.backend.standardize_dtype(mask.dtype) != "bool":
        return ops.dot_product_attention(query, key, value, bias=mask)
    if mask is not None or device is None or device.type != "cuda":
        return ops.dot_product_attention(query, key, value, mask=mask)
    heads_first = (x.transpose(1, 2) for x in (query, key, value))
    # By the module's attribute: a thread may need it without a fused kernel.
    return functional.scaled_dot_product_attention(*heads_first).transpose(1, 2)


def standardizes(kernel: torch.Tensor) -> bool:
    """Returns whether `standardized` computes with this kernel.

    It does not where PyTorch compiles, which joins plain operations. Filters of one
    number become zeros, which batch normalisation refuses.
    """
    if is_recorded() or torch.compiler.is_compiling():
        return False
    return math.prod(kernel.shape[:3]) > 1


def standardized(kernel: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Standardises the filters of a kernel; see `kerasvit.ops.standardized`."""
    # The filters take the place of channels, and k · k rows of C that of pixels.
    maps = channels_first(kernel.flatten(0, 1)[None])
    maps = functional.batch_norm(maps, None, None, training=True, eps=epsilon)
    return channels_last(maps).reshape(kernel.shape)


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


def uniform(shape: tuple, seed: keras.random.SeedGenerator) -> torch.Tensor:
    """Draws numbers in [0, 1); see `kerasvit.ops.uniform`.

    PyTorch compiles no generators with a seed. Keras's `Dropout` draws as this does.
    """
    if is_recorded():
        return torch.rand(shape, dtype=torch.float32, device=get_device())
    return keras.random.uniform(shape, dtype="float32", seed=seed)
