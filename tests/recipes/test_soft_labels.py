"""Trainings whose labels are mixed or smoothed."""

import keras
import numpy as np
import pytest
from command.command_line import BadInput
from finetune import Config, finetune
from training.optimizers import accuracy_of, loss_of

import kerasvit
from tests.once import on_last_backend
from tests.recipes.test_teachers import vit

pytestmark = pytest.mark.slow


def smoothed(labels, share):
    return (1 - share) * labels + share / labels.shape[-1]


def test_the_loss_smooths_mixed_labels():
    logits = np.array([[0.5, -2.0, 1.0], [3.0, 0.0, -1.0]], "float32")
    labels = np.array([[0, 0, 1], [0.3, 0.7, 0]], "float32")
    loss = loss_of(Config(augment="none", label_smoothing=0.1))
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    expected = -np.mean(np.sum(smoothed(labels, 0.1) * logs, axis=1))
    found = float(loss(labels, keras.ops.convert_to_tensor(logits)))
    assert found == pytest.approx(expected, rel=1e-5)


def test_class_indices_stay_where_nothing_is_mixed():
    for augment, kind in (("photo", "Sparse"), ("swin", "")):
        config = Config(augment=augment)
        assert type(loss_of(config)).__name__ == f"{kind}CategoricalCrossentropy"
        assert type(accuracy_of(config)).__name__ == f"{kind}CategoricalAccuracy"


@pytest.mark.long
def test_mixed_labels_with_a_teacher_sam_and_parts(tmp_path, monkeypatch):
    """DeiT's batches, of which each image is twice in each of two parts."""
    monkeypatch.chdir(tmp_path)
    kerasvit.save_pretrained(vit(1, classes=10), "teacher")
    kerasvit.save_pretrained(vit(2, classes=10), "weights")
    config = Config(
        weights="weights",
        teacher="teacher",
        augment="deit",
        repeats=2,
        label_smoothing=0.1,
        batch_size=32,
        accumulate=2,
        rho=0.05,
        steps=2,
        out="run",
    )
    result = finetune(config)
    assert np.isfinite(result["loss"])
    card = (tmp_path / "run/model/README.md").read_text()
    for row in ("| augment | deit |", "| repeats | 2 |", "| label_smoothing | 0.1 |"):
        assert row in card


@on_last_backend
def test_a_batch_of_copies_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="would be copies of one image.* Received: 3"):
        finetune(Config(augment="deit", batch_size=3, rho=0.0, out="run"))
