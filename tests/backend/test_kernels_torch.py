"""Operations of PyTorch with gradients of their own, against formulas in float64."""

import keras
import numpy as np
import pytest

from tests.once import elsewhere

if keras.backend.backend() != "torch":
    elsewhere("on other backends Keras computes")

import torch

from kerasvit.backend.torch.kernels import convolution, group_norm, standardized

TOLERANCES = {0: 1e-5, 10: 1e-4, 300: 5e-3}  # by the distance of the mean from 0


def tensors(*shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(shape, dtype=dtype, generator=generator, requires_grad=True)
        for shape in shapes
    ]


@pytest.mark.parametrize("mean", TOLERANCES)
def test_gradients_of_group_norm_are_those_of_float64(mean):
    x, gamma, beta = tensors((2, 9, 8, 12), (12,), (12,))
    x = (x.detach() + mean).requires_grad_()
    (of_output,) = tensors((2, 9, 8, 12))
    maps = torch.nn.functional.group_norm(x.movedim(3, 1), 4, gamma, beta, 1e-5)
    inputs = (x, gamma, beta)
    expected = torch.autograd.grad(maps.movedim(1, 3), inputs, of_output)
    inputs = [each.detach().float().requires_grad_() for each in inputs]
    found = group_norm(inputs[0], 4, *inputs[1:], 1e-5)
    np.testing.assert_allclose(
        found.detach(), maps.movedim(1, 3).detach(), atol=TOLERANCES[mean]
    )
    found = torch.autograd.grad(found, inputs, of_output.float())
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=TOLERANCES[mean])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, g, b: group_norm(x, 3, g, b, 1e-3), [(2, 3, 4, 6), (6,), (6,)]),
        (lambda kernel: standardized(kernel, 1e-3), [(3, 3, 4, 5)]),
        (lambda x, kernel: convolution(x, kernel, 2, 1), [(2, 5, 4, 3), (3, 3, 3, 2)]),
    ],
    ids=["group_norm", "standardized", "convolution"],
)
def test_first_and_second_derivatives(function, shapes):
    inputs = tuple(tensors(*shapes))
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_the_gradient_of_a_kernel_is_contiguous():
    x, kernel = tensors((1, 4, 4, 3), (3, 3, 3, 5))
    (gradient,) = torch.autograd.grad(convolution(x, kernel, 1, 1).sum(), kernel)
    assert gradient.is_contiguous()


def test_a_compiled_norm_has_any_number_of_images():
    layer = keras.Sequential([keras.Input((4, 4, 6)), _norm()])
    sizes = ({0: torch.export.Dim("batch")},)
    (x,) = tensors((3, 4, 4, 6), dtype=torch.float32)
    exported = torch.export.export(layer, (x.detach(),), dynamic_shapes=(sizes,))
    more = torch.randn(5, 4, 4, 6)
    np.testing.assert_allclose(
        exported.module()(more).detach(), layer(more).detach(), atol=1e-5
    )


def _norm():
    from kerasvit.layers import GroupNorm

    return GroupNorm(3)
