"""Friendly SAM: sharpness-aware minimisation along the noise of a batch's gradient."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import number
from kerasvit.backend.train_step import Setting
from kerasvit.types import Gradients, LossAndGradients, Tensor

from .slots import SlotSAM
from .vectors import add, ascend, dot, norm, over


@keras.saving.register_keras_serializable("kerasvit")
class FriendlySAM(SlotSAM):
    """SAM that perturbs along what a batch's gradient has beyond those before it.

    SAM's gain comes from the part of the gradient that is particular to the batch. The
    part that all batches share only raises the loss. Its estimate is the moving average
    of the gradients:

        g  = ∇L(w),   d = g − sigma · m          m is 0 at first
        w' = w + rho · d / ‖d‖₂,   g' = ∇L(w')
        m  ← momentum · m + (1 − momentum) · g   the first g as it is
        w  ← optimizer(w, g')

    A step costs two passes, as SAM, and one more copy of the weights in memory. Other
    than SAM, `fit` does not warn of a radius that is too large: along d the loss may
    fall.

    Args:
        model: As for `SAM`.
        rho: Radius, ≥ 0; 0.05 is the default of the authors' code. They use 0.2 for
            ResNet-18 on CIFAR-100 (their run.sh), as for SAM.
        sigma: Share of the average that is subtracted, ≥ 0; 0 is SAM.
        momentum: Share of the average that a step keeps, in [0, 1): 0.9 is the default
            of the authors' code, 0.6 that of their run.sh.
        name: Name of the trainer.
        options: `perturbation`, `micro_batches`, `every` and `diagnostics`, as for
            `SAM`. The average is that over micro-batches and devices, and also of the
            gradients of plain steps.

    Raises:
        ValueError: As for `SAM`; a number is out of its range.

    Reference: Li et al. 2024, arXiv 2403.12350, algorithm 1; nblt/F-SAM utils.py, which
    subtracts the average of the steps before.
    """

    advises = False

    sigma = Setting(
        lambda _, value: number(
            "sigma", value, 0, meaning="the share of the average that is subtracted"
        )
    )
    momentum = Setting(
        lambda _, value: number(
            "momentum",
            value,
            0,
            1,
            meaning="the share of the average that a step keeps",
        )
    )

    def __init__(
        self,
        model: keras.Model,
        rho: float = 0.05,
        sigma: float = 1.0,
        momentum: float = 0.9,
        *,
        name: str = "friendly_sam",
        **options: Any,
    ) -> None:
        super().__init__(model, rho, name=name, **options)
        self.sigma = sigma
        self.momentum = momentum

    def step_gradients(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns the gradients at the perturbed weights, and the new average."""
        if self._radius.plain:
            return self.gradients_between(loss_and_gradients, weights, slots)
        _, here = loss_and_gradients(weights)
        above = self.gradients_above(
            loss_and_gradients, self._perturbed(weights, here, slots)
        )
        return above, self._averaged(slots, here)

    def gradients_between(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns plain gradients, and the new average."""
        _, here = loss_and_gradients(weights)
        return here, self._averaged(slots, here)

    def _perturbed(
        self, weights: list[Tensor], here: Gradients, average: list[Tensor]
    ) -> list[Tensor]:
        along = add(here, average, -self.sigma)
        length, rho = norm(along), self.current_rho()
        self._ascent.begin(over(rho, length), dot(here, along))
        return ascend(weights, along, rho, length)

    def _averaged(self, average: list[Tensor], here: Gradients) -> list[Tensor]:
        first = norm(average) == 0
        share = ops.where(first, 0.0, self.momentum)
        return [
            old
            if new is None
            else ops.cast(share, old.dtype) * old
            + ops.cast(1 - share, old.dtype) * ops.cast(new, old.dtype)
            for old, new in zip(average, here, strict=True)
        ]

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        return {**settings, "sigma": self.sigma, "momentum": self.momentum}
