"""Norms of the gradient of a model's loss, by layer."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import integer, one_of

from .hessian import Hessian, Loss


def gradient_norms(
    model: keras.Model,
    x: Any,
    y: Any = None,
    loss: Loss = None,
    *,
    by: str = "layer",
    head: str = "own",
    batch_size: int = 32,
    seed: int = 0,
) -> dict[str, float]:
    """Returns the norm of the gradient of a model's mean loss for each layer.

    At the start of the training, the last MLP of a Transformer that normalises after
    each residual sum has the same norm for any number L of blocks. That of one which
    normalises before each branch falls as 1 / √L (theorem 1). This is why the former
    needs a warm-up of the learning rate. `by="variable"` has the norms of the MLPs'
    kernels, "…/mlp/dense_0/kernel" and "…/mlp/dense_1/kernel", that the paper shows.

    A head whose kernel is 0, as in all new models of kerasvit, gives everything before
    it the gradient 0. `head="random"` computes with a random kernel in its place.

    Args:
        model: Built `keras.Model`; it runs with `training=False`, see `Hessian`.
        x: Inputs (N, ...), or an iterable of batches (x, y).
        y: Targets (N, ...).
        loss: `keras.losses.Loss`, name or function. None: the loss that the model is
            compiled with.
        by: "layer": one norm for all trainable variables of a layer of the model, which
            have the same first part of their paths. "variable": one for each.
        head: "own", the kernel that the model has, or "random": normal values of
            variance 1 / inputs in place of a kernel of zeros. The model is not changed.
        batch_size: Number of samples per pass; it does not change the result.
        seed: Seed of the random head, ≥ 0.

    Returns:
        Norms by name of the layer or path of the variable, in the model's order.

    Raises:
        ValueError: As for `Hessian`; the head's kernel is 0 and `head` is "own".

    Reference: Xiong et al. 2020, arXiv 2002.04745, theorem 1 and figure 3.
    """
    one_of("by", by, ("layer", "variable"))
    one_of("head", head, ("own", "random"))
    generator = np.random.default_rng(integer("seed", seed, 0))
    hessian = Hessian(model, x, y, loss, batch_size=batch_size)
    zeros = _zero_heads(model, hessian.variables)
    if zeros and head == "own":
        raise ValueError(
            "The head must have a kernel other than 0: everything before it has the "
            f"gradient 0. Received: {[each.path for each in zeros]} of zeros. Pass "
            '`head="random"`, or load trained weights.'
        )
    values = [generator.normal(0, v.shape[0] ** -0.5, v.shape) for v in zeros]
    replaced = [ops.convert_to_tensor(value, hessian.dtype) for value in values]
    # The derivatives are taken at the values that the variables have in this scope.
    with keras.StatelessScope(zip(zeros, replaced, strict=True)):
        _, gradient = hessian.loss_and_gradient()
    squares: dict[str, float] = {}
    for path, part in hessian.split(gradient).items():
        name = path.partition("/")[0] if by == "layer" else path
        square = float(np.sum(part.astype("float64") ** 2))
        squares[name] = squares.get(name, 0.0) + square
    return {name: square**0.5 for name, square in squares.items()}


def _zero_heads(
    model: keras.Model, variables: list[keras.Variable]
) -> list[keras.Variable]:
    """Returns kernels of zeros that have as many columns as the model has outputs."""
    units = {each.shape[-1] for each in getattr(model, "outputs", None) or []}
    kernels = [v for v in variables if v.path.endswith("/kernel") and len(v.shape) == 2]
    return [
        kernel
        for kernel in kernels
        if kernel.shape[-1] in units and not ops.convert_to_numpy(kernel).any()
    ]
