"""Operations of PyTorch on all tensors of a list at once: updates, sums and norms.

On a GPU their few kernels take less time than the launch of one for each tensor.
"""

import math
import operator

import torch
from keras import ops

from kerasvit.backend.keras_private import TorchAdamW, values_of
from kerasvit.types import Tensor

# Functions in C: a step asks for these of each weight, while a GPU waits.
_dtype = operator.attrgetter("dtype")
_is_cpu, _is_cuda = map(operator.attrgetter, ("is_cpu", "is_cuda"))
AT_ONCE = 8  # tensors whose products are in memory beside them


class FusedAdamW(TorchAdamW):
    """Keras's AdamW, by PyTorch's fused update on CPUs and GPUs of NVIDIA and AMD.

    Keras's own takes ten operations, each of which reads and writes all weights. On a
    GPU it also copies its numbers there, and each copy waits for all work of the GPU.
    Here the step and the rate, which are there, stay there.
    """

    @torch.no_grad()
    def _apply_weight_decay(self, variables: list) -> None:
        if self.weight_decay is not None:
            rate = ops.convert_to_tensor(self._get_current_learning_rate())
            decayed = [v for v in variables if self._use_weight_decay(v)]
            if decayed:
                torch._foreach_mul_(values_of(decayed), 1 - self.weight_decay * rate)

    def _parallel_update_step(
        self, grads: list, variables: list, learning_rate: Tensor
    ) -> None:
        weights = values_of(variables)
        indices = [self._get_variable_index(variable) for variable in variables]

        def values(slots: list) -> list[torch.Tensor]:
            return values_of([slots[i] for i in indices])

        means, squares = values(self._momentums), values(self._velocities)
        hats = values(self._velocity_hats) if self.amsgrad else None
        if not _have_fused_update(weights):
            rate = self._corrected(learning_rate, weights[0].dtype)
            self._update(weights, grads, means, squares, hats, rate)
            return
        # PyTorch's update reads gradients in the order of the weights' memory.
        if [*map(_dtype, grads)] != [*map(_dtype, weights)]:
            grads = [g.to(w.dtype) for g, w in zip(grads, weights, strict=True)]
        grads = [*map(torch.Tensor.contiguous, grads)]
        rate = self._corrected(learning_rate, torch.float64)
        device = weights[0].device
        on_cpu = device.type == "cpu"
        # PyTorch adds ε to the root of the corrected velocity, Keras to that of the
        # velocity: with an infinite step PyTorch corrects nothing, and the rate does.
        endless = torch.full((), math.inf, device=device)
        lists = [weights, grads, means, squares, hats or [], [endless] * len(weights)]
        for dtype in {weight.dtype for weight in weights}:
            chosen = [i for i, weight in enumerate(weights) if weight.dtype == dtype]
            # `torch.optim` would look at each tensor again, and add 1 to each step.
            torch._fused_adamw_(
                *([each[i] for i in chosen] if each else [] for each in lists),
                amsgrad=self.amsgrad,
                beta1=self.beta_1,
                beta2=self.beta_2,
                lr=float(rate) if on_cpu else rate.float(),
                weight_decay=0.0,  # Keras applies it before
                eps=self.epsilon,
                maximize=False,
            )

    def _corrected(self, learning_rate: Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Returns the rate with the corrections of both moments, on its device."""
        step = (ops.convert_to_tensor(self.iterations) + 1).to(dtype)
        rate = ops.convert_to_tensor(learning_rate).to(dtype)
        return rate * (1 - self.beta_2**step).sqrt() / (1 - self.beta_1**step)

    def _update(
        self,
        weights: list,
        gradients: list,
        means: list,
        squares: list,
        hats: list | None,
        rate: torch.Tensor,
    ) -> None:
        """Updates weights and slots on their device, as Keras does."""
        torch._foreach_mul_(means, self.beta_1)
        torch._foreach_add_(means, gradients, alpha=1 - self.beta_1)
        torch._foreach_mul_(squares, self.beta_2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - self.beta_2)
        if hats is not None:
            torch._foreach_maximum_(hats, squares)
            squares = hats
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, self.epsilon)
        changes = torch._foreach_div(means, roots)
        torch._foreach_mul_(changes, rate)
        torch._foreach_sub_(weights, changes)


def _have_fused_update(weights: list[torch.Tensor]) -> bool:
    whole = {torch.Tensor, torch.nn.Parameter}  # not on several devices
    return (
        whole.issuperset(map(type, weights))
        and {torch.float32, torch.float64}.issuperset(map(_dtype, weights))
        and (all(map(_is_cpu, weights)) or all(map(_is_cuda, weights)))
        and all(map(torch.Tensor.is_contiguous, weights))
    )


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
