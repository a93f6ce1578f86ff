"""Operations of layers that OpenVINO computes wrongly."""

from keras import ops

from kerasvit.types import Tensor


def normalized(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    epsilon: float,
) -> Tensor:
    """Same as `kerasvit.ops.normalized`.

    OpenVINO 2026.4 gives wrong numbers for its own operation between a convolution and
    a matrix product where the maps are constants, as in `model(x)`.
    """
    scale = ops.rsqrt(variance + epsilon)
    scale = scale if gamma is None else scale * gamma
    x = (x - mean) * scale
    return x if beta is None else x + beta
