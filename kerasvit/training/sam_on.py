"""SAM-ON: sharpness-aware minimisation on normalisation layers only."""

from typing import Any

import keras
from keras import ops

from kerasvit.backend.keras_private import layers_in
from kerasvit.types import Gradients, Tensor

from .sam import SAM
from .vectors import ascend, norm, one_or_nan

SCALES = ("gamma", "beta", "scale")  # names of the weights of Keras's normalisations


@keras.saving.register_keras_serializable("kerasvit")
class SAMON(SAM):
    """SAM that perturbs the scales and offsets of normalisation layers only.

    These are less than a thousandth of a network's weights, and perturbing them alone
    is often as good as perturbing all weights:

        g  = ∇L(w), with 0 for all weights but those of normalisations
        w' = w + rho · g / ‖g‖₂
        g' = ∇L(w')
        w  ← optimizer(w, g')           all weights are trained

    A step costs two passes, as SAM.

    Args:
        model: As for `SAM`, with at least one normalisation: a layer with "norm" in the
            name of its class and a weight named gamma, beta or scale.
        rho: Radius, ≥ 0, larger than SAM's. 0.5 is the default of the authors' code for
            CIFAR (sam_on.py and train.py); for ViT with Lion on ImageNet they use 1 for
            SAM and 10 for SAM-ON (issue 2 of their repository).
        name: Name of the trainer.
        options: `perturbation`, `micro_batches` and `every`, as for `SAM`.

    Raises:
        ValueError: As for `SAM`; the model has no normalisation layer with weights.

    Reference: Mueller et al. 2023, arXiv 2306.04226; mueller-mp/SAM-ON sam_on.py.
    """

    def __init__(
        self,
        model: keras.Model,
        rho: float = 0.5,
        *,
        name: str = "sam_on",
        **options: Any,
    ) -> None:
        super().__init__(model, rho, name=name, **options)
        self._perturbed_ids = {
            id(variable)
            for layer in layers_in(model)
            if "norm" in type(layer).__name__.lower()
            and not layers_in(layer, include_self=False)
            for variable in layer.weights  # frozen ones too: they may be trained later
            if variable.name in SCALES
        }
        if not self._perturbed_ids:
            raise ValueError(
                "`model` must have a normalisation layer with weights. "
                f"Received: {model!r}. Use `SAM`, which perturbs the weights of any "
                "model."
            )

    def perturbed(self, weights: list[Tensor], gradients: Gradients) -> list[Tensor]:
        selected = [
            gradient if id(variable) in self._perturbed_ids else None
            for gradient, variable in zip(
                gradients, self.trainable_variables, strict=True
            )
        ]
        # Inf or NaN in an entry that is left out must make the step NaN too.
        finite = ops.isfinite(norm(gradients))
        length, rho = norm(selected), self.current_rho()
        self._ascent.begin(rho, length)
        return ascend(weights, selected, rho, length * one_or_nan(finite, length.dtype))
