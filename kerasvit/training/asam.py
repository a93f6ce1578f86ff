"""ASAM: adaptive sharpness-aware minimisation."""

from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from kerasvit.arguments import number
from kerasvit.backend.train_step import Setting
from kerasvit.types import Gradients, Tensor

from .sam import SAM
from .vectors import add, multiply, norm, over


@keras.saving.register_keras_serializable("kerasvit")
class ASAM(SAM):
    """SAM with a perturbation in proportion to the size of each weight.

    If the weights of one layer are doubled and those of the next are halved, the
    network computes the same function, but SAM's neighbourhood changes. ASAM scales the
    neighbourhood along each weight by T = |w| + eta, so that it does not depend on such
    rescaling:

        g  = ∇L(w)
        w' = w + rho · T² g / ‖T g‖₂
        g' = ∇L(w')
        w  ← optimizer(w, g')

    A step costs two passes, as SAM. The radius is relative to the weights and much
    larger than SAM's.

    Two implementations scale differently, and their values of rho are not comparable:
    SamsungLabs/ASAM (the default here) adds eta and leaves biases unscaled, T = 1;
    davda54/sam has `eta=0, biases=True`.

    Args:
        model: As for `SAM`.
        rho: Relative radius, ≥ 0. The paper takes 0.5 on CIFAR-10 and 1.0 on CIFAR-100;
            the author of davda54/sam recommends 2.0 for that scaling.
        eta: Constant added to |w|, ≥ 0; 0.01 in the paper.
        biases: Whether to scale variables named bias or beta too.
        name: Name of the trainer.
        options: `perturbation`, `micro_batches` and `every`, as for `SAM`.

    Raises:
        ValueError: As for `SAM`; `eta` is negative.

    Reference: Kwon et al. 2021, arXiv 2102.11600, algorithm 1; SamsungLabs/ASAM
    asam.py.
    """

    eta = Setting(
        lambda _, value: number(
            "eta", value, 0, meaning="the constant added to |w|; 0.01 in the paper"
        )
    )
    biases = Setting(lambda _, value: bool(value))

    def __init__(
        self,
        model: keras.Model,
        rho: float = 0.5,
        *,
        eta: float = 0.01,
        biases: bool = False,
        name: str = "asam",
        **options: Any,
    ) -> None:
        super().__init__(model, rho, name=name, **options)
        self.eta = eta
        self.biases = biases

    def perturbed(self, weights: list[Tensor], gradients: Gradients) -> list[Tensor]:
        # The name is reused, so that only one copy of the vector is in memory.
        gradients = list(multiply(gradients, self._sizes(weights)))
        length, rho = norm(gradients), self.current_rho()
        self._ascent.begin(rho, length)
        factor = over(rho, length)
        return add(weights, multiply(gradients, self._sizes(weights)), factor)

    def _sizes(self, weights: list[Tensor]) -> Iterator[Tensor | None]:
        """Yields the operator T for each weight; None stands for 1."""
        for w, variable in zip(weights, self.trainable_variables, strict=True):
            scaled = self.biases or variable.name not in ("bias", "beta")
            if not scaled:
                yield None
                continue
            size = ops.abs(w)
            size += self.eta  # in place under PyTorch
            yield size

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "eta": self.eta, "biases": self.biases}
