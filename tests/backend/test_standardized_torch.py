"""Weight standardisation in compiled passes on PyTorch, compared with NumPy."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.backend import channels_last
from kerasvit.backend.recorded import recording

on_torch = keras.backend.backend() == "torch"
if on_torch:
    import torch

pytestmark = pytest.mark.only_on("torch", reason="PyTorch's recorded passes")
SHAPES = [(1, 1, 4, 6), (3, 3, 2, 5), (7, 7, 3, 8), (1, 1, 1, 3), (3, 3, 4, 1)]


def standardized(kernel, epsilon):
    """The kernel, and the function that computes its gradient, longhand."""
    axes = (0, 1, 2)
    centered = kernel - kernel.mean(axes)
    inverse = 1 / np.sqrt((centered**2).mean(axes) + epsilon)

    def gradient(given):
        rows = centered * inverse
        along = (given * rows).mean(axes)
        return inverse * (given - given.mean(axes) - rows * along)

    return centered * inverse, gradient


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_numpys(shape, dtype):
    rng = np.random.default_rng(0)
    values, given = rng.normal(size=(2, *shape)).astype(dtype)
    expected, gradient = standardized(values.astype("float64"), 1e-3)
    kernel = torch.tensor(values, requires_grad=True)
    with recording():
        found = channels_last.standardized(kernel, 1e-3)
    assert found.shape == shape and found.flatten(0, 2).t().is_contiguous()
    found.backward(torch.tensor(given))
    tolerance = {"rtol": 1e-5, "atol": 1e-5 if dtype == "float32" else 1e-12}
    np.testing.assert_allclose(found.detach(), expected, **tolerance)
    assert kernel.grad.is_contiguous()
    np.testing.assert_allclose(kernel.grad, gradient(given), **tolerance)


@pytest.mark.slow
def test_a_compiled_pass_takes_it(monkeypatch):
    """PyTorch 2.13 says in a recorded pass, too, that it compiles."""
    shapes = []
    rows = channels_last.standardized_rows
    monkeypatch.setattr(
        channels_last,
        "standardized_rows",
        lambda kernel, epsilon: shapes.append(kernel.shape) or rows(kernel, epsilon),
    )
    sizes = {"image_size": 32, "num_classes": 3, "stage_widths": [128]}
    model = kerasvit.BigTransfer(depths=[1], width_factor=0.5, **sizes)
    expected = model.predict_on_batch(np.ones((2, 32, 32, 3)))
    assert not shapes
    model.compile("sgd", "mse", jit_compile=True)
    recorded = []
    for _ in range(2):
        found = model.predict_on_batch(np.ones((2, 32, 32, 3)))
        np.testing.assert_allclose(found, expected, atol=1e-5)
        recorded.append(len(shapes))
    first, second = recorded
    # The root's kernel, and four of a unit. PyTorch records a pass more than once.
    assert first and first % 5 == 0 and second == first
