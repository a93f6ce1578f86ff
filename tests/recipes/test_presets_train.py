"""Each preset trains a tiny model of its family, without a warning of its rho."""

import dataclasses

import finetune
import numpy as np
import pretrain
import pytest
from devices import devices
from presets import FINETUNE, PRETRAIN
from training import stages, trainers, training_data

import kerasvit
from kerasvit import data
from tests.models.tiny import TINY
from tests.once import long_elsewhere

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("error:The training loss hardly fell"),
]
BATCH, STEPS, CLASSES = 12, 6, 3  # SAM judges five steps or more
SCHEDULED = 30  # steps of the schedule, of which the first are trained


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    pixels = rng.integers(256, size=(24, 20, 24, 3), dtype="uint8")
    images = data.IndexedImages(pixels, np.arange(24) % CLASSES)
    names = [f"class {i}" for i in range(CLASSES)]
    return data.LabelledImages(data.TrainingImages(images), images, images, names)


def shrunk(config, folder):
    """The settings for a thousandth of the training, and the tiny variant."""
    row = getattr(kerasvit, config.model)
    numbers = {**TINY[row.builder.__name__], "num_classes": CLASSES}
    tiny = kerasvit.Variant("tiny", row.builder, evaluation=row.evaluation, **numbers)
    changes = {"batch_size": BATCH, "image_size": None, "epochs": None}
    changes |= {"steps": SCHEDULED}
    if config.teacher:
        path = folder / "teacher.keras"
        kerasvit.BigTransfer(**{**TINY["BigTransfer"], "num_classes": CLASSES}).save(
            path
        )
        changes |= {"teacher": str(path), "teacher_input": "torch"}
    return dataclasses.replace(config, model="tiny", **changes), tiny


def fit(stage, trainer, model, dataset):
    config = stage.config
    options = training_data.fit_options(config, model)
    batches = stage.batches(devices.ONE, dataset, options)
    before = [np.array(weight) for weight in model.get_weights()]
    parts = STEPS * config.accumulate
    history = trainer.fit(batches.with_epochs_of(parts), shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    assert int(trainer.optimizer.iterations) == STEPS
    after = model.get_weights()
    assert all(np.isfinite(weight).all() for weight in after)
    changed = [np.any(a != b) for a, b in zip(after, before, strict=True)]
    assert np.mean(changed) > 0.5


# These have all kinds of features; the others differ in numbers and layers.
QUICK = "deit_distilled", "gsam", "alternet_imagenet_general", "deit_384"


def quick_first(presets):
    """Parameters: those of QUICK, and the others with the mark `long`."""

    def mark(name):
        return long_elsewhere if name in QUICK else pytest.mark.long

    return [pytest.param(name, marks=mark(name)) for name in presets]


@pytest.mark.parametrize("name", quick_first(PRETRAIN))
def test_pretraining(name, dataset, monkeypatch, tmp_path):
    preset = pretrain.PRESETS[name]
    settings, tiny = shrunk(preset, tmp_path)
    settings = dataclasses.replace(settings, rho=pretrain.radius(preset))
    monkeypatch.setitem(pretrain.SMALL, "tiny", tiny)
    settings = stages.in_rounds(settings, {}, 1, SCHEDULED)
    model = pretrain.build(settings, dataset.class_names)
    teacher = trainers.find_teacher(settings, model)
    stage = stages.Stage(settings, 1, SCHEDULED, teacher=teacher)
    trainer = pretrain.compiled(devices.ONE, stage, model)
    fit(stage, trainer, model, dataset)


@pytest.mark.parametrize("name", quick_first(FINETUNE))
def test_finetuning(name, dataset, monkeypatch, tmp_path):
    settings, tiny = shrunk(finetune.PRESETS[name], tmp_path)
    monkeypatch.setattr(finetune, "SMALL", tiny)
    settings = dataclasses.replace(settings, model="small", weights=None)
    settings = stages.in_rounds(settings, {}, 1, SCHEDULED)
    model = finetune.build(settings, dataset.class_names)
    settings, _ = finetune.defaults.resolve(settings, 24, "photographs", model)
    stage = stages.Stage(settings, 1, SCHEDULED)
    trainer = finetune.compiled(devices.ONE, stage, model)
    fit(stage, trainer, model, dataset)
