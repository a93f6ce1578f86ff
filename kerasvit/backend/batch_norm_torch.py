"""Batch normalisation in one operation of PyTorch, on maps as they lie in memory."""

import torch
from torch.nn import functional


def normalized_by_batch(
    x: torch.Tensor,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalises maps by their own statistics.

    Args:
        x: Feature maps, (batch, H, W, C).
        gamma: Scale, (C,), in the dtype of `x`; None: 1.
        beta: Shift, (C,), in the dtype of `x`; None: 0.
        epsilon: Small constant added to the variance.

    Returns:
        Normalised maps, and mean and variance of each channel, which have no gradient.
        The variance is divided by the number of values.
    """
    maps, mean, rstd = torch.native_batch_norm(
        x.permute(0, 3, 1, 2), gamma, beta, None, None, True, 0.0, epsilon
    )
    variance = rstd.detach().square().reciprocal() - epsilon
    return maps.permute(0, 2, 3, 1), mean.detach(), variance.clamp_min(0.0)


def normalized_by(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    epsilon: float,
) -> torch.Tensor:
    """Normalises maps by given statistics, (C,) each; see `normalized_by_batch`."""
    if torch.is_grad_enabled():
        # The backward pass needs them, and they may be updated in place before it.
        mean, variance = mean.clone(), variance.clone()
    maps = functional.batch_norm(
        x.permute(0, 3, 1, 2), mean, variance, gamma, beta, False, 0.0, epsilon
    )
    return maps.permute(0, 2, 3, 1)
