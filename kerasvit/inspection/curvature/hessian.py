"""The Hessian of a model's loss: products with vectors, and eigenvalues.

kerasvit.inspection.largest_eigenvalue(model, x, y, loss)
hessian = kerasvit.inspection.Hessian(model, x, y, loss, variables="attention/")
hessian.eigenpairs(k=5).values
hessian @ vector
"""

import math
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.backend import loss_derivatives
from kerasvit.backend.keras_private import in_variable_dtype
from kerasvit.types import Tensor

from .lanczos import Eigenpairs, eigenpairs
from .mean_loss import (
    Loss,
    MeanLoss,
    batches,
    check_finite,
    chosen_variables,
    length,
)

VALUES = ("eigenvalue", "relative residual")  # that a search shows
DELAY = 2.0  # seconds before "auto" shows the first line


class Hessian:
    """Hessian matrix of a model's mean loss, given by its products with vectors.

    The P trainable weights form one vector: the variables of `.variables` one after the
    other, each in C order. Gradients have the same order. The P × P matrix is never
    formed; `hessian @ vector` is one pass over the data with the model's present
    weights and costs a few times as much as a gradient. Where the loss has kinks, as
    with ReLU and max-pooling, the second derivatives are those of the smooth pieces.

    The loss is the data loss alone, averaged over all samples, and the model runs with
    `training=False`: dropout and stochastic depth are off, batch normalisation uses its
    moving statistics. The computation has the dtype of the variables, also under the
    policies `mixed_bfloat16` and `mixed_float16`: rounding of the activations would
    make second derivatives useless. No variable is changed.

    Args:
        model: Built `keras.Model`, compiled or not; a `SAM` trainer too.
        x: Inputs, an array or a list or dictionary of arrays (N, ...). Or, for data
            larger than memory, an iterable of all batches (x, y) that can be iterated
            several times, such as a `tf.data.Dataset` or a list.
        y: Targets (N, ...); None if `x` is an iterable of batches.
        loss: `keras.losses.Loss`, its name, or a function of targets and outputs that
            returns one loss per sample or their mean. None: the single loss that the
            model is compiled with, without `loss_weights`.
        batch_size: Number of samples per pass, for arrays; it does not change the
            result. The mean is over all N samples; the last batch may be smaller.
        variables: Regular expression. It selects the trainable variables in whose path
            it is found, and so a block on the diagonal of the whole matrix:
            "encoder_block_0/", "attention/", "kernel$".
        add_losses: Whether to add `model.losses`: weight regularisers, `add_loss`.

    Attributes:
        variables: The selected variables, in the order of the vector.
        shape: (P, P).
        dtype: Dtype of the vectors: "float32", or "float64" for float64 variables.

    Raises:
        ValueError: `model` is not a built `keras.Model`, has no trainable variables of
            one floating dtype of 32 bits or more, or none that `variables` selects;
            there is no loss, or several, or one that is a sum; `x` and `y` differ in
            length, are empty, or can be iterated only once. A product raises it if the
            loss or its derivatives are not finite, or a class index is beyond the
            model's outputs.

    Reference: Pearlmutter 1994, "Fast exact multiplication by the Hessian".
    """

    def __init__(
        self,
        model: keras.Model,
        x: Any,
        y: Any = None,
        loss: Loss = None,
        *,
        batch_size: int = 32,
        variables: str | None = None,
        add_losses: bool = False,
    ) -> None:
        self.model = model
        self.variables = chosen_variables(model, variables)
        self.dtype = self.variables[0].dtype
        size = sum(math.prod(variable.shape) for variable in self.variables)
        self.shape = (size, size)
        self._batches = batches(x, y, batch_size)
        self._loss = MeanLoss(model, loss)
        self._add_losses = add_losses
        self._derivatives = loss_derivatives(model, self.variables, self._loss_of)

    def __matmul__(self, vector: Any) -> np.ndarray:
        """Returns the product, an array (P,), of the matrix with an array (P,)."""
        return self._derivatives_at(vector, gradient=False)[2]

    def loss_and_gradient(self) -> tuple[float, np.ndarray]:
        """Returns the mean loss and its gradient, an array (P,)."""
        return self._derivatives_at(np.zeros(self.shape[0]), gradient=True)[:2]

    def eigenpairs(
        self,
        k: int = 1,
        *,
        which: str = "largest",
        tolerance: float = 1e-3,
        vectors: int = 20,
        max_products: int = 300,
        seed: int = 0,
        verbose: str | int = "auto",
    ) -> Eigenpairs:
        """Returns the first k eigenvalues and eigenvectors, by Lanczos' method.

        Memory on the host: `vectors` copies of the selected weights and three more, or
        k more for the result. For ViT-B/16, 86 million weights, a copy is 0.35 GB: 20
        are 7 GB, 6 are 2 GB and need more products.

        Args:
            k: Number of eigenvalues, in [1, P]; an exact repetition counts once.
            which: "largest", the most positive; "smallest", the most negative;
                "magnitude", the largest of either sign, as power iteration finds it.
            tolerance: Largest residual ‖H v − λ v‖ over |λ|, > 0; the error of λ is
                smaller.
            vectors: Number of vectors in memory before a restart, > 2 k.
            max_products: Largest number of products with the matrix, ≥ 1.
            seed: Seed of the random starting vector.
            verbose: 1 shows the number of batches, the first eigenvalue and its
                residual, 0 nothing; "auto" is 1 after two seconds, on a terminal or in
                a notebook, unless `keras.config.disable_interactive_logging`.

        Returns:
            `Eigenpairs`. If they have not converged after `max_products`, a warning
            says so: "largest" is then a lower bound, and "smallest" an upper bound.

        Raises:
            ValueError: An argument is out of its range, or as for `Hessian`.
        """
        progress = Progress(verbose)

        def product(vector: np.ndarray) -> np.ndarray:
            return self._derivatives_at(
                vector, gradient=False, after_batch=progress.batch
            )[2]

        pairs = eigenpairs(
            product,
            self.shape[0],
            k=k,
            which=which,
            tolerance=tolerance,
            vectors=vectors,
            max_products=max_products,
            seed=seed,
            dtype=self.dtype,
            report=progress.product,
        )
        progress.end()
        if not pairs.converged:
            warnings.warn(
                f"The eigenvalues {pairs.values} have residuals {pairs.residuals} "
                f"after {pairs.products} products, beyond the tolerance of {tolerance} "
                "times the eigenvalue. Raise `max_products`, or `vectors`.",
                stacklevel=2,
            )
        return pairs

    def split(self, vector: Any) -> dict[str, np.ndarray]:
        """Splits an array (P,) into {path of the variable: array of its shape}."""
        paths = [variable.path for variable in self.variables]
        return dict(zip(paths, self._parts(np.asarray(vector)), strict=True))

    def _loss_of(self, x: Any, y: Any) -> Tensor:
        value = self._loss(y, self.model(x, training=False))
        if self._add_losses:
            value = sum((ops.sum(each) for each in self.model.losses), value)
        return value

    def _parts(self, vector: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([math.prod(v.shape) for v in self.variables])[:-1]
        parts = np.split(vector, ends)
        return [p.reshape(v.shape) for p, v in zip(parts, self.variables, strict=True)]

    def _derivatives_at(
        self,
        vector: Any,
        *,
        gradient: bool,
        after_batch: Callable[..., Any] | None = None,
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Returns the mean loss, its gradient if wanted, and the product."""
        vector = np.asarray(vector, self.dtype)
        if vector.shape != self.shape[:1]:
            raise ValueError(
                f"A vector must have one entry for each of the {self.shape[0]} "
                f"selected weights. Received: shape {vector.shape}."
            )
        parts = [ops.convert_to_tensor(part) for part in self._parts(vector)]
        # The sums are on the host; the device has the derivatives of one batch.
        size = self.shape[0]
        sums = [np.zeros(n, self.dtype) for n in (1, size if gradient else 0, size)]
        samples = 0
        with in_variable_dtype(self.model):
            for x, y in self._loss.checked(self._batches()):
                _add(sums, self._derivatives(parts, x, y), length(x))
                samples += length(x)
                if after_batch is not None:
                    after_batch()
        for each in sums:
            each /= samples
        check_finite(*sums)
        loss, gradients, product = sums
        return float(loss[0]), gradients, product


def _add(sums: list[np.ndarray], derivatives: Any, multiple: int) -> None:
    """Adds multiples of a loss, its gradient and a product to sums that have a size."""
    for total, parts in zip(sums, derivatives, strict=True):
        end = 0
        for part in keras.tree.flatten(parts) if total.size else ():
            array = ops.convert_to_numpy(part).ravel()
            start, end = end, end + array.size
            total[start:end] += multiple * array


def largest_eigenvalue(
    model: keras.Model,
    x: Any,
    y: Any = None,
    loss: Loss = None,
    *,
    batch_size: int = 32,
    variables: str | None = None,
    seed: int = 0,
    tolerance: float = 1e-3,
    verbose: str | int = "auto",
) -> float:
    """Returns the curvature of a model's loss in the sharpest direction.

    It is the most positive eigenvalue λ of the Hessian of the mean loss over the given
    samples, without regularisers. At a distance r in its direction the loss is higher
    by λ r² / 2. SAM gives a fraction of the λ of plain training (arXiv 2106.01548,
    table 1, and by component, with `variables`, table 3).

    Power iteration, as in PyHessian, finds the eigenvalue of the largest magnitude,
    which may be negative. `Hessian(...).eigenpairs` can compute that one, several
    eigenvalues with eigenvectors and residuals, and can use less memory than the 20
    copies of the weights that are used here.

    Args:
        model: Built `keras.Model`; it runs with `training=False`, see `Hessian`.
        x: Inputs (N, ...), or an iterable of batches (x, y).
        y: Targets (N, ...).
        loss: `keras.losses.Loss`, name or function. None: the loss that the model is
            compiled with.
        batch_size: Number of samples per pass; it does not change the result.
        variables: Regular expression that selects trainable variables by their path,
            and so a block of the Hessian.
        seed: Seed of the random starting vector.
        tolerance: Largest relative error of the eigenvalue, > 0.
        verbose: "auto", 0 or 1, as for `Hessian(...).eigenpairs`.

    Raises:
        ValueError: As for `Hessian`.
    """
    hessian = Hessian(model, x, y, loss, batch_size=batch_size, variables=variables)
    pairs = hessian.eigenpairs(tolerance=tolerance, seed=seed, verbose=verbose)
    return float(pairs.values[0])


def hessian_vector_product(
    model: keras.Model,
    x: Any,
    y: Any,
    vector: Any,
    loss: Loss = None,
    *,
    batch_size: int = 32,
    variables: str | None = None,
) -> np.ndarray:
    """Returns the product, (P,), of the Hessian of a model's mean loss with a vector.

    For several products use `Hessian(...)`, which compiles once, and `@`.

    Args:
        model: Built `keras.Model`; see `Hessian` for all arguments.
        x: Inputs (N, ...).
        y: Targets (N, ...).
        vector: Array (P,): the trainable variables one after the other, in C order.
        loss: `keras.losses.Loss`, name or function.
        batch_size: Number of samples per pass.
        variables: Regular expression that selects variables.

    Raises:
        ValueError: As for `Hessian`; `vector` has another shape.
    """
    hessian = Hessian(model, x, y, loss, batch_size=batch_size, variables=variables)
    return hessian @ vector


class Progress:
    """Shows the number of batches, the first eigenvalue and its residual.

    Args:
        verbose: 1 shows progress, 0 nothing. "auto" shows it after some seconds, in an
            interactive session.

    Raises:
        ValueError: `verbose` is none of these.
    """

    def __init__(self, verbose: str | int) -> None:
        if verbose not in ("auto", 0, 1):
            raise ValueError(
                f'`verbose` must be "auto", 0 or 1. Received: verbose={verbose!r}.'
            )
        self._shown = verbose == 1 or (verbose == "auto" and _is_interactive())
        self._start = time.monotonic() + (DELAY if verbose == "auto" else 0.0)
        self._bar: keras.utils.Progbar | None = None
        self._batches = 0
        self._values: dict[str, float] = {}

    def batch(self) -> None:
        """Counts a batch; call it after every batch."""
        self._batches += 1
        self._update()

    def product(self, value: float, residual: float) -> None:
        """Shows the first eigenvalue so far; call it after every product."""
        relative = residual / abs(value) if value else residual
        self._values = dict(zip(VALUES, (value, relative), strict=True))
        self._update()

    def end(self) -> None:
        """Closes the progress bar; call it after the last product."""
        if self._bar is not None:
            self._bar.update(self._batches, self._values.items(), finalize=True)

    def _update(self) -> None:
        if not self._shown or time.monotonic() < self._start:
            return
        if self._bar is None:
            self._bar = keras.utils.Progbar(
                None, stateful_metrics=VALUES, unit_name="batch"
            )
        self._bar.update(self._batches, self._values.items())


def _is_interactive() -> bool:
    """Returns whether output goes to a terminal or notebook and Keras may log."""
    terminal = hasattr(sys.stdout, "isatty") and sys.stdout.isatty()
    notebook = "ipykernel" in sys.modules
    return (terminal or notebook) and keras.config.is_interactive_logging_enabled()
