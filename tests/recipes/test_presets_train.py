"""Each preset trains a tiny model of its family for three steps."""

import dataclasses

import data
import devices
import finetune
import numpy as np
import pretrain
import pytest
import teachers
import training
import training_data
from presets import FINETUNE, PRETRAIN
from readers import Indexed

import kerasvit
from tests.models.tiny import TINY
from tests.once import rest_long_elsewhere

pytestmark = pytest.mark.slow
BATCH, STEPS, CLASSES = 12, 3, 3


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    pixels = rng.integers(256, size=(24, 20, 24, 3), dtype="uint8")
    images = Indexed(pixels, np.arange(24) % CLASSES)
    names = [f"class {i}" for i in range(CLASSES)]
    return data.Dataset(images, images, images, names)


def shrunk(config, folder):
    """The settings for a thousandth of the training, and the tiny variant."""
    row = getattr(kerasvit, config.model)
    numbers = {**TINY[row.builder.__name__], "num_classes": CLASSES}
    tiny = kerasvit.Variant("tiny", row.builder, evaluation=row.evaluation, **numbers)
    changes = {"batch_size": BATCH, "image_size": None, "epochs": None, "steps": STEPS}
    if config.teacher:
        path = folder / "teacher.keras"
        kerasvit.BigTransfer(**{**TINY["BigTransfer"], "num_classes": CLASSES}).save(
            path
        )
        changes |= {"teacher": str(path), "teacher_input": "torch"}
    return dataclasses.replace(config, model="tiny", **changes), tiny


def fit(trainer, config, model, dataset, **options):
    options |= training_data.batch_options(config, model)
    batches = training_data.fit_batches(devices.ONE, config, dataset, options)
    before = [np.array(weight) for weight in model.get_weights()]
    parts = STEPS * config.accumulate
    history = trainer.fit(batches, steps_per_epoch=parts, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    assert int(trainer.optimizer.iterations) == STEPS
    after = model.get_weights()
    assert all(np.isfinite(weight).all() for weight in after)
    changed = [np.any(a != b) for a, b in zip(after, before, strict=True)]
    assert np.mean(changed) > 0.5


# The first has all kinds of features; the rest differ in numbers and layers.
@pytest.mark.parametrize("name", rest_long_elsewhere(PRETRAIN, everywhere=2))
def test_pretraining(name, dataset, monkeypatch, tmp_path):
    preset = pretrain.PRESETS[name]
    settings, tiny = shrunk(preset, tmp_path)
    settings = dataclasses.replace(settings, rho=pretrain.radius(preset))
    monkeypatch.setitem(pretrain.SMALL, "tiny", tiny)
    settings = training.apply_plan(settings, {}, 1, STEPS)
    model = pretrain.build(settings, dataset.label_names)
    teacher = teachers.find(settings, model)
    trainer = pretrain.trainer_of(devices.ONE, settings, model, STEPS, teacher)
    fit(trainer, settings, model, dataset, classes=CLASSES)


@pytest.mark.parametrize("name", rest_long_elsewhere(FINETUNE))
def test_finetuning(name, dataset, monkeypatch, tmp_path):
    settings, tiny = shrunk(finetune.PRESETS[name], tmp_path)
    monkeypatch.setattr(finetune, "SMALL", tiny)
    settings = dataclasses.replace(settings, model="small")
    settings = training.apply_plan(settings, {}, 1, STEPS)
    model = finetune.build(settings, dataset.label_names)
    settings, _ = finetune.defaults.resolve(settings, 24, "photographs", model)
    rho = settings.rho
    trainer = finetune.trainer_of(devices.ONE, settings, model, rho, STEPS)
    fit(trainer, settings, model, dataset)
