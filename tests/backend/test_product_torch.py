"""Products by a convolution, against matrix products of PyTorch."""

import keras
import numpy as np
import pytest

from tests.once import elsewhere

if keras.backend.backend() != "torch":
    elsewhere("other backends have one matrix product")

import torch

from kerasvit.backend.torch import kernels
from kerasvit.backend.torch.kernels import product


@pytest.fixture(autouse=True)
def convolutions(monkeypatch):
    """Uses convolutions on every CPU, and with any number of threads."""
    monkeypatch.setattr(kernels, "WITH_AVX512", True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


def tensors(rows=1100):
    generator = torch.Generator().manual_seed(0)
    shapes = (rows, 300), (300, 200), (200,)
    return [
        torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes
    ]


def is_convolution(y):
    """Whether a result is that of a convolution."""
    nodes = [y.grad_fn]
    for node in nodes:
        nodes += [each for each, _ in node.next_functions if each is not None]
    return any("_Product" in type(node).__name__ for node in nodes)


def plain(x, kernel, bias=None):
    y = x @ kernel
    return y if bias is None else y + bias


def assert_close(found, expected):
    for a, b in zip(found, expected, strict=True):
        a, b = a.detach(), b.detach()
        # Some are sums of 330,000 values.
        np.testing.assert_allclose(a, b, atol=4e-5 * float(b.abs().max()))


def with_gradients(function, inputs):
    y = function(*inputs)
    return y, *torch.autograd.grad((y.tanh() * y).mean(), inputs)


@pytest.mark.parametrize("rows", [8, 300, 1100])
@pytest.mark.parametrize("with_bias", [False, True])
def test_values_and_gradients(rows, with_bias):
    inputs = tensors(rows)[: 2 + with_bias]
    uses = rows > 8
    assert is_convolution(product(*inputs)) == uses
    assert_close(with_gradients(product, inputs), with_gradients(plain, inputs))


def test_strides_of_any_order():
    x, kernel, bias = tensors()
    expected = plain(x, kernel, bias)
    for strided in (kernel.t().contiguous().t(), kernel.repeat(1, 2)[:, :200]):
        assert_close([product(x, strided, bias)], [expected])
    assert_close([product(x.t().contiguous().t(), kernel, bias)], [expected])
    assert product(x, kernel).is_contiguous()


def test_only_wanted_gradients():
    x, kernel, bias = tensors()
    assert product(x.detach(), kernel.detach(), bias.detach()).grad_fn is None
    (gradient,) = torch.autograd.grad(product(x.detach(), kernel, bias).sum(), kernel)
    assert_close([gradient], [x.sum(0)[:, None].expand(-1, 200)])


def test_second_derivatives():
    def second(function):
        inputs = tensors()
        y = function(*inputs)
        gradients = torch.autograd.grad(
            (y.tanh() ** 2).mean(), inputs, None, True, True
        )
        products = sum((g * g.detach().roll(1)).sum() for g in gradients)
        return torch.autograd.grad(products, inputs)

    assert_close(second(product), second(plain))


def test_forward_derivatives_and_vectorisation():
    x, kernel, bias = (tensor.detach() for tensor in tensors())

    def forward(function):
        tangents = torch.ones_like(x), kernel, bias
        found = torch.func.jvp(function, (x, kernel, bias), tangents)
        return *found, torch.func.jvp(lambda x: function(x, kernel), (x,), (x,))[1]

    def gradients_of_two(function):
        loss = torch.func.grad(lambda kernel, x: function(x, kernel, bias).sin().mean())
        return (torch.func.vmap(loss, (None, 0))(kernel, torch.stack([x, 2 * x])),)

    assert_close(forward(product), forward(plain))
    assert_close(gradients_of_two(product), gradients_of_two(plain))


def test_other_types_and_compiled_graphs_take_the_matrix_product():
    x, kernel, _ = tensors()
    for dtype in (torch.float64, torch.bfloat16):
        assert not is_convolution(product(x.to(dtype), kernel.to(dtype)))

    class Model(torch.nn.Module):
        def forward(self, x, kernel):
            return product(x, kernel)

    graph = torch.export.export(Model(), (x.detach(), kernel.detach()))
    assert "conv" not in str(graph)


def test_autocast_takes_the_matrix_product():
    x, kernel = (torch.randn(512, 512, requires_grad=True) for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = product(x, kernel)
    result.float().sum().backward()
    assert result.dtype == torch.bfloat16
    assert x.grad is not None and kernel.grad is not None


def test_one_thread_takes_the_matrix_product(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert not is_convolution(product(*tensors()))


def test_results_may_be_changed_in_place():
    inputs = tensors()
    y = product(*inputs)
    y += 1
    y.mul_(2)
    found = torch.autograd.grad(y.square().sum(), inputs)
    expected = torch.autograd.grad((2 * plain(*inputs) + 2).square().sum(), inputs)
    assert_close(found, expected)


@pytest.mark.parametrize("frozen", [False, True])
def test_inputs_of_frozen_kernels_are_not_kept(frozen):
    x, kernel, bias = tensors()
    kernel.requires_grad_(not frozen)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda none: none):
        product(x, kernel, bias)
    expected = [kernel] if frozen else [x, kernel]
    assert [each.shape for each in kept] == [each.shape for each in expected]


def test_a_program_for_any_batch():
    class Model(torch.nn.Module):
        def forward(self, x, kernel):
            return product(x, kernel)

    x, kernel, _ = (tensor.detach() for tensor in tensors())
    rows = {0: torch.export.Dim("batch")}
    program = torch.export.export(Model(), (x, kernel), dynamic_shapes=(rows, None))
    assert_close([program.module()(x[:7], kernel)], [plain(x[:7], kernel)])
