"""LookSAM: sharpness-aware minimisation at every k-th step."""

from typing import Any

import keras
from keras import ops

from kerasvit.arguments import integer, number
from kerasvit.backend.train_step import Setting
from kerasvit.types import Gradients, LossAndGradients, Tensor

from .slots import SlotSAM
from .vectors import add, norm, orthogonal


@keras.saving.register_keras_serializable("kerasvit")
class LookSAM(SlotSAM):
    """SAM at every k-th step; the steps between reuse the last change of direction.

    The component of SAM's gradient that is orthogonal to the plain gradient changes
    more slowly than the gradient itself, so that it can be reused for a few steps:

        every k-th step         g  = ∇L(w),   w' = w + rho · g / ‖g‖₂,   g' = ∇L(w')
                                g_v = g' − ⟨g', g⟩ g / ‖g‖₂²      is stored
                                w  ← optimizer(w, g')
        other steps             g  = ∇L(w)
                                w  ← optimizer(w, g + alpha · ‖g‖₂ / ‖g_v‖₂ · g_v)

    The stored vector gives the direction of the added term and the present gradient its
    length. A step costs 1 + 1/k passes on average, and one more copy of the weights in
    memory. `every` is k, and counts updates by the optimizer.

    Args:
        model: As for `SAM`.
        rho: Radius, ≥ 0; SAM's default.
        k: Number of steps from one SAM step to the next, ≥ 1; 5 as in the paper's
            LookSAM-5.
        alpha: Weight of the stored vector, ≥ 0. The paper proposes 0.7 for ViTs. For
            ResNets on CIFAR-100 others found 0.1 the best and no more gain above 0.3
            (arXiv 2401.12033, appendix A.14).
        name: Name of the trainer.
        options: `perturbation` and `micro_batches`, as for `SAM`. The stored vector is
            the mean over micro-batches and devices; with `gradient_accumulation_steps`
            it is that of the last batch.

    Raises:
        ValueError: As for `SAM`; a number is out of its range; `every` is given.

    Reference: Liu et al. 2022, arXiv 2203.02714, algorithm 1, with norms and the
    product over all weights together, as in MarlonBecker/MSAM optimizer/looksam.py.
    """

    alpha = Setting(
        lambda _, value: number(
            "alpha", value, 0, meaning="the weight of the stored vector"
        )
    )

    def __init__(
        self,
        model: keras.Model,
        rho: float = 0.05,
        k: int = 5,
        alpha: float = 0.7,
        *,
        name: str = "looksam",
        **options: Any,
    ) -> None:
        if "every" in options:
            raise ValueError(
                "`every` is LookSAM's `k`: pass `k` alone. Received: "
                f"every={options['every']!r}."
            )
        k = integer("k", k, 1, meaning="the number of steps between two SAM steps")
        super().__init__(model, rho, every=k, name=name, **options)
        self.alpha = alpha

    @property
    def k(self) -> int:
        """Number of steps from one SAM step to the next."""
        return self._every

    def step_gradients(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns SAM's gradients and the vector to store."""
        _, here = loss_and_gradients(weights)
        if self._radius.plain:
            return here, [ops.zeros_like(old) for old in slots]
        above = self.gradients_above(loss_and_gradients, self.perturbed(weights, here))
        # At a schedule's 0 the two gradients differ by rounding only. `alpha` would
        # enlarge that difference, so zeros are stored.
        positive = self.current_rho() > 0
        components = (
            None if new is None else ops.where(positive, new, ops.zeros_like(new))
            for new in orthogonal(above, here)
        )
        return above, [
            ops.zeros_like(old) if new is None else ops.cast(new, old.dtype)
            for old, new in zip(slots, components, strict=True)
        ]

    def gradients_between(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns plain gradients plus the scaled stored vector, and that vector."""
        _, here = loss_and_gradients(weights)
        factor = self.alpha * norm(here) / (norm(slots) + 1e-12)
        return add(here, slots, factor), slots

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        return {"k": settings.pop("every"), "alpha": self.alpha, **settings}
