"""Operations of layers, each by the fastest way of the backend.

The only door from layers to `kerasvit.backend`: a function calls `keras.ops`, or a
kernel of `backend/<name>/kernels.py`, and says on which device that saves how much.
Times are relative to those without it, on 2 cores of an AMD EPYC with AVX-512 where no
other device is named. Everything else that layers compute is `keras.ops`.

Maps are (batch, H, W, C), with channels last on every backend.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
from keras import ops

from .backend import rematerialized as rematerialized
from .backend.keras_private import remove_variable as remove_variable
from .types import Tensor

BACKEND = keras.backend.backend()
BackendLayer: Any = keras.layers.Layer  # base of our layers
if BACKEND == "torch":
    from .backend.torch import kernels as torch_kernels
    from .backend.torch.direct_calls import DirectCalls

    BackendLayer = DirectCalls
elif BACKEND == "jax":
    from .backend.jax import kernels as jax_kernels
elif BACKEND == "openvino":
    from .backend import openvino as openvino_kernels
else:
    from .backend.tensorflow import kernels as tensorflow_kernels


def product(x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns `x @ kernel`, plus the bias if there is one.

    On PyTorch one operation adds the bias, and oneDNN computes large products in
    float32 on CPUs with AVX-512: ViT-S/16 step 0.64, ViT-B/16 forward 0.56
    (2026-11-25).

    Args:
        x: (rows, D).
        kernel: (D, units).
        bias: (units,).
    """
    if BACKEND == "torch":
        return torch_kernels.product(x, kernel, bias)
    rows = ops.matmul(x, kernel)
    return rows if bias is None else ops.add(rows, bias)


