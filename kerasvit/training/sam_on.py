"""SAM-ON: sharpness-aware minimisation on normalisation layers only."""

import keras
from keras import ops

from kerasvit.backend.keras_internals import layers_in

from .sam import SAM
from .vectors import ascend, norm

SCALES = ("gamma", "beta", "scale")  # as Keras calls what a normalisation learns


@keras.saving.register_keras_serializable("kerasvit")
class SAMON(SAM):
    """SAM that perturbs the scales and offsets of normalisation layers only.

    They are less than a thousandth of a network's weights, and perturbing them is often
    as good as perturbing all:

        g  = ∇L(w), all but the normalisations' entries set to 0
        w' = w + rho · g / ‖g‖₂
        g' = ∇L(w')
        w  ← optimizer(w, g')           all weights are trained

    Two passes a step, as SAM.

    Args:
        model: As for `SAM`, with at least one normalisation: a layer with "norm" in the
            name of its class and a gamma, beta or scale.
        rho: Radius, ≥ 0; 0.5, the default of the authors' code for CIFAR (sam_on.py
            and train.py). It is to be larger than SAM's: for ViT with Lion on ImageNet
            they have 1 for SAM and 10 for SAM-ON (issue 2).
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
        **options,
    ):
        super().__init__(model, rho, name=name, **options)
        self._normalising = {
            id(variable)
            for layer in layers_in(model)
            if "norm" in type(layer).__name__.lower()
            and not layers_in(layer, include_self=False)
            for variable in layer.weights  # also one that is frozen, and thawed later
            if variable.name in SCALES
        }
        if not self._normalising:
            raise ValueError(
                "`model` must have a normalisation layer with weights. "
                f"Received: {model!r}. SAM perturbs the weights of any model."
            )

    def perturbed(self, weights, gradients):
        """Returns the weights after the ascent step."""
        kept = [
            gradient if id(variable) in self._normalising else None
            for gradient, variable in zip(
                gradients, self.trainable_variables, strict=True
            )
        ]
        # Not a number in an entry that is left out, too, must stop the step.
        finite = ops.isfinite(norm(gradients))
        return ascend(
            weights, kept, ops.where(finite, self.current_rho(), float("nan"))
        )
