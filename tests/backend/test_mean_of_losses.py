"""The mean loss on PyTorch, in few operations."""

import keras
import numpy as np
import pytest

from tests.once import elsewhere

if keras.backend.backend() != "torch":
    elsewhere("of PyTorch")

import torch

from kerasvit.backend.loss_torch import add_to_mean


class Doubled(keras.metrics.Mean):
    """A mean with an update of its own."""

    def update_state(self, values, sample_weight=None):
        super().update_state(2 * values, sample_weight)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("kind", [keras.metrics.Mean, Doubled])
def test_is_that_of_keras(kind, dtype):
    found, expected = kind(dtype=dtype), kind(dtype=dtype)
    losses = np.random.default_rng(0).normal(size=20)
    for number, samples in zip(losses, [*range(1, 20), 2**20], strict=True):
        loss = torch.tensor(number, dtype=getattr(torch, dtype), requires_grad=True)
        add_to_mean(found, loss, samples)
        expected.update_state(loss.detach(), sample_weight=samples)
        assert float(found.result()) == float(expected.result())
    assert not found.total.value.grad_fn


def test_a_loss_of_each_sample_is_averaged():
    found, expected = keras.metrics.Mean(), keras.metrics.Mean()
    add_to_mean(found, torch.tensor([1.0, 2.0]), 2)
    expected.update_state(torch.tensor([1.0, 2.0]), sample_weight=2)
    assert float(found.result()) == float(expected.result()) == 1.5
