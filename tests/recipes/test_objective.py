"""The loss of a training in the report of `inspection.py`."""

import json
from pathlib import Path

import inspection
import keras
import numpy as np
import pytest
from reporting import curvature, subjects

import kerasvit
from kerasvit.inspection import BatchSpectrum
from tests.once import on_last_backend

from .inspected import config, save

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def training(name, **settings):
    """Saves a model as a training leaves it, with settings of its own."""
    save(f"{name}/model")
    settings = {"optimizer": "adamw", "augment": "none", **settings}
    Path(name, "config.json").write_text(json.dumps(settings))
    Path(name, "result.json").write_text("{}")
    return name


def objective(name, **options):
    [subject] = subjects.load(config(name, **options))
    return subject.objective, subject


def same(images, image):
    return np.isclose(images, image, atol=1e-4).all((1, 2, 3))


@on_last_backend
def test_the_settings_of_a_training_are_those_of_its_folder():
    settings = {"augment": "shift", "mixup": 0.2, "weight_decay": 0.1}
    name = training("run", **settings, label_smoothing=0.05, teacher="ViTB16/sam")
    for each in (name, f"{name}/model"):
        facts = objective(each)[0].facts
        assert facts.items() >= settings.items()
        assert facts["label_smoothing"] == 0.05 and facts["from"] == "config.json"
    facts = objective(name, mixup=0.0, weight_decay=0.3)[0].facts
    assert (facts["augment"], facts["mixup"]) == ("shift", 0)
    assert facts["weight_decay"] == 0.3 and facts["from"] == "config.json and options"


@on_last_backend
def test_no_weight_decay_in_the_settings_is_that_of_keras():
    assert objective(training("run", weight_decay=None))[0].weight_decay == 0.004
    other = training("other", weight_decay=None, optimizer="sgd")
    assert objective(other)[0].weight_decay == 0


@on_last_backend
def test_a_training_with_the_sigmoid_loss():
    found, _ = objective(training("run", loss="sigmoid"))
    loss = found.loss(np.array([[1.0, 0.0]]), np.array([[2.0, -1.0]]))
    each = np.log1p(np.exp(-2.0)) + np.log1p(np.exp(-1.0))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(loss), [each], rtol=1e-5)
    assert found.facts["loss"] == "sigmoid"


@on_last_backend
def test_a_model_without_a_training_has_the_images_as_they_are():
    found, subject = objective(save("model"))
    assert found.facts["from"] == "nothing" and found.weight_decay == 0
    [(x, y)] = found.batches()
    rows = [np.flatnonzero(same(subject.x, image)) for image in x]
    np.testing.assert_array_equal(np.sort(np.ravel(rows)), np.arange(16))
    np.testing.assert_array_equal(y.argmax(1), subject.y[np.ravel(rows)])
    assert set(np.ravel(y)) == {0, 1}


@on_last_backend
def test_images_and_labels_are_changed_as_in_the_training():
    found, subject = objective(training("run", augment="shift", mixup=1.0))
    [(x, y)] = found.batches()
    assert x.shape == subject.x.shape and y.shape == (16, 10)
    assert not any(same(subject.x, image).any() for image in x)
    np.testing.assert_allclose(y.sum(1), 1, rtol=1e-6)
    assert ((y > 0).sum(1) > 1).any()
    again = objective("run")[0].batches()
    np.testing.assert_array_equal(x, again[0][0])


@on_last_backend
def test_the_spectrum_is_that_of_the_loss_of_the_training(monkeypatch):
    called = []

    def spectrum(model, data, loss, **options):
        called.append((data, loss, options))
        return BatchSpectrum(np.ones((1, 5)), np.zeros((1, 5)), np.ones(1, bool))

    monkeypatch.setattr(kerasvit.inspection, "batch_spectrum", spectrum)
    name = training("run", label_smoothing=0.2, weight_decay=0.1)
    inspection.inspect(config(name, only=("batch-spectrum",), l2="norms"))
    [([(x, y)], loss, options)] = called
    assert options == {"weight_decay": 0.1, "unsquared": True}
    logits = np.random.default_rng(0).normal(size=y.shape).astype("float32")
    smooth = 0.8 * y + 0.2 / 10
    log = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(loss(y, logits), -(smooth * log).sum(1).mean(), 1e-5)
    page = Path("inspected/inspection.html").read_text(encoding="utf-8")
    assert "λ Σ‖w‖" in page and "config.json and" not in page
    inspection.inspect(config(name, only=("batch-spectrum",), l2="norms"))
    assert len(called) == 1
    inspection.inspect(config(name, only=("batch-spectrum",), mixup=0.5))
    assert len(called) == 2


@on_last_backend
def test_a_norm_of_zeros_is_said_instead_of_measured():
    save("model", scale=0.0)
    _, subject = objective("model", weight_decay=0.1, l2="norms")
    assert "model has weights of zeros" in curvature._without_norms(subject)
    _, subject = objective("model", weight_decay=0.1)
    assert curvature._without_norms(subject) == ""
