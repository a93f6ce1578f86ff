"""The presets have the published settings, and PRESETS.md is complete."""

import dataclasses
import re
import shlex
from pathlib import Path

import command_line
import finetune_settings
import pretrain_settings
import pytest
from presets import FINETUNE, PRETRAIN, page, sam
from pretrain_settings import radius

import kerasvit
from tests.once import on_last_backend

pytestmark = on_last_backend
PAGE = Path(page.__file__).parents[1] / "PRESETS.md"
SCRIPTS = {
    "pretrain.py": pretrain_settings.PRESETS,
    "finetune.py": finetune_settings.PRESETS,
}


def test_the_page_is_that_of_the_presets():
    made = "python -m recipes.presets.page > recipes/PRESETS.md"
    assert PAGE.read_text(encoding="utf-8") == page.page(), made


COMMANDS = re.findall(r"python recipes/[\w. -]+", PAGE.read_text(encoding="utf-8"))


def test_the_page_has_a_command_for_every_row():
    assert len(COMMANDS) > 100
    rows = [row for preset in page.PRESETS.values() for row in preset.results]
    assert len({(row.table, row.row) for row in rows}) == len(rows)
    counts = {table: len(rows) for table, rows in page.tables().items()}
    assert [counts[table] for table in (sam.TABLE_1, sam.TABLE_2)] == [6, 36]
    assert [counts[table] for table in (sam.TABLE_3, sam.TABLE_4)] == [4, 40]


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_commands_are_right(command):
    _, path, *options = shlex.split(command)
    script = Path(path).name
    config = command_line.parse(options, SCRIPTS[script], script)
    command_line.check(config)
    assert not options[0].startswith("-")


def test_the_scripts_have_the_presets():
    assert not PRETRAIN.keys() & FINETUNE.keys()
    for presets, script in ((PRETRAIN, "pretrain.py"), (FINETUNE, "finetune.py")):
        for name, preset in presets.items():
            config = SCRIPTS[script][name]
            assert preset.script == script
            assert config == dataclasses.replace(type(config)(), **preset.settings)


@pytest.mark.parametrize("name", page.PRESETS)
def test_each_setting_has_a_source_or_is_unconfirmed(name):
    preset = page.PRESETS[name]
    stated = [*preset.sources, *preset.unconfirmed]
    named = {setting for names in stated for setting in names.split()}
    assert named == preset.settings.keys() - {"model", "dataset"}
    assert preset.hardware and all(preset.sources.values())


def test_models_of_the_page_are_in_the_package():
    named = {m for c in COMMANDS for m in re.findall(r"--model (\w+)", c)}
    named |= {preset.settings["model"] for preset in page.PRESETS.values()}
    assert named <= set(kerasvit.list_models())


# The published settings, from the sources: learning rate, schedule, warm-up, decay,
# clip, batch, epochs, dropout, stochastic depth and radius; decay as a share of the
# learning rate.
PUBLISHED = {
    "vit": (3e-3, "cosine", 10_000, 0.3, 1.0, 4096, 300, 0.1, 0.0, 0.0),
    "vit_sam": (3e-3, "cosine", 10_000, 0.3, 1.0, 4096, 300, 0.1, 0.0, 0.2),
    "vit_aug": (3e-3, "cosine", 10_000, 0.3, 1.0, 4096, 300, 0.1, 0.0, 0.0),
    "vit_sam_aug": (3e-3, "cosine", 10_000, 0.3, 1.0, 4096, 300, 0.1, 0.0, 0.2),
    "mixer_vanilla": (3e-3, "linear", 10_000, 0.3, 1.0, 4096, 300, 0.0, 0.1, 0.0),
    "mixer_sam": (3e-3, "linear", 10_000, 0.3, 1.0, 4096, 300, 0.0, 0.1, 0.6),
    "mixer_aug": (3e-3, "linear", 10_000, 0.3, 1.0, 4096, 300, 0.0, 0.1, 0.0),
    "mixer_sam_aug": (3e-3, "linear", 10_000, 0.3, 1.0, 4096, 300, 0.0, 0.1, 0.6),
    "resnet": (1.6, "cosine", 5_000, 1e-3, 1.0, 4096, 90, 0.0, 0.0, 0.0),
    "resnet_sam": (1.6, "cosine", 5_000, 1e-3, 1.0, 4096, 90, 0.0, 0.0, 0.02),
    "mixer": (1e-3, "linear", 10_000, 0.1, 1.0, 4096, 300, 0.0, 0.1, 0.0),
    "bit": (1.6, "cosine", 1_000, 1e-3, 1.0, 4096, 90, 0.0, 0.0, 0.0),
    "bit_i21k": (0.48, "cosine", 5_000, 1e-3, 1.0, 4096, 90, 0.0, 0.0, 0.0),
    "alternet_cifar100": (1.25e-4, "cosine", 2_552, 0.05, 5.0, 96, 305, 0.0, 0.1, 0.0),
}
FIELDS = (
    "learning_rate schedule warmup_steps weight_decay clip batch_size epochs dropout "
    "stochastic_depth"
).split()
# Loss, label smoothing, augmentation and optimizer.
LOSSES = {
    "vit": ("sigmoid", 0.0, "photo", "adamw"),
    "vit_sam": ("sigmoid", 0.0, "photo", "adamw"),
    "vit_aug": ("sigmoid", 0.0, "photo_mixed", "adamw"),
    "vit_sam_aug": ("sigmoid", 0.0, "photo_mixed", "adamw"),
    "mixer_vanilla": ("sigmoid", 0.0, "photo", "adamw"),
    "mixer_sam": ("sigmoid", 0.0, "photo", "adamw"),
    "mixer_aug": ("sigmoid", 0.0, "photo_mixed", "adamw"),
    "mixer_sam_aug": ("sigmoid", 0.0, "photo_mixed", "adamw"),
    "resnet": ("softmax", 0.0, "photo", "sgd"),
    "resnet_sam": ("softmax", 0.0, "photo", "sgd"),
    "mixer": ("sigmoid", 0.0, "photo_mixed", "adamw"),
    "bit": ("softmax", 0.0, "photo", "sgd"),
    "bit_i21k": ("sigmoid", 0.0, "photo", "sgd"),
    "alternet_cifar100": ("softmax", 0.1, "cifar_mixed", "adamw"),
}


@pytest.mark.parametrize("name", PRETRAIN)
def test_presets_are_the_papers(name):
    preset = pretrain_settings.PRESETS[name]
    found = tuple(getattr(preset, field) for field in FIELDS)
    assert (*found, radius(preset)) == PUBLISHED[name]
    loss = preset.loss, preset.label_smoothing, preset.augment, preset.optimizer
    assert loss == LOSSES[name]


# Steps, warm-up and learning rate.
FINE_TUNED = {
    "cifar10": (10_000, 500, 0.01),
    "cifar100": (10_000, 500, 0.03),
    "pets": (500, 100, 0.03),
    "flowers": (500, 100, 0.03),
    "imagenet": (20_000, 500, 0.03),
}


@pytest.mark.parametrize("name", FINE_TUNED)
def test_fine_tuning_is_that_of_vit(name):
    preset = finetune_settings.PRESETS[name]
    found = preset.steps, preset.warmup_steps, preset.learning_rate
    assert found == FINE_TUNED[name]
    assert (preset.batch_size, preset.optimizer) == (512, "sgd")
    assert (preset.image_size, preset.augment, preset.rho) == ((384,), "photo", 0.0)
