"""Copies to a GPU, with the CPU in its place."""

import keras
import numpy as np
import pytest

from tests.once import elsewhere

if keras.backend.backend() != "torch":
    elsewhere("imports torch, whose copies it tests")

import torch  # noqa: E402

from kerasvit.backend import copies_torch  # noqa: E402
from kerasvit.backend.copies_torch import (  # noqa: E402
    MOST_BYTES,
    QueuedCopies,
    queued_copies,
)
from kerasvit.backend.recorded import recording  # noqa: E402
from tests.backend.test_compiled_passes import TRAINERS, trained, vit  # noqa: E402


@pytest.fixture
def pinned(monkeypatch):
    """Shapes of the tensors in memory that a GPU copies by itself."""
    shapes = []

    def pin_memory(tensor):
        shapes.append(tuple(tensor.shape))
        return tensor.clone()

    monkeypatch.setattr(copies_torch, "_is_gpu", lambda device: device is not None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    return shapes


def test_numbers_and_small_arrays_are_queued(pinned):
    values = [3, 0.5, True, (2, 3), np.arange(4.0), np.float32(2)]
    expected = [keras.ops.convert_to_tensor(value) for value in values]
    with QueuedCopies():
        found = [keras.ops.convert_to_tensor(value) for value in values]
        moved = torch.ones(3).to("cpu")
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)
    assert torch.equal(moved, torch.ones(3))
    assert pinned == [(), (), (), (2,), (4,), (), (3,)]


def test_what_is_large_or_has_gradients_is_copied_as_ever(pinned):
    large = np.zeros(MOST_BYTES + 1, "uint8")
    weight = torch.ones(2, requires_grad=True)
    with QueuedCopies():
        keras.ops.convert_to_tensor(large)
        (2 * weight.to("cpu")).sum().backward()
        torch.zeros(2).to(torch.float64)
        torch.as_tensor(data=[1.0])
    assert pinned == [] and torch.equal(weight.grad, torch.full((2,), 2.0))


def test_a_recorded_number_is_no_copy(pinned, monkeypatch):
    values = [3, 0.5, True, (2,), [4.0], (2, 3), np.arange(4.0)]
    expected = [keras.ops.convert_to_tensor(value) for value in values]
    filled, full = [], torch.full
    monkeypatch.setattr(
        torch, "full", lambda *a, **k: filled.append(a) or full(*a, **k)
    )
    with recording(), queued_copies():
        found = [keras.ops.convert_to_tensor(value) for value in values]
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)
    assert len(filled) == 5 and pinned == []


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["plain", "sam"])
def test_the_optimizer_queues_its_copies(trainer, pinned):
    trainer = TRAINERS[trainer](vit())
    trainer.compile(keras.optimizers.SGD(), "mse", jit_compile=True)
    queued, add = [], trainer.optimizer.iterations.assign_add

    def assign_add(value):
        before = len(pinned)
        add(value)
        queued.append(len(pinned) > before)

    trainer.optimizer.iterations.assign_add = assign_add
    trainer.train_on_batch(np.ones((2, 8, 8, 3)), np.ones((2, 3)))
    assert queued == [True]


@pytest.mark.slow
@pytest.mark.parametrize(("trainer", "jit"), [("plain", True), ("sam", False)])
def test_a_step_queues_its_copies(trainer, jit, pinned, monkeypatch):
    _, _, weights = trained(vit, TRAINERS[trainer], jit=jit)
    assert () in pinned  # the number of samples, for the loss
    monkeypatch.undo()
    _, _, expected = trained(vit, TRAINERS[trainer], jit=jit)
    for a, b in zip(weights, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
