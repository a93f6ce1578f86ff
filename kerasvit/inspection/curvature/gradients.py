"""Norms of the gradient of a model's loss, by layer."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import integer, one_of
from kerasvit.backend.forward import array_of

from .mean_loss import Loss, LossAt, batches, chosen_variables, inner_model


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
    variables = chosen_variables(model)
    loss_at = LossAt(model, variables, loss)
    values = loss_at.values()
    for i in _zero_heads(model, variables):
        if head == "own":
            raise ValueError(
                "The head must have a kernel other than 0: everything before it has "
                f"the gradient 0. Received: {variables[i].path!r} of zeros. Pass "
                '`head="random"`, or load trained weights.'
            )
        inputs, units = variables[i].shape
        kernel = generator.normal(0, inputs**-0.5, (inputs, units))
        values[i] = ops.convert_to_tensor(kernel, variables[i].dtype)
    _, gradients = loss_at.gradients(values, batches(x, y, batch_size)())
    squares: dict[str, float] = {}
    for variable, gradient in zip(variables, gradients, strict=True):
        path = variable.path
        name = path.partition("/")[0] if by == "layer" else path
        square = float(ops.sum(ops.square(gradient)))
        squares[name] = squares.get(name, 0.0) + square
    return {name: square**0.5 for name, square in squares.items()}


def _zero_heads(model: keras.Model, variables: list[keras.Variable]) -> list[int]:
    """Returns the numbers of kernels of zeros with a column for each output."""
    outputs = getattr(inner_model(model), "outputs", None) or []
    units = {each.shape[-1] for each in outputs}
    return [
        i
        for i, variable in enumerate(variables)
        if variable.path.endswith("/kernel")
        and len(variable.shape) == 2
        and variable.shape[-1] in units
        and not array_of(variable).any()
    ]
