"""Operations of PyTorch on all tensors of a list at once.

On a GPU their few kernels take less time than the launch of one for each tensor.
"""

import torch

AT_ONCE = 8  # tensors whose products are in memory beside them


def norms(entries: list[torch.Tensor], order: int, dtype: str) -> torch.Tensor:
    """Returns the norm of each tensor, (entries,), computed in a dtype."""
    to = getattr(torch, dtype)
    return torch.stack(torch._foreach_norm(entries, order, dtype=to)).to(to)


def sums(
    weights: list[torch.Tensor], vector: list[torch.Tensor], factor: torch.Tensor
) -> list[torch.Tensor]:
    """Returns new tensors `weights` + `factor` · `vector`, all of one dtype."""
    steps = list(torch._foreach_mul(vector, factor))
    torch._foreach_add_(steps, weights)
    return steps


def multiply(vector: list[torch.Tensor | None], factor: torch.Tensor) -> None:
    """Replaces the tensors of a list by their products with a scalar tensor."""
    indices = [i for i, entry in enumerate(vector) if entry is not None]
    for first in range(0, len(indices), AT_ONCE):
        group = indices[first : first + AT_ONCE]
        products = torch._foreach_mul([vector[i] for i in group], factor)
        for i, product in zip(group, products, strict=True):
            vector[i] = product