def reshape(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """Returns `ops.reshape(x, shape)`, of a tensor of PyTorch in less time.

    Keras also looks for symbolic tensors in the shape, in 0.03 ms: for one image
    `predict` of ViT-S/16 takes 0.95 of the CPU time, and `fit` 0.98 (2026-11-28).
    """
    if BACKEND == "torch":
        return torch_kernels.reshape(x, shape)
    return ops.reshape(x, shape)


def convolution(x: Tensor, kernel: Tensor, strides: int, border: int) -> Tensor:
    """Computes a convolution with equal zero padding on all four sides.

    A 1 × 1 kernel is one matrix product of all pixels. On TensorFlow one with a stride
    is a convolution: BiT-R50x1 forward 0.92, step 0.97; on JAX that would be 1.01 and
    1.05 (2026-11-26), but on a GPU XLA 0.11 fails at BiT-R50x1's product. On PyTorch
    maps are read as they lie, which Keras copies to channels first and back. Kernels
    are transposed there in one copy, as their gradients are: `fit` of BiT-R50x1 0.87
    for batches of 8 and 0.70 of one image, `predict` 0.95 and 0.92 (2026-11-28).

    A kernel of C / n input channels has n groups: each n-th of the filters sees its own
    n-th of the channels. On TensorFlow these are n convolutions: it has the gradient of
    a grouped one on CPUs with oneDNN only, and not in float64, and Keras compiles one
    by XLA, whose gradient takes 130 times as long in ResNeXt50's first stage
    (2026-11-28). On JAX and a CPU see `jax_kernels.grouped_convolution`.

    Args:
        x: Feature maps, (batch, H, W, C).
        kernel: (k, k, C / groups, filters).
        strides: Stride in pixels.
        border: Number of zeros on each side.

    Returns:
        Feature maps, (batch, ⌊(H + 2 border − k) / strides⌋ + 1, …, filters).
    """
    size, groups = kernel.shape[0], x.shape[-1] // kernel.shape[2]
    if groups > 1 and BACKEND == "tensorflow":
        parts = (ops.split(each, groups, axis=-1) for each in (x, kernel))
        maps = [
            convolution(part, filters, strides, border)
            for part, filters in zip(*parts, strict=True)
        ]
        return ops.concatenate(maps, axis=-1)
    if groups > 1 and BACKEND == "jax" and jax_kernels.on_cpu():
        return jax_kernels.grouped_convolution(x, kernel, strides, border)
    pointwise = size == groups == 1 and border == 0
    if pointwise and (strides == 1 or _reads_rows(x.shape[-1])):
        pixels = x[:, ::strides, ::strides] if strides > 1 else x
        rows = product(reshape(pixels, (-1, x.shape[-1])), kernel[0, 0])
        return reshape(rows, (*ops.shape(pixels)[:-1], kernel.shape[-1]))
    if BACKEND == "torch":
        return torch_kernels.convolution(x, kernel, strides, border)
    padding = "valid"
    if strides == 1 and size == 2 * border + 1:
        padding = "same"  # the same zeros, without a copy of the map
    elif border:
        x = ops.pad(x, ((0, 0), (border, border), (border, border), (0, 0)))
    return ops.conv(
        x, kernel, strides=strides, padding=padding, data_format="channels_last"
    )


def _reads_rows(channels: int) -> bool:
    """Returns whether every other pixel is best read for a matrix product."""
    if BACKEND == "jax":
        return jax_kernels.on_cpu()
    # For fewer than 16 channels and an odd batch, the gradient of the convolution in
    # TensorFlow 2.21 writes outside of its memory on CPUs with AVX-512, and crashes.
    return BACKEND == "torch" or channels < 16


def depthwise_convolution(
    x: Tensor, kernel: Tensor, strides: int, border: int
) -> Tensor:
    """Computes a convolution of each channel with equal zero padding on all four sides.

    On JAX with a CPU as a product of the k · k shifted maps: XLA's gradient of the
    convolution is slow there. Step of PiT-S/16 0.21 (2026-11-28).

    Args:
        x: Feature maps, (batch, H, W, C).
        kernel: (k, k, C, m), m filters for each channel.
        strides: Stride in pixels.
        border: Number of zeros on each side.

    Returns:
        Feature maps, (batch, ⌊(H + 2 border − k) / strides⌋ + 1, …, C · m).
    """
    x = ops.pad(x, ((0, 0), (border, border), (border, border), (0, 0)))
    if BACKEND != "jax" or not jax_kernels.on_cpu():
        return ops.depthwise_conv(
            x, kernel, strides=strides, data_format="channels_last"
        )
    size, _, channels, filters = kernel.shape
    ends = [side - size + 1 for side in x.shape[1:3]]
    shifted = [
        x[:, i : i + ends[0] : strides, j : j + ends[1] : strides]
        for i in range(size)
        for j in range(size)
    ]
    taps = ops.reshape(kernel, (size * size, channels, filters))
    x = ops.einsum("bhwtc,tcm->bhwcm", ops.stack(shifted, axis=-2), taps)
    return ops.reshape(x, (*x.shape[:3], channels * filters))


def standardized(kernel: Tensor, epsilon: float) -> Tensor:
    """Subtracts from each filter its mean, and divides it by its standard deviation.

    On PyTorch by one operation, where it does not compile: `fit` of BiT-R50x1 0.91 for
    batches of 8 and 0.82 of one image, `predict` 0.93 and 0.94 (2026-11-28).

    Args:
        kernel: (k, k, C, filters).
        epsilon: Small constant added to the variance.
    """
    if BACKEND == "torch" and torch_kernels.standardizes(kernel):
        return torch_kernels.standardized(kernel, epsilon)
    # Two plain means: ops.moments has wrong second derivatives on TensorFlow.
    kernel = kernel - ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
    variance = ops.mean(ops.square(kernel), axis=(0, 1, 2), keepdims=True)
    return kernel / ops.sqrt(variance + epsilon)


def max_pool(x: Tensor, size: int, strides: int) -> Tensor:
    """Computes the maximum of windows of `size` × `size` pixels, without padding.

    On PyTorch maps are read as they lie: 0.08 of the time of the pooling of BiT's root
    (2026-11-25).

    Returns:
        Feature maps, (batch, ⌊(H − size) / strides⌋ + 1, …, C).
    """
    if BACKEND == "torch":
        return torch_kernels.max_pool(x, size, strides)
    return ops.max_pool(
        x, size, strides=strides, padding="valid", data_format="channels_last"
    )


def roll(x: Tensor, shift: Sequence[int]) -> Tensor:
    """Rolls maps down and to the right by `shift`, (cells down, cells right).

    On TensorFlow in two parts: LiteRT has no operation that rolls.
    """
    if BACKEND != "tensorflow":
        return ops.roll(x, shift, axis=[1, 2]) if any(shift) else x
    for axis, moved in enumerate(shift, 1):
        if moved:
            first, last = ops.split(x, [-moved % x.shape[axis]], axis=axis)
            x = ops.concatenate([last, first], axis=axis)
    return x


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any = None,
    training: bool | None = False,
) -> Tensor:
    """Computes scaled dot-product attention of H heads.

    See `is_fused` for the operations that do it at once. On JAX else the sums of the
    softmax divide the products with the values: 0.95 of ViT-B/16's forward pass
    (2026-11-25).

    Args:
        query: (B, N, H, d).
        key: (B, M, H, d).
        value: (B, M, H, d).
        mask: Booleans that broadcast to (B, H, N, M), True where a query attends to a
            key; or biases of the same shape, which are added to the scores; None: every
            query attends to every key.
        training: Whether gradients may follow.

    Returns:
        (B, N, H, d).
    """
    if is_fused(query, key, mask, training):
        if BACKEND == "torch":
            return torch_kernels.attention(query, key, value, mask)
        return jax_kernels.attention(query, key, value, training)
    scores = _scores(query, key, mask)
    value = ops.transpose(value, (0, 2, 1, 3))
    if _divides_last(value.dtype):
        largest = ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True))
        weights = ops.exp(scores - largest)
        x = ops.matmul(ops.cast(weights, value.dtype), value)
        x = ops.cast(x / ops.sum(weights, axis=-1, keepdims=True), value.dtype)
    else:
        x = ops.matmul(ops.cast(ops.softmax(scores), value.dtype), value)
    return ops.transpose(x, (0, 2, 1, 3))


