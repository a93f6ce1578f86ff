"""Second derivatives of a loss on PyTorch."""

import keras
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def loss_derivatives(model, variables, loss):
    """Returns a function of the loss, its gradient and a Hessian-vector product.

    Args:
        model: Built `keras.Model`.
        variables: Those of its variables that are differentiated by, of a floating
            dtype.
        loss: Function of a batch's `x` and `y`, which calls the model and returns a
            scalar tensor.

    Returns:
        Function of `vector`, `x` and `y`: a tensor for each variable, of its shape and
        dtype, and the batch. It computes at the present values of all variables and
        writes to none, and returns the loss, a list of gradients and a list of
        products of the Hessian with the vector, zero where nothing depends.
    """

    def derivatives(vector, x, y):
        weights = [v.value.detach().requires_grad_() for v in variables]
        mapping = zip(variables, weights, strict=True)
        # Fused attention has no second derivative.
        with (
            sdpa_kernel(SDPBackend.MATH),
            keras.StatelessScope(mapping, collect_losses=True),
        ):
            value = loss(x, y)
            gradients = _gradients(value, weights, create_graph=True)
            slope = sum(
                (gradient * part).sum()
                for gradient, part in zip(gradients, vector, strict=True)
            )
            products = _gradients(slope, weights)
        return value.detach(), [gradient.detach() for gradient in gradients], products

    return derivatives


def _gradients(value, weights, create_graph=False):
    if not value.requires_grad:  # what is linear in all weights ends here
        return [torch.zeros_like(weight) for weight in weights]
    return list(
        torch.autograd.grad(
            value,
            weights,
            create_graph=create_graph,
            allow_unused=True,
            materialize_grads=True,
        )
    )
