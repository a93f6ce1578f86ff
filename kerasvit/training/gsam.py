"""GSAM: surrogate-gap guided sharpness-aware minimisation."""

import math
from typing import Any

import keras

from kerasvit.arguments import number
from kerasvit.backend.train_step import Setting
from kerasvit.types import Gradients, LossAndGradients, Tensor

from .radius import is_number
from .sam import SAM
from .vectors import add, dot, multiply, norm, orthogonal, over


@keras.saving.register_keras_serializable("kerasvit")
class GSAM(SAM):
    """SAM that also minimises the surrogate gap between perturbed and plain loss.

    The perturbed loss L(w') may be low in a sharp minimum too; the surrogate gap
    L(w') − L(w) measures the sharpness. A step along the component of ∇L(w) that is
    orthogonal to ∇L(w') raises L(w) and leaves L(w') as it is, to first order, so that
    it narrows the gap:

        rho_t = rho_min + (rho_max − rho_min) · (lr − lr_min) / (lr_max − lr_min)
        g  = ∇L(w),   w' = w + rho_t · g / ‖g‖₂,   g' = ∇L(w')
        u  = g' / ‖g'‖₂
        w  ← optimizer(w, g' − alpha · (g − ⟨g, u⟩ u))

    A step costs two passes, as SAM. The radius follows the optimizer's learning rate,
    whether a schedule or a callback sets it. For a learning rate below `lr_min`, as in
    warm-up, the radius is below `rho_min`, but at least 0.

    Args:
        model: As for `SAM`.
        rho_max: Radius at `lr_max`, ≥ 0; the radius at every learning rate if `lr_max`
            equals `lr_min`. The attributes `rho_max` and `rho` are the same and may be
            assigned between steps, not below `rho_min`.
        rho_min: Radius at `lr_min`, from 0 to `rho_max`.
        alpha: Weight of the gap, ≥ 0; 0 is SAM.
        lr_max: Largest learning rate of the optimizer, > 0.
        lr_min: Smallest learning rate of the optimizer after warm-up, ≥ 0.
        adaptive: Whether to perturb by rho_t · |w| g / ‖g‖₂; ASAM scales differently.
        minimize_perturbed: False swaps the two gradients: the optimizer gets
            g + alpha · (g' − ⟨g', u⟩ u) with u = g / ‖g‖₂.
        name: Name of the trainer.
        options: `perturbation`, `micro_batches` and `every`, as for `SAM`.

    Raises:
        ValueError: As for `SAM`; a number is out of its range.

    Reference: Zhuang et al. 2022, arXiv 2203.08065, algorithm 1; defaults and rho_t of
    big_vision configs/proj/gsam/vit_i1k_gsam_no_aug.py and trainers/proj/gsam/gsam.py.
    """

    plain_at_zero = False
    rho_min = Setting(lambda trainer, value: trainer._checked_rho_min(value))
    alpha = Setting(
        lambda _, value: number("alpha", value, 0, meaning="the weight of the gap")
    )
    lr_max = Setting(lambda trainer, value: trainer._checked_rates(lr_max=value))
    lr_min = Setting(lambda trainer, value: trainer._checked_rates(lr_min=value))
    adaptive = Setting(lambda _, value: bool(value))
    minimize_perturbed = Setting(lambda _, value: bool(value))

    def __init__(
        self,
        model: keras.Model,
        rho_max: float = 0.6,
        rho_min: float = 0.1,
        alpha: float = 0.6,
        *,
        lr_max: float,
        lr_min: float,
        adaptive: bool = False,
        minimize_perturbed: bool = True,
        name: str = "gsam",
        **options: Any,
    ) -> None:
        super().__init__(model, rho_max, name=name, **options)
        self.rho_min = rho_min
        self.alpha = alpha
        self.lr_max = lr_max
        self.lr_min = lr_min
        self.adaptive = adaptive
        self.minimize_perturbed = minimize_perturbed

    @property
    def rho_max(self) -> float:
        """The radius at the largest learning rate."""
        return self.rho

    @rho_max.setter
    def rho_max(self, rho_max: float) -> None:
        self.rho = rho_max

    def _checked_rho(self, rho: Any) -> float:
        if not is_number(rho):
            raise ValueError(
                "`rho_max` must be a number: GSAM's radius follows the optimizer's "
                "learning rate, from `rho_max` at `lr_max` to `rho_min` at `lr_min`. "
                "Give the optimizer a schedule, or pass this one to `SAM`. Received: "
                f"rho_max={rho!r}."
            )
        rho = number("rho_max", rho, 0, meaning="the radius at `lr_max`")
        # The constructor assigns `rho_min` after `rho`.
        self._check_radii(rho, vars(self).get("rho_min", 0.0))
        return rho

    def _checked_rho_min(self, rho_min: Any) -> float:
        rho_min = number("rho_min", rho_min, 0, meaning="the radius at `lr_min`")
        self._check_radii(self.rho, rho_min)
        return rho_min

    def _check_radii(self, rho: float, rho_min: float) -> None:
        if rho < rho_min:
            raise ValueError(
                "`rho_max` (or `rho`, its other name) must not be below `rho_min`, the "
                f"radius at `lr_min`. Received: rho_max={rho}, rho_min={rho_min}."
            )

    def _checked_rates(self, **new: Any) -> float:
        """Checks one learning rate, and that the two are in order."""
        ((name, value),) = new.items()
        which = "largest" if name == "lr_max" else "smallest"
        limits = {"positive": True} if name == "lr_max" else {"low": 0}
        rate = number(name, value, meaning=f"the {which} learning rate", **limits)
        rates = {"lr_min": 0.0, "lr_max": math.inf, **vars(self), name: rate}
        if rates["lr_min"] > rates["lr_max"]:
            raise ValueError(
                "`lr_min` must not be above `lr_max`. "
                f"Received: lr_min={rates['lr_min']}, lr_max={rates['lr_max']}."
            )
        return rate

    def step_gradients(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        _, here = loss_and_gradients(weights)
        above = self.gradients_above(loss_and_gradients, self.perturbed(weights, here))
        if not self.minimize_perturbed:
            return add(here, orthogonal(above, here), self.alpha), slots
        return add(above, orthogonal(here, above), -self.alpha), slots

    def perturbed(self, weights: list[Tensor], gradients: Gradients) -> list[Tensor]:
        if not self.adaptive:
            return super().perturbed(weights, gradients)
        factor = over(self.current_rho(), norm(gradients))
        scaled = list(multiply(gradients, (keras.ops.abs(w) for w in weights)))
        self._ascent.begin(factor, dot(gradients, scaled))
        return add(weights, scaled, factor)

    def current_rho(self) -> Tensor:
        """Returns the radius at the optimizer's learning rate, a scalar tensor."""
        rho_max = super().current_rho()
        if self.lr_max == self.lr_min:
            return rho_max
        rate = keras.ops.cast(self.optimizer.learning_rate, rho_max.dtype)
        share = (rate - self.lr_min) / (self.lr_max - self.lr_min)
        rho = self.rho_min + (rho_max - self.rho_min) * share
        return keras.ops.where(rho < 0, keras.ops.zeros_like(rho), rho)

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        return {
            "rho_max": settings.pop("rho"),
            "rho_min": self.rho_min,
            "alpha": self.alpha,
            "lr_max": self.lr_max,
            "lr_min": self.lr_min,
            "adaptive": self.adaptive,
            "minimize_perturbed": self.minimize_perturbed,
            **settings,
        }
