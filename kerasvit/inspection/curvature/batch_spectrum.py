"""The first eigenvalues of the Hessian of each mini-batch."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from kerasvit.arguments import ArgumentError, number
from kerasvit.backend.forward import array_of

from .hessian import Hessian
from .lanczos import eigenpairs
from .mean_loss import Loss


@dataclass(frozen=True)
class BatchSpectrum:
    """The first k eigenvalues of the Hessian of each of M mini-batches.

    Args:
        values: Array (M, k), in the order of `which`.
        residuals: Array (M, k), ‖H v − λ v‖, which bounds the error of each value.
        converged: Array (M,), whether all residuals of a batch are within the
            tolerance.
    """

    values: np.ndarray
    residuals: np.ndarray
    converged: np.ndarray

    @property
    def negative_share(self) -> float:
        """The share of negative values among all, in [0, 1]."""
        return float((self.values < 0).mean())

    @property
    def mean_positive(self) -> float:
        """The mean of the positive values; 0 if there are none."""
        return _mean(self.values[self.values > 0])

    @property
    def mean_negative(self) -> float:
        """The mean of the negative values, negative itself; 0 if there are none."""
        return _mean(self.values[self.values < 0])


def batch_spectrum(
    model: keras.Model,
    data: Iterable[Any],
    loss: Loss = None,
    *,
    k: int = 5,
    which: str = "magnitude",
    weight_decay: float = 0.0,
    unsquared: bool = False,
    tolerance: float = 1e-3,
) -> BatchSpectrum:
    """Returns the first eigenvalues of the Hessian of each mini-batch.

    Figure 4 of arXiv 2202.06709 is the distribution of these values over the training
    set, early in training. The authors compute them on the batches and with the loss of
    training, and state that clean images or a loss without L2 give wrong results: pass
    augmented batches, with soft labels where MixUp is used, and `weight_decay`.

    Args:
        model: Built `keras.Model`; it runs with `training=False`, see `Hessian`.
        data: Iterable of M batches (x, y), read once: `dataset.take(20)`, a generator.
        loss: `keras.losses.Loss`, name or function; for soft labels
            `keras.losses.CategoricalCrossentropy(from_logits=True)`. None: the loss
            that the model is compiled with.
        k: Number of eigenvalues, ≥ 1; an exact repetition counts once.
        which: "magnitude", the largest of either sign, as power iteration finds them;
            "largest" or "smallest".
        weight_decay: λ ≥ 0 of an L2 term over all trainable variables.
        unsquared: False: the term is λ/2 · Σ ‖w‖², which adds λ to all eigenvalues.
            True: λ · Σ ‖w‖ over the variables, as how-do-vits-work has it; no variable
            may then be zero.
        tolerance: Largest residual over the eigenvalue's magnitude, > 0.

    Returns:
        `BatchSpectrum`. A warning says if values have not converged.

    Raises:
        ValueError: As for `Hessian`; there is no batch; a variable is zero and
            `unsquared` is True.

    References: Park and Kim 2022, arXiv 2202.06709, figure 4; `ops/norm.py` of
    xxxnell/how-do-vits-work.
    """
    number("weight_decay", weight_decay, 0)
    if hasattr(data, "shape") or not isinstance(data, Iterable):
        raise ArgumentError(
            "`data` must be an iterable of batches (x, y). Received: "
            f"{type(data).__name__}. For arrays, pass [(x, y)], one batch.",
            "data",
        )
    batch: list[Any] = []  # one Hessian for all batches, which compiles once
    hessian = Hessian(model, batch, loss=loss)
    penalty = _Penalty(hessian, weight_decay, unsquared)
    found = []
    for each in data:
        batch[:] = [each]
        pairs = eigenpairs(
            lambda vector: hessian @ vector + penalty @ vector,
            hessian.shape[0],
            k=k,
            which=which,
            tolerance=tolerance,
            vectors=max(20, 2 * k + 1),
            dtype=hessian.dtype,
        )
        found.append((pairs.values, pairs.residuals, pairs.converged))
    if not found:
        raise ArgumentError("`data` must have at least one batch. Received: 0.", "data")
    values, residuals, converged = (np.array(each) for each in zip(*found, strict=True))
    if not converged.all():
        warnings.warn(
            f"The eigenvalues of {np.sum(~converged)} of {len(converged)} batches have "
            "not converged: see `residuals`. Take a larger `tolerance` or a smaller "
            "`k`.",
            stacklevel=2,
        )
    return BatchSpectrum(values, residuals, converged)


class _Penalty:
    """The Hessian of an L2 term.

    That of ‖w‖ is (1 − u uᵀ) / ‖w‖, with u = w / ‖w‖.
    """

    def __init__(self, hessian: Hessian, weight_decay: float, unsquared: bool) -> None:
        self.weight_decay = weight_decay
        self.split = hessian.split
        self.weights: dict[str, np.ndarray] | None = None
        if weight_decay and unsquared:
            variables = hessian.variables
            self.weights = {v.path: array_of(v) for v in variables}
            zero = [path for path, weight in self.weights.items() if not weight.any()]
            if zero:
                raise ArgumentError(
                    "No variable may be zero if `unsquared` is True: its norm has no "
                    f"derivative. Received: {zero[:3]}, {len(zero)} in all. Train the "
                    "model first, or take the squared norms.",
                    "unsquared",
                )

    def __matmul__(self, vector: np.ndarray) -> np.ndarray:
        if self.weights is None:
            return self.weight_decay * vector
        products = []
        for path, part in self.split(vector).items():
            norm = np.linalg.norm(self.weights[path])
            unit = self.weights[path] / norm
            products.append(((part - unit * np.sum(unit * part)) / norm).ravel())
        return self.weight_decay * np.concatenate(products)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else 0.0
