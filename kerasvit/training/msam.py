"""Momentum-SAM: sharpness-aware minimisation in one pass."""

import keras

from kerasvit.arguments import number

from .slots import RememberingSAM
from .vectors import add, ascend


@keras.saving.register_keras_serializable("kerasvit")
class MSAM(RememberingSAM):
    """SAM that perturbs weights against the momentum and needs one pass only.

    The last update overshot in the direction it went, so that going on along it, the
    direction -v, raises the loss of the next batch. This needs no gradient:

        w' = w - rho · v / ‖v‖₂         v is 0 at first, and then w' = w
        g' = ∇L(w')                     the only pass
        v  ← momentum · v + g'
        w  ← optimizer(w, g')

    One pass a step, as plain training, and one more copy of the weights in memory. The
    variables hold w, never w', so that nothing is to be undone before evaluation or
    saving. The loss, metrics and moving statistics of training are those at w', for
    there is no other pass; with BatchNorm the authors therefore end with an epoch of
    forward passes in training mode at w (their main.py).

    v is the trainer's own, for any optimizer. It points where the momentum of SGD and
    the first moment of Adam do, if `momentum` is theirs (Adam's `beta_1`), and leaves
    out what the optimizer does to gradients: clipping, and SGD's weight decay, which
    the authors' code has in v.

    Args:
        model: As for `SAM`.
        rho: Radius, ≥ 0, some ten times SAM's: the authors run 3 where SAM has 0.2, for
            SGD on CIFAR-100 and ImageNet and for AdamW on ViT-S/32 (their README.md).
            For a ViT keep it 0 during the learning rate's warm-up, by assigning
            `trainer.rho` afterwards: 69.1 % against 66.1 (table A.2).
        momentum: Share of v that a step keeps, in [0, 1); with accumulation of
            gradients, every batch is a step to v.
        name: Name of the trainer.
        options: `perturbation` and `micro_batches`, as for `SAM`; all parts and devices
            go to the same w', so `perturbation` changes nothing.

    Raises:
        ValueError: As for `SAM`; a number is out of its range; `every` is given.

    Reference: Becker et al. 2024, arXiv 2401.12033, equation 5, algorithm 1;
    MarlonBecker/MSAM optimizer/msam.py and adamW_msam.py.
    """

    plain_at_zero = False  # the formula is that of plain training, in one pass

    def __init__(
        self,
        model: keras.Model,
        rho: float = 3.0,
        momentum: float = 0.9,
        *,
        name: str = "msam",
        **options,
    ):
        if "every" in options:
            raise ValueError(
                "`every` saves SAM's second pass, and MSAM has none. Leave it out, or "
                f"assign `rho` between steps. Received: every={options['every']!r}."
            )
        super().__init__(model, rho, name=name, **options)
        meaning = "the share of the past that is kept"
        self.momentum = number("momentum", momentum, 0, 1, meaning=meaning)

    def step_gradients(self, loss_and_gradients, weights, memory):
        """Returns the gradients for the optimizer and the new momentum."""
        # No name for the perturbed weights: they make room for the new momentum.
        gradients = self.gradients_above(
            loss_and_gradients, self.perturbed(weights, memory)
        )
        kept = (self.momentum * old for old in memory)
        return gradients, add(kept, gradients, 1.0)

    def perturbed(self, weights, momentum):
        """Returns the weights moved against the momentum."""
        return ascend(weights, momentum, -self.current_rho())

    def settings(self):
        """Returns the constructor's arguments without the model."""
        settings = super().settings()
        del settings["every"]
        return {**settings, "momentum": self.momentum}
