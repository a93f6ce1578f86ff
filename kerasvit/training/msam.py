"""Momentum-SAM: sharpness-aware minimisation in one pass."""

from typing import Any

import keras

from kerasvit.arguments import number
from kerasvit.backend.train_step import Setting
from kerasvit.types import Gradients, LossAndGradients, Tensor

from .slots import SlotSAM
from .vectors import add, ascend


@keras.saving.register_keras_serializable("kerasvit")
class MSAM(SlotSAM):
    """SAM that perturbs weights against the momentum and needs one pass only.

    The last update overshot, so that a further step in its direction, -v, raises the
    loss of the next batch. That direction is known without a gradient:

        w' = w - rho · v / ‖v‖₂         v is 0 at first, and then w' = w
        g' = ∇L(w')                     the only pass
        v  ← momentum · v + g'
        w  ← optimizer(w, g')

    A step costs one pass, as plain training, and one more copy of the weights in
    memory. The variables hold w, never w', so that evaluation and saving need no
    preparation. The loss, metrics and moving statistics of training are those at w',
    the only pass; with BatchNorm the authors therefore end with an epoch of forward
    passes in training mode at w (their main.py).

    The trainer keeps v itself, whatever the optimizer. v has the direction of SGD's
    momentum and of Adam's first moment if `momentum` equals theirs (Adam's `beta_1`).
    It does not include changes that the optimizer makes to gradients: clipping, and
    SGD's weight decay, which the authors' code has in v.

    Args:
        model: As for `SAM`.
        rho: Radius, ≥ 0, about ten times SAM's: the authors use 3 where SAM has 0.2,
            for SGD on CIFAR-100 and ImageNet and for AdamW on ViT-S/32 (their
            README.md). For a ViT start with 0 and assign `trainer.rho` after the
            warm-up of the learning rate: 69.1 % against 66.1 (table A.2).
        momentum: Share of v that a step keeps, in [0, 1). With gradient accumulation v
            is updated at every batch.
        name: Name of the trainer.
        options: `perturbation` and `micro_batches`, as for `SAM`. All micro-batches and
            devices use the same w', so that `perturbation` changes nothing.

    Raises:
        ValueError: As for `SAM`; a number is out of its range; `every` is given.

    Reference: Becker et al. 2024, arXiv 2401.12033, equation 5, algorithm 1;
    MarlonBecker/MSAM optimizer/msam.py and adamW_msam.py.
    """

    plain_at_zero = False  # for rho = 0 the formula is plain training, in one pass

    momentum = Setting(
        lambda _, value: number(
            "momentum",
            value,
            0,
            1,
            meaning="the share of the momentum that a step keeps",
        )
    )

    def __init__(
        self,
        model: keras.Model,
        rho: float = 3.0,
        momentum: float = 0.9,
        *,
        name: str = "msam",
        **options: Any,
    ) -> None:
        if "every" in options:
            raise ValueError(
                "`every` skips SAM's second pass, and MSAM has none. Leave it out, or "
                f"assign `rho` between steps. Received: every={options['every']!r}."
            )
        if options.get("diagnostics"):
            raise ValueError(
                "`diagnostics` compares SAM's two passes, and MSAM has one. Leave it "
                f"out. Received: diagnostics={options['diagnostics']!r}."
            )
        super().__init__(model, rho, name=name, **options)
        self.momentum = momentum

    def step_gradients(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns the gradients for the optimizer and the new momentum."""
        # The perturbed weights have no name, so that they are freed before the new
        # momentum is computed.
        gradients = self.gradients_above(
            loss_and_gradients, self.perturbed(weights, slots)
        )
        kept = (self.momentum * old for old in slots)
        return gradients, add(kept, gradients, 1.0)

    def sums(self) -> list[keras.Variable]:
        """Returns nothing: there is no second pass to compare with."""
        return []

    def perturbed(self, weights: list[Tensor], momentum: Gradients) -> list[Tensor]:
        """Returns the weights moved against the momentum."""
        return ascend(weights, momentum, -self.current_rho())

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        del settings["every"]
        return {**settings, "momentum": self.momentum}
