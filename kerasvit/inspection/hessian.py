"""The Hessian of a model's loss: products with vectors, and eigenvalues.

kerasvit.inspection.largest_eigenvalue(model, x, y, loss)
hessian = kerasvit.inspection.Hessian(model, x, y, loss, variables="attention/")
hessian.eigenpairs(k=5).values
hessian @ vector
"""

import math
import warnings
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from kerasvit.backend import loss_derivatives
from kerasvit.backend.keras_internals import in_variable_dtype

from .lanczos import Eigenpairs, eigenpairs
from .mean_loss import (
    batches,
    check_finite,
    chosen_variables,
    length,
    mean_loss,
)
from .progress import Progress


class Hessian:
    """The matrix of second derivatives of a model's mean loss, known by its products.

    The P trainable weights are one vector, and so are their gradients: the variables
    of `.variables` one after the other, each in C order. The P × P matrix is never
    formed; `hessian @ vector` is one pass over the data, at a few times the cost of a
    gradient, with the weights that the model has at that time. Where the loss has
    kinks, as ReLU and max-pooling make them, the second derivatives are those between.

    The loss is that of the data alone, averaged over all samples, and the model is run
    with `training=False`: dropout and stochastic depth are off, batch normalisation
    takes its moving statistics. Everything is computed in the variables' own dtype,
    also where the policy is `mixed_bfloat16` or `mixed_float16`: rounding of the
    activations would drown second derivatives. No variable is written to.

    Args:
        model: Built `keras.Model`, compiled or not; a `SAM` trainer is fine too.
        x: Inputs, an array or a list or dictionary of arrays (N, ...). Or all batches
            at once, for data larger than memory: an iterable of pairs (x, y) that can
            be iterated again and again, such as a `tf.data.Dataset` or a list.
        y: Targets (N, ...); None where `x` is an iterable of batches.
        loss: `keras.losses.Loss`, its name, or a function of targets and outputs that
            returns one loss a sample or their mean. None: the one loss that the model
            is compiled with, without `loss_weights`.
        batch_size: Samples a pass, for arrays; any value gives the same result. The
            mean is over all N samples, the last batch may be smaller.
        variables: Regular expression. With it, only trainable variables in whose path
            it is found count, a block on the diagonal of the whole matrix:
            "encoder_block_0/", "attention/", "kernel$".
        add_losses: Whether `model.losses` count too: weight regularisers, `add_loss`.

    Attributes:
        variables: The variables that count, in the order of the vector.
        shape: (P, P).
        dtype: Of the vectors, "float32" unless the variables are float64.

    Raises:
        ValueError: `model` is no built `keras.Model`, has no trainable variables of one
            floating dtype of 32 bits or more, or none that `variables` is found in;
            there is no loss, or one of several outputs, or one that is a sum; `x` and
            `y` differ in length, are empty, or can be iterated but once. In a product:
            the loss or its derivatives are not finite.

    Reference: Pearlmutter 1994, "Fast exact multiplication by the Hessian".
    """

    def __init__(
        self,
        model: keras.Model,
        x,
        y=None,
        loss: keras.losses.Loss | Callable | str | None = None,
        *,
        batch_size: int = 32,
        variables: str | None = None,
        add_losses: bool = False,
    ):
        self.model = model
        self.variables = chosen_variables(model, variables)
        self.dtype = self.variables[0].dtype
        size = sum(math.prod(variable.shape) for variable in self.variables)
        self.shape = (size, size)
        self._batches = batches(x, y, batch_size)
        self._loss = mean_loss(model, loss)
        self._add_losses = add_losses
        self._derivatives = loss_derivatives(model, self.variables, self._loss_of)

    def __matmul__(self, vector):
        """The matrix times a vector.

        Args:
            vector: Array (P,).

        Returns:
            Array (P,).
        """
        return self._at(vector)[2]

    def loss_and_gradient(self):
        """The mean loss, a float, and its gradient, an array (P,)."""
        return self._at(np.zeros(self.shape[0]))[:2]

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
        """The first k eigenvalues with their vectors, by Lanczos' method.

        Memory on the host: `vectors` copies of the weights that count, and k more for
        the result. For ViT-B/16, 86 million weights, a copy is 0.35 GB: 20 are 7 GB, 6
        are 2 GB and need more products.

        Args:
            k: How many, in [1, P]; one that repeats exactly counts once.
            which: "largest", the most positive; "smallest", the most negative;
                "magnitude", the largest of either sign, as power iteration finds it.
            tolerance: Largest residual ‖H v − λ v‖ over |λ|, > 0; λ is off by less.
            vectors: How many vectors are kept before the better half is carried on,
                > 2 k.
            max_products: Products with the matrix after which to stop, ≥ 1.
            seed: Of the random vector to start with.
            verbose: 1 shows the batches so far, the first eigenvalue and its residual,
                0 nothing; "auto" is 1 after two seconds, on a terminal or in a notebook
                where Keras may log (`keras.config.disable_interactive_logging`).

        Returns:
            `Eigenpairs`. Where the products did not suffice, with a warning:
            "largest" is then at least what it says, and "smallest" at most.

        Raises:
            ValueError: An argument is out of its range, or as for `Hessian`.
        """
        progress = Progress(verbose)

        def product(vector):
            return self._at(vector, progress.batch)[2]

        found = eigenpairs(
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
        if not found.converged:
            warnings.warn(
                f"The eigenvalues {found.values} have residuals {found.residuals} "
                f"after {found.products} products, beyond the tolerance of {tolerance} "
                "times the eigenvalue. Raise `max_products`, or `vectors`.",
                stacklevel=2,
            )
        return found

    def split(self, vector):
        """A vector of the matrix as {path of the variable: array of its shape}."""
        paths = [variable.path for variable in self.variables]
        return dict(zip(paths, self._parts(np.asarray(vector)), strict=True))

    def _loss_of(self, x, y):
        value = self._loss(y, self.model(x, training=False))
        if self._add_losses:
            value = sum((ops.sum(each) for each in self.model.losses), value)
        return value

    def _parts(self, vector):
        ends = np.cumsum([math.prod(v.shape) for v in self.variables])[:-1]
        parts = np.split(vector, ends)
        return [p.reshape(v.shape) for p, v in zip(parts, self.variables, strict=True)]

    def _at(self, vector, after_batch=None):
        """Mean loss, gradient, and the product with a vector."""
        vector = np.asarray(vector, self.dtype)
        if vector.shape != self.shape[:1]:
            raise ValueError(
                f"A vector must have one entry for each of the {self.shape[0]} weights "
                f"that count. Received: shape {vector.shape}."
            )
        parts = [ops.convert_to_tensor(part) for part in self._parts(vector)]
        total, samples = None, 0
        with in_variable_dtype(self.model):
            for x, y in self._batches():
                size = length(x)
                samples += size
                terms = [
                    part * size
                    for part in keras.tree.flatten(self._derivatives(parts, x, y))
                ]
                total = terms if total is None else [*map(ops.add, total, terms)]
                if after_batch is not None:
                    after_batch()
        if not samples:
            raise ValueError("There must be at least one sample. Received: none.")
        arrays = [ops.convert_to_numpy(part) / samples for part in total]
        count = len(self.variables)
        gradient, product = (
            np.concatenate([array.ravel() for array in group]).astype(self.dtype)
            for group in (arrays[1 : 1 + count], arrays[1 + count :])
        )
        check_finite(arrays[0], gradient, product)
        return float(arrays[0]), gradient, product


def largest_eigenvalue(
    model: keras.Model,
    x,
    y=None,
    loss: keras.losses.Loss | Callable | str | None = None,
    *,
    batch_size: int = 32,
    variables: str | None = None,
    seed: int = 0,
    tolerance: float = 1e-3,
    verbose: str | int = "auto",
) -> float:
    """How sharply a model's loss curves at its weights, in the sharpest direction.

    The most positive eigenvalue of the Hessian of the mean loss over the samples given,
    without regularisers. At a distance r in that direction the loss is higher by
    λ r² / 2; SAM's are a fraction of plain training's (arXiv 2106.01548, table 1, and
    by component, with `variables`, table 3).

    Power iteration, as PyHessian has it, finds the eigenvalue of the largest magnitude,
    which may be negative. To have that one, several, their vectors, residuals, or less
    memory than 20 copies of the weights: `Hessian(...).eigenpairs`.

    Args:
        model: Built `keras.Model`; run with `training=False`, see `Hessian`.
        x: Inputs (N, ...), or an iterable of batches (x, y).
        y: Targets (N, ...).
        loss: `keras.losses.Loss`, name or function; None: what the model is compiled
            with.
        batch_size: Samples a pass; any value gives the same result.
        variables: Regular expression, for a block of the Hessian: the trainable
            variables in whose path it is found.
        seed: Of the random vector to start with.
        tolerance: Largest error over the eigenvalue, > 0.
        verbose: "auto", 0 or 1, as for `Hessian(...).eigenpairs`.

    Raises:
        ValueError: As for `Hessian`.
    """
    hessian = Hessian(model, x, y, loss, batch_size=batch_size, variables=variables)
    found = hessian.eigenpairs(tolerance=tolerance, seed=seed, verbose=verbose)
    return float(found.values[0])


def hessian_vector_product(
    model: keras.Model,
    x,
    y,
    vector,
    loss: keras.losses.Loss | Callable | str | None = None,
    *,
    batch_size: int = 32,
    variables: str | None = None,
):
    """The Hessian of a model's mean loss times one vector.

    For several products take `Hessian(...)`, which compiles once, and `@`.

    Args:
        model: As for `Hessian`, and so `x`, `y`, `loss`, `batch_size`, `variables`.
        x: Inputs (N, ...).
        y: Targets (N, ...).
        vector: Array (P,): the trainable variables one after the other, in C order.
        loss: `keras.losses.Loss`, name or function.
        batch_size: Samples a pass.
        variables: Regular expression.

    Returns:
        Array (P,).

    Raises:
        ValueError: As for `Hessian`; `vector` is of another shape.
    """
    hessian = Hessian(model, x, y, loss, batch_size=batch_size, variables=variables)
    return hessian @ vector