def _divides_last(dtype: Any) -> bool:
    """Returns whether the sums of the softmax divide the products with the values.

    For XLA a softmax is another pass over all weights, which are more than the results.
    The softmax of TensorFlow is one operation. float16 could overflow in the products.
    """
    name = keras.backend.standardize_dtype(dtype)
    return BACKEND == "jax" and name != "float16"


def is_fused(
    query: Tensor, key: Tensor, mask: Any = None, training: bool | None = False
) -> bool:
    """Returns whether `attention` is one operation of the backend.

    PyTorch has one for all devices and chooses its kernel. JAX has cuDNN's flash
    attention on GPUs, for self-attention without a mask in 16 bits, with heads whose
    size is a multiple of 8 up to 128. It has gradients for even numbers of tokens only,
    and a token is added to odd ones. With Keras's distributions it is not, and
    the operation that Keras takes then needs 1.16 times the time of the products here
    (ViT-B/16, 577 tokens, H200). Keras computes the softmax product on GPUs older than
    Ampere. TensorFlow has none: Keras refuses `flash_attention=True` there.

    On an H200 and images of 384 pixels ViT-B/16's forward pass takes 0.86 and the step
    0.67 of the time on PyTorch, and the forward pass 0.65 on JAX (2026-11-27).

    cuDNN's operation has no forward or second derivatives, and JAX cannot vectorise its
    gradients by `vmap`: use 32 bits for these. `kerasvit.inspection` computes second
    derivatives in the dtype of the variables, 32 bits or more, and so without it.
    """
    if BACKEND != "jax":
        return BACKEND == "torch"
    return mask is None and jax_kernels.computes_attention(query, key, training)


def attention_weights(*args: Any) -> Tensor:
    """Returns the softmax of the scores; the arguments are those of `_scores`."""
    return ops.softmax(_scores(*args))


def _scores(query: Any, key: Any, mask: Any = None, times: Any = ops.matmul) -> Tensor:
    """Returns (B, H, N, M), float32 at least; `times` takes keys (B, H, d, M)."""
    query = ops.transpose(query, (0, 2, 1, 3)) * query.shape[-1] ** -0.5
    scores = times(query, ops.transpose(key, (0, 2, 3, 1)))  # (B, H, N, M)
    # bfloat16 has 8 bits of precision: too few for a sum over hundreds of weights.
    exact = _exact(scores)
    if mask is None:
        return exact
    if keras.backend.is_float_dtype(keras.backend.standardize_dtype(mask.dtype)):
        return exact + ops.cast(mask, exact.dtype)
    return ops.where(mask, exact, -1e9)  # its exponential is 0


