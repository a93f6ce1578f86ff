"""AdamW whose update on PyTorch is a few operations on all weights."""

import torch
from keras import ops
from keras.src.backend.torch.optimizers.torch_adamw import AdamW as KerasAdamW
from torch.optim.adamw import adamw

from kerasvit.typing import Tensor


class FusedAdamW(KerasAdamW):
    """Keras's AdamW, with PyTorch's fused update where the weights are on a CPU.

    Keras's own takes ten operations, each of which reads and writes all weights. On a
    GPU it also copies its numbers there, and each copy waits for all work of the GPU:
    here these are operands of operations with the step and the rate, which are there.
    """

    @torch.no_grad()
    def _apply_weight_decay(self, variables: list) -> None:
        if self.weight_decay is not None:
            rate = ops.convert_to_tensor(self._get_current_learning_rate())
            decayed = [v.value for v in variables if self._use_weight_decay(v)]
            if decayed:
                torch._foreach_mul_(decayed, 1 - self.weight_decay * rate)

    def _parallel_update_step(
        self, grads: list, variables: list, learning_rate: Tensor
    ) -> None:
        weights = [variable.value for variable in variables]

        def values(slots: list) -> list[torch.Tensor]:
            return [slots[self._get_variable_index(v)].value for v in variables]

        if not all(map(_has_fused_update, weights)):
            slots = values(self._momentums), values(self._velocities)
            hats = values(self._velocity_hats) if self.amsgrad else None
            self._update(weights, grads, *slots, hats, learning_rate)
            return
        done = float(ops.convert_to_numpy(self.iterations))
        adamw(
            weights,
            # PyTorch's update reads them in the order of the weights' memory.
            [g.to(w.dtype).contiguous() for g, w in zip(grads, weights, strict=True)],
            values(self._momentums),
            values(self._velocities),
            values(self._velocity_hats) if self.amsgrad else [],
            [torch.tensor(done) for _ in weights],
            fused=True,
            amsgrad=self.amsgrad,
            beta1=self.beta_1,
            beta2=self.beta_2,
            lr=float(learning_rate),
            weight_decay=0.0,  # Keras applies it before
            # PyTorch adds it to the root of the corrected velocity, Keras before.
            eps=self.epsilon / (1 - self.beta_2 ** (done + 1)) ** 0.5,
            maximize=False,
        )

    def _update(
        self,
        weights: list,
        gradients: list,
        means: list,
        squares: list,
        hats: list | None,
        learning_rate: Tensor,
    ) -> None:
        """Updates weights and slots on their device, as Keras does."""
        dtype = weights[0].dtype
        step = (ops.convert_to_tensor(self.iterations) + 1).to(dtype)
        rate = ops.convert_to_tensor(learning_rate).to(dtype)
        rate = rate * (1 - self.beta_2**step).sqrt() / (1 - self.beta_1**step)
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


def _has_fused_update(weight: torch.Tensor) -> bool:
    whole = type(weight) in (torch.Tensor, torch.nn.Parameter)  # not on several devices
    exact = weight.dtype in (torch.float32, torch.float64)
    whole = whole and weight.is_contiguous()
    return whole and exact and weight.device.type == "cpu"
