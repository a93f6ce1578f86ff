"""AdamW whose update on PyTorch is one operation for each weight."""

import torch
from keras import ops
from keras.src.backend.torch.optimizers.torch_adamw import AdamW as KerasAdamW
from torch.optim.adamw import adamw

from kerasvit.typing import Tensor


class FusedAdamW(KerasAdamW):
    """Keras's AdamW, with PyTorch's fused update where the weights are on a CPU.

    Keras's own takes ten operations, each of which reads and writes all weights.
    """

    def _parallel_update_step(
        self, grads: list, variables: list, learning_rate: Tensor
    ) -> None:
        weights = [variable.value for variable in variables]
        if not all(map(_has_fused_update, weights)):
            super()._parallel_update_step(grads, variables, learning_rate)
            return

        def values(slots: list) -> list[torch.Tensor]:
            return [slots[self._get_variable_index(v)].value for v in variables]

        done = float(ops.convert_to_numpy(self.iterations))
        adamw(
            weights,
            [g.to(w.dtype) for g, w in zip(grads, weights, strict=True)],
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


def _has_fused_update(weight: torch.Tensor) -> bool:
    whole = type(weight) in (torch.Tensor, torch.nn.Parameter)  # not on several devices
    exact = weight.dtype in (torch.float32, torch.float64)
    return whole and exact and weight.device.type == "cpu"
