"""ASAM: adaptive sharpness-aware minimisation."""

import keras
from keras import ops

from kerasvit.arguments import number

from .sam import SAM
from .vectors import add, multiply, norm, over


@keras.saving.register_keras_serializable("kerasvit")
class ASAM(SAM):
    """SAM with a perturbation in proportion to the size of each weight.

    A network computes the same after one layer's weights are doubled and the next
    one's halved, but SAM's ball around them is another one. ASAM stretches the ball
    along each weight by T = |w| + eta, so that rescaling changes nothing:

        g  = ∇L(w)
        w' = w + rho · T² g / ‖T g‖₂
        g' = ∇L(w')
        w  ← optimizer(w, g')

    Two passes a step, as SAM. The radius is a relative one and much larger than SAM's.

    Two normalisers are in use, and their rho are not comparable:
    SamsungLabs/ASAM (the default here) adds eta and leaves biases as they are, T = 1;
    davda54/sam has `eta=0, biases=True`.

    Args:
        model: As for `SAM`.
        rho: Relative radius, ≥ 0. The paper takes 0.5 on CIFAR-10 and 1.0 on CIFAR-100;
            with davda54's normaliser its author found 2.0.
        eta: Added to |w|, ≥ 0; 0.01 in the paper.
        biases: Whether variables named bias or beta are stretched too.
        name: Name of the trainer.
        options: `perturbation`, `micro_batches` and `every`, as for `SAM`.

    Raises:
        ValueError: As for `SAM`; `eta` is negative.

    Reference: Kwon et al. 2021, arXiv 2102.11600, algorithm 1; SamsungLabs/ASAM
    asam.py.
    """

    def __init__(
        self,
        model: keras.Model,
        rho: float = 0.5,
        *,
        eta: float = 0.01,
        biases: bool = False,
        name: str = "asam",
        **options,
    ):
        super().__init__(model, rho, name=name, **options)
        self.eta = number(
            "eta", eta, 0, meaning="which is added to |w|; the paper's is 0.01"
        )
        self.biases = bool(biases)

    def perturbed(self, weights, gradients):
        """Returns the weights after the ascent step."""
        # Under the same name, so that one copy is there at a time.
        gradients = list(multiply(gradients, self._sizes(weights)))
        factor = over(self.current_rho(), norm(gradients))
        return add(weights, multiply(gradients, self._sizes(weights)), factor)

    def _sizes(self, weights):
        """Yields the operator T for each weight; None stands for 1."""
        for w, variable in zip(weights, self.trainable_variables, strict=True):
            stretched = self.biases or variable.name not in ("bias", "beta")
            if not stretched:
                yield None
                continue
            size = ops.abs(w)
            size += self.eta  # in place under PyTorch
            yield size

    def settings(self):
        """Returns the constructor's arguments without the model."""
        return {**super().settings(), "eta": self.eta, "biases": self.biases}
