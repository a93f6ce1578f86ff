"""LookSAM: sharpness-aware minimisation at every k-th step."""

import keras
from keras import ops

from kerasvit.arguments import integer, number

from .slots import RememberingSAM
from .vectors import add, norm, orthogonal


@keras.saving.register_keras_serializable("kerasvit")
class LookSAM(RememberingSAM):
    """SAM at every k-th step; other steps reuse the last change of direction.

    What SAM adds to a gradient, its part at right angles to the plain gradient, changes
    more slowly than the gradient itself, and can serve for a few steps:

        every k-th step         g  = ∇L(w),   w' = w + rho · g / ‖g‖₂,   g' = ∇L(w')
                                g_v = g' − ⟨g', g⟩ g / ‖g‖₂²      is remembered
                                w  ← optimizer(w, g')
        the others              g  = ∇L(w)
                                w  ← optimizer(w, g + alpha · ‖g‖₂ / ‖g_v‖₂ · g_v)

    So what is remembered gives a direction, and the gradient of the day its length.
    1 + 1/k passes a step, and one more copy of the weights in memory. `every` is k, and
    counts updates by the optimizer.

    Args:
        model: As for `SAM`.
        rho: Radius, ≥ 0; SAM's default.
        k: Steps from one look to the next, ≥ 1; 5 as in the paper's LookSAM-5.
        alpha: Weight of what is remembered, ≥ 0; 0.7, which the paper proposes for
            ViTs. For ResNets on CIFAR-100 others found 0.1 the best and no more gain
            above 0.3 (arXiv 2401.12033, appendix A.14).
        name: Name of the trainer.
        options: `perturbation` and `micro_batches`, as for `SAM`; what is remembered is
            the mean over parts and devices, and with `gradient_accumulation_steps` that
            of the last batch.

    Raises:
        ValueError: As for `SAM`; a number is out of its range.

    Reference: Liu et al. 2022, arXiv 2203.02714, algorithm 1, with norms and the
    product over all weights together, as in MarlonBecker/MSAM optimizer/looksam.py.
    """

    def __init__(
        self,
        model: keras.Model,
        rho: float = 0.05,
        k: int = 5,
        alpha: float = 0.7,
        *,
        name: str = "looksam",
        **options,
    ):
        if "every" in options:
            raise ValueError(
                "`every` is LookSAM's `k`: give that alone. Received: "
                f"every={options['every']!r}."
            )
        k = integer("k", k, 1, meaning="the steps from one look to the next")
        super().__init__(model, rho, every=k, name=name, **options)
        self.alpha = number(
            "alpha", alpha, 0, meaning="the weight of what is remembered"
        )

    @property
    def k(self):
        """Number of steps between two SAM steps."""
        return self.period

    def step_gradients(self, loss_and_gradients, weights, memory):
        """Returns SAM's gradients and the vector to keep."""
        _, here = loss_and_gradients(weights)
        if self._radius.plain:
            return here, [ops.zeros_like(old) for old in memory]
        above = self.gradients_above(loss_and_gradients, self.perturbed(weights, here))
        # At a schedule's 0 the two gradients differ by rounding, which `alpha` would
        # make large.
        some = self.current_rho() > 0
        seen = (
            None if new is None else ops.where(some, new, ops.zeros_like(new))
            for new in orthogonal(above, here)
        )
        return above, [
            ops.zeros_like(old) if new is None else ops.cast(new, old.dtype)
            for old, new in zip(memory, seen, strict=True)
        ]

    def gradients_between(self, loss_and_gradients, weights, memory):
        """Returns plain gradients plus the scaled kept vector, and that vector."""
        _, here = loss_and_gradients(weights)
        factor = self.alpha * norm(here) / (norm(memory) + 1e-12)
        return add(here, memory, factor), memory

    def settings(self):
        """Returns the constructor's arguments without the model."""
        settings = super().settings()
        return {"k": settings.pop("every"), "alpha": self.alpha, **settings}