def layer_norm(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, epsilon: float
) -> Tensor:
    """Normalises the last axis, in float32 at least.

    On JAX in the shape of dense layers, one row for each token, because in the shape of
    its input XLA computes the gradient of the residual twice, in both shapes: ViT-S/16
    step 0.90, Mixer-B/16 step 0.79 (2026-11-25). On TensorFlow without Keras's moments,
    whose second derivatives are wrong there.

    Args:
        x: (..., D).
        gamma: Scale, (D,); None: 1.
        beta: Shift, (D,); None: 0.
        epsilon: Small constant added to the variance.

    Returns:
        (..., D), float32 at least.
    """
    if BACKEND == "jax":
        rows = _exact(ops.reshape(x, (-1, x.shape[-1])))
        rows = ops.layer_normalization(rows, gamma, beta, -1, epsilon)
        return ops.reshape(rows, ops.shape(x))
    x = _exact(x)
    if BACKEND == "torch":
        return ops.layer_normalization(x, gamma, beta, -1, epsilon)
    x = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
    x = x * ops.rsqrt(variance + epsilon)
    x = x if gamma is None else x * ops.cast(gamma, x.dtype)
    return x if beta is None else x + ops.cast(beta, x.dtype)


def group_norm(
    x: Tensor, groups: int, gamma: Tensor, beta: Tensor, epsilon: float
) -> Tensor:
    """Normalises each image within groups of channels, in float32 at least.

    On PyTorch by one operation, without copies of the maps: at 28 × 28 × 512 with a
    batch of 8 on a CPU 0.53, with the gradient 0.37 of the time (2026-11-25).

    Args:
        x: Feature maps, (batch, H, W, C).
        groups: Number of groups, a divisor of C.
        gamma: Scale, (C,).
        beta: Shift, (C,).
        epsilon: Small constant added to the variance.

    Returns:
        (batch, H, W, C), float32 at least.
    """
    x = _exact(x)
    gamma, beta = (ops.cast(each, x.dtype) for each in (gamma, beta))
    if BACKEND == "torch" and torch_kernels.computes_group_norm(x):
        return torch_kernels.group_norm(x, groups, gamma, beta, epsilon)
    # Over the pixels of each channel first, then over the channels of a group, both
    # centred, without a large array of five axes. Time relative to Keras's layer, at
    # 28 × 28 × 256 with a batch of 4 on a CPU: forward 0.3 on JAX, 0.5 on TensorFlow,
    # with the gradient 0.6 and 0.45. Its second derivatives are wrong on TensorFlow.
    inner = (-1, groups, x.shape[-1] // groups)
    channel_mean = ops.mean(x, axis=(1, 2), keepdims=True)  # (B, 1, 1, C)
    variance = ops.mean(ops.square(x - channel_mean), axis=(1, 2))  # (B, C)
    means, variance = (ops.reshape(each, inner) for each in (channel_mean, variance))
    mean = ops.mean(means, axis=-1, keepdims=True)  # (B, groups, 1)
    variance = ops.mean(variance + ops.square(means - mean), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon) * ops.reshape(gamma, inner)
    shift = ops.reshape(beta, inner) - mean * scale  # (B, groups, C / groups)
    flat = (-1, 1, 1, x.shape[-1])
    return x * ops.reshape(scale, flat) + ops.reshape(shift, flat)


def batch_norm(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalises maps by their own statistics.

    On PyTorch by one operation, where Keras computes five arrays of the maps' size:
    `fit` of PreActResNet50CIFAR, 8 images, 0.85 (2026-11-28).

    Args:
        x: Feature maps, (batch, H, W, C), float32 at least.
        gamma: Scale, (C,), in the dtype of `x`; None: 1.
        beta: Shift, (C,), in the dtype of `x`; None: 0.
        epsilon: Small constant added to the variance.

    Returns:
        Normalised maps, and mean and variance of each channel, (C,). The variance is
        divided by the number of values.
    """
    if BACKEND == "torch":
        return torch_kernels.batch_norm(x, gamma, beta, epsilon)
    mean, variance = ops.moments(x, axes=(0, 1, 2))
    return normalized(x, mean, variance, gamma, beta, epsilon), mean, variance


def normalized(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    epsilon: float,
) -> Tensor:
    """Normalises maps by given statistics, (C,) each; see `batch_norm`."""
    if BACKEND == "torch":
        return torch_kernels.normalized(x, mean, variance, gamma, beta, epsilon)
    if BACKEND == "openvino":
        return openvino_kernels.normalized(x, mean, variance, gamma, beta, epsilon)
    return ops.batch_normalization(
        x, mean, variance, axis=-1, offset=beta, scale=gamma, epsilon=epsilon
    )


def _exact(x: Tensor) -> Tensor:
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def _recomputed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns an activation that JAX computes again for its gradient.

    JAX would store what its operations need, also in float32 where a model computes in
    bfloat16: for the exact GELU of ViT-B/16 and 128 images 310 MB per block beside the
    argument's 155. ViT-S/16 step 0.95 (2026-11-27). A call outside of a compiled
    function takes up to 0.4 ms longer. The other backends have operations for the
    common activations, which store the argument.

    Args:
        function: Function of arrays, and not of `keras.Variable` or `KerasTensor`.
    """
    return keras.remat(function) if BACKEND == "jax" else function


@_recomputed
def gelu(x: Tensor) -> Tensor:
    """Returns x Φ(x), where Φ is the distribution function of the standard normal.

    JAX computes it from the complementary error function, whose approximations and
    exponential take XLA longer than the error function, a ratio of polynomials, whose
    GELU has an absolute error of at most 2e-6 in float32: ViT-B/16 forward 0.99,
    Mixer-B/16 forward 0.97, ViT-S/16 step 0.98. On TensorFlow the gradient takes fewer
    operations: with layer normalisation and AdamW, ViT-S/16 step 0.96 (2026-11-26).

    Reference: Hendrycks and Gimpel 2016, arXiv 1606.08415.
    """
    if BACKEND == "tensorflow":
        return tensorflow_kernels.gelu(x)
    if BACKEND == "jax" and keras.backend.standardize_dtype(x.dtype) != "float64":
        return jax_kernels.gelu(x)
    return keras.activations.gelu(x, approximate=False)


@_recomputed
def gelu_tanh(x: Tensor) -> Tensor:
    """Returns the approximation of the GELU by tanh, of Google's JAX code."""
    return keras.activations.gelu(x, approximate=True)


@_recomputed
def quick_gelu(x: Tensor) -> Tensor:
    """Returns x σ(1.702 x), of openai/CLIP clip/model.py."""
    return x * keras.activations.sigmoid(1.702 * x)


@_recomputed
def gated(gate: Tensor, x: Tensor) -> Tensor:
    """Returns silu(gate) ⊙ x."""
    return ops.silu(gate) * x


def relu_of_new(x: Tensor) -> Tensor:
    """Computes the ReLU of maps that nothing else reads, on PyTorch in place."""
    return torch_kernels.relu_of_new(x) if BACKEND == "torch" else ops.relu(x)


def checked_in_graph(
    x: Tensor, conditions: Iterable[Any], message: str, *values: Any
) -> Tensor:
    """Returns `x`, which in a graph of TensorFlow exists only under conditions.

    Otherwise the graph raises `InvalidArgumentError` with the message and the values.
    XLA leaves the check out. The other backends know all sizes when they trace.
    """
    if BACKEND != "tensorflow":
        return x
    return tensorflow_kernels.checked(x, conditions, message, *values)


def uniform(shape: tuple[int, ...], seed: keras.random.SeedGenerator) -> Tensor:
    """Returns float32 numbers in [0, 1).

    In a compiled call on PyTorch they are of PyTorch's own generator.

    Args:
        shape: Shape of the tensor.
        seed: Generator of the seed.
    """
    if BACKEND == "torch":
        return torch_kernels.uniform(shape, seed)
    return keras.random.uniform(shape, dtype="float32", seed=seed)
