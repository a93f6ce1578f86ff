"""The presets have the published settings, and PRESETS.md is complete."""

import re
import shlex
from pathlib import Path

import finetune
import pretrain
import pytest
from command import command_line
from presets import FINETUNE, PRETRAIN, page, read
from pretrain import radius

import kerasvit
from tests.once import on_last_backend

pytestmark = on_last_backend
PAGE = Path(page.__file__).parents[1] / "PRESETS.md"
SCRIPTS = {
    "pretrain.py": pretrain.PRESETS,
    "finetune.py": finetune.PRESETS,
}


def test_the_page_is_that_of_the_presets():
    made = "python -m recipes.presets.page > recipes/PRESETS.md"
    assert PAGE.read_text(encoding="utf-8") == page.page(), made


def test_sentences_of_the_page_end_with_one_full_stop():
    assert not re.search(r"\.\.(\s|$)", page.page())


COMMANDS = re.findall(r"python recipes/[\w. -]+", PAGE.read_text(encoding="utf-8"))


def test_the_page_has_a_command_for_every_row():
    assert len(COMMANDS) > 100
    rows = [row for preset in page.PRESETS.values() for row in preset.results]
    assert len({(row.table, row.row) for row in rows}) == len(rows)
    counts = {table: len(rows) for table, rows in page.tables().items()}
    of_sam = [counts[f"arXiv 2106.01548, Table {i}"] for i in range(1, 5)]
    assert of_sam == [6, 36, 4, 40]
    from_scratch = counts["arXiv 1912.11370 (BiT), from scratch"]
    assert from_scratch == 2 * 6  # models of big_transfer
    on_imagenet = [counts[t] for t in counts if t.startswith("arXiv 2202.06709, Image")]
    assert on_imagenet == [2 * 5, 2 * 5]  # with attention and without


def one_of_each_preset():
    """Commands, of which those of a preset differ in the model: the first is short."""
    marked, seen = [], set()
    for command in sorted(set(COMMANDS)):
        preset = command.partition(" --model")[0]
        marks = [pytest.mark.long] if preset in seen else []
        marked.append(pytest.param(command, marks=marks))
        seen.add(preset)
    return marked


@pytest.mark.slow
@pytest.mark.parametrize("command", one_of_each_preset())
def test_commands_are_right(command, tmp_path):
    _, path, *options = shlex.split(command.replace("FOLDER", str(tmp_path)))
    script = Path(path).name
    config = command_line.parse(options, SCRIPTS[script], script)
    command_line.check(config)


def test_the_scripts_have_the_presets():
    files = sorted(Path(page.__file__).parent.glob("*.toml"))
    names = [name for path in files for name in read(path)[0]]
    assert len(names) == len(set(names)) == len(PRETRAIN) + len(FINETUNE)
    for presets, script in ((PRETRAIN, "pretrain.py"), (FINETUNE, "finetune.py")):
        for name, preset in presets.items():
            config = SCRIPTS[script][name]
            assert preset.script == script
            assert config == preset.configuration(type(config))


@pytest.mark.parametrize("name", page.PRESETS)
def test_each_setting_has_a_source_or_is_unconfirmed(name):
    preset = page.PRESETS[name]
    assert preset.origins.keys() == preset.settings.keys() - {"model", "dataset"}
    assert all(map(any, preset.origins.values()))


CORRECT = """
[pretrain.first]
hardware = "8 GPUs"

[[pretrain.first.settings]]
model = "ViTB16"

[[pretrain.first.settings]]
source = "a paper"
epochs = 3
clip = 1

[[pretrain.first.settings]]
unconfirmed = "a guess"
rho = "None"
model_options = ["pool=average"]

[pretrain.second]
extends = "first"

[[pretrain.second.settings]]
source = "another"
epochs = 4

[pretrain.second.results]
"Table 1" = [["ViT-B/16", "", "80.0"]]
"""


def read_text(folder, text):
    path = folder / "paper.toml"
    path.write_text(text, encoding="utf-8")
    return read(path)[0]


def test_a_file_is_read(tmp_path):
    first, second = read_text(tmp_path, CORRECT).values()
    settings = {"model": "ViTB16", "epochs": 3, "clip": 1}
    settings |= {"rho": None, "model_options": ("pool=average",)}
    assert first.settings == settings
    assert first.origins["epochs"] == ("a paper", "")
    assert first.origins["rho"] == ("", "a guess")
    assert second.settings == {**settings, "epochs": 4}
    assert second.origins == {**first.origins, "epochs": ("another", "")}
    assert second.hardware == "8 GPUs"
    assert [row.value for row in second.results] == ["80.0"] and not first.results
    config = second.configuration(pretrain.Config)
    assert (config.epochs, config.rho) == (4, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("= 3", "= ", "paper.toml must be TOML"),
        ("pretrain.", "train.", r"paper.toml must have .*Received: \[train\]"),
        ("hardware", "hardwear", r"paper.toml, \[pretrain.first\]: .*hardwear"),
        ("hardware", "differs", "must state the `hardware`"),
        ('source = "a paper"', "", "`epochs` must have a source"),
        ("clip", "model", "`model` must be stated once"),
        (
            "[[pretrain.second.settings]]",
            "[pretrain.second.settings]",
            r"\[\[…settings",
        ),
        ('"first"', '"frist"', r"\[pretrain.second\]: `extends` must be a preset"),
        (', "80.0"]', "]", "a row must be 3 or 4 texts"),
        ("80.0", '", 80.0, "', "a row must be 3 or 4 texts"),
    ],
)
def test_a_wrong_file_is_an_error(old, new, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_text(tmp_path, CORRECT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs", "epoch", "pretrain.py has no setting `epoch`"),
        ("= 3", "= 3.0", "`epochs` must be of type .*Received: 3.0"),
        ("= 3", '= "3"', "`epochs` must be of type .*Received: '3'"),
        ("clip = 1", "clip = true", "`clip` must be of type .*Received: True"),
        ('["pool=average"]', '"pool=average"', "`model_options` must be of type"),
        ('["pool=average"]', "[1]", "`model_options` must be of type"),
        ("clip = 1", 'schedule = "cosin"', "`schedule` must be of type .*cosine"),
    ],
)
def test_a_wrong_setting_is_an_error(old, new, message, tmp_path):
    preset = read_text(tmp_path, CORRECT.replace(old, new))["first"]
    with pytest.raises(ValueError, match=message):
        preset.configuration(pretrain.Config)


def test_models_of_the_page_are_in_the_package():
    named = {m for c in COMMANDS for m in re.findall(r"--model (\w+)", c)}
    named |= {preset.settings["model"] for preset in page.PRESETS.values()}
    assert named <= {*kerasvit.list_models(), "None"}  # None: that of the folder


# The published settings, from the sources: optimizer, learning rate, decay as a share
# of the learning rate, batch, epochs with the warm-up, steps of the warm-up, and what
# differs from the defaults in the list below.
DEFAULTS = {
    "schedule": "cosine",
    "final_rate": 0.0,
    "warmup_from": 0.0,
    "decay_at": None,
    "clip": 1.0,
    "decayed": "kernels",
    "dropout": 0.0,
    "stochastic_depth": 0.0,
    "label_smoothing": 0.0,
    "augment": "photo",
    "loss": "softmax",
    "rho": 0.0,
    "method": "sam",
    "model_options": None,
    "teacher": None,
}
VIT = "adamw", 3e-3, 0.3, 4096, 300, 10_000
OF_VIT = {"loss": "sigmoid", "dropout": 0.1}
MIXER = "adamw", 3e-3, 0.3, 4096, 300, 10_000
OF_MIXER = {"loss": "sigmoid", "stochastic_depth": 0.1, "schedule": "linear"}
RESNET = "sgd", 1.6, 1e-3, 4096, 90, 5_000
AUG = {"augment": "photo_mixed"}
AUGREG = "adamw", 1e-3, 0.1, 4096, 300, 10_000
SMOOTH = {"label_smoothing": 0.1}
DEIT = "adamw", 1e-3, 0.05, 1024, 300, round(5 * 1_281_167 * 0.98 / 1024)
OF_DEIT = {
    **SMOOTH,
    "final_rate": 0.01,
    "warmup_from": 1e-3,
    "augment": "deit",
    "clip": 0.0,
    "stochastic_depth": 0.1,
}
SWIN = "adamw", 1e-3, 0.05, 1024, 300, round(20 * 1_281_167 * 0.98 / 1024)
OF_SWIN = {**OF_DEIT, "augment": "swin", "clip": 5.0}
WEAK = {"schedule": "steps", "decayed": "all", "clip": 0.0}
STRONG = {**SMOOTH, "decayed": "all", "stochastic_depth": 0.1}
PUBLISHED = {
    "vit": (VIT, OF_VIT),
    "vit_sam": (VIT, {**OF_VIT, "rho": 0.2}),
    "vit_aug": (VIT, {**OF_VIT, **AUG}),
    "vit_sam_aug": (VIT, {**OF_VIT, **AUG, "rho": 0.2}),
    "mixer_vanilla": (MIXER, OF_MIXER),
    "mixer_sam": (MIXER, {**OF_MIXER, "rho": 0.6}),
    "mixer_aug": (MIXER, {**OF_MIXER, **AUG}),
    "mixer_sam_aug": (MIXER, {**OF_MIXER, **AUG, "rho": 0.6}),
    "resnet": (RESNET, {}),
    "resnet_sam": (RESNET, {"rho": 0.02}),
    "gsam": (
        ("adamw", 3e-3, 1 / 3, 4096, 300, 10_000),
        {"schedule": "linear", "final_rate": 0.01, "loss": "sigmoid", "method": "gsam"}
        | {"rho": 0.6, "model_options": ("pool=average",)},
    ),
    "mixer": (("adamw", 1e-3, 0.1, 4096, 300, 10_000), {**OF_MIXER, **AUG}),
    "bit": (("sgd", 1.6, 1e-3, 4096, 90, 1_000), {}),
    "bit_i21k": (("sgd", 0.48, 1e-3, 4096, 90, 5_000), {"loss": "sigmoid"}),
    "vit_i21k": (
        ("adamw", 1e-3, 0.03, 4096, 90, 10_000),
        {"schedule": "linear", "final_rate": 0.01, "loss": "sigmoid", "dropout": 0.1}
        | {"model_options": ("representation_size=768",)},
    ),
    "vit_s16_90": (
        ("adamw", 1e-3, 0.1, 1024, 90, 10_000),
        {
            "augment": "augreg_light2",
            "model_options": (
                *("pool=average", "positions=sincos2d", "representation_size=384"),
            ),
        },
    ),
    "deit": (DEIT, OF_DEIT),
    "deit_distilled": (DEIT, {**OF_DEIT, "teacher": "ConvNeXtSmall"}),
    "swin_t": (SWIN, {**OF_SWIN, "stochastic_depth": 0.2}),
    "swin_s": (SWIN, {**OF_SWIN, "stochastic_depth": 0.3}),
    "swin_b": (SWIN, {**OF_SWIN, "stochastic_depth": 0.5}),
    "alternet_cifar100": (
        ("adamw", 1.25e-4, 0.05, 96, 305, 2_552),
        {**STRONG, "clip": 5.0, "augment": "cifar_mixed"},
    ),
    "alternet_cifar100_general": (
        ("sgd", 0.1, 5e-4, 128, 201, round(49_000 / 128 - 0.5)),
        {**WEAK, "augment": "cifar", "decay_at": (0.3035, 0.6020, 0.8010)},
    ),
    "alternet_imagenet": (
        ("adamw", 1.25e-4, 0.05, 128, 305, round(5 * 1_281_167 * 0.98 / 128)),
        {**STRONG, "clip": 0.0, "augment": "imagenet_vit"},
    ),
    "alternet_imagenet_general": (
        ("sgd", 0.1, 1e-4, 256, 91, round(1_281_167 * 0.98 / 256)),
        {**WEAK, "decay_at": (0.3407, 0.6703, 0.8901)},
    ),
}
# Model, level on ImageNet-1k and on ImageNet-21k, size of a token.
LEVELS = {
    "ti16": ("ViTTi16", "light1", "none", 192),
    "s32": ("ViTS32", "medium1", "none", 384),
    "s16": ("ViTS16", "medium2", "light1", 384),
    "b32": ("ViTB32", "medium2", "light2", 768),
    "b16": ("ViTB16", "medium2", "light2", 768),
    "l16": ("ViTL16", "medium2", "medium2", 1024),
}
for _name, (_, _first, _second, _width) in LEVELS.items():
    for _preset, _level, _option in (
        (f"augreg_{_name}", _first, f"representation_size={_width}"),
        (f"augreg_i21k_{_name}", _second, "pool=average"),
    ):
        _more = {"loss": "sigmoid", "augment": f"augreg_{_level}"}
        PUBLISHED[_preset] = AUGREG, {**_more, "model_options": (_option,)}


@pytest.mark.parametrize("name", PRETRAIN)
def test_presets_are_the_papers(name):
    preset = pretrain.PRESETS[name]
    numbers, more = PUBLISHED[name]
    fields = "optimizer learning_rate weight_decay batch_size epochs warmup_steps"
    assert tuple(getattr(preset, field) for field in fields.split()) == numbers
    expected = {**DEFAULTS, **more}
    found = {field: getattr(preset, field) for field in expected}
    assert {**found, "rho": radius(preset)} == expected


@pytest.mark.parametrize("name", LEVELS)
def test_augreg_has_the_model_of_its_name(name):
    for preset in (f"augreg_{name}", f"augreg_i21k_{name}"):
        assert pretrain.PRESETS[preset].model == LEVELS[name][0]


def test_other_numbers_of_presets():
    gsam = pretrain.PRESETS["gsam"]
    assert (gsam.model, gsam.rho_min, gsam.sam_alpha) == ("ViTB32", 0.1, 0.6)
    distilled = pretrain.PRESETS["deit_distilled"]
    assert (distilled.distill, distilled.alpha) == ("hard", 0.5)
    factors = {"cifar100": 0.2, "imagenet": 0.1}
    for data, factor in factors.items():
        preset = pretrain.PRESETS[f"alternet_{data}_general"]
        assert preset.decay_factor == factor


def test_fine_tuning_of_deit():
    preset = finetune.PRESETS["deit_384"]
    assert (preset.model, preset.image_size) == ("DeiTB16", (384,))
    assert (preset.learning_rate, preset.weight_decay) == (5e-6, 1e-8)
    assert (preset.epochs, preset.batch_size, preset.final_rate) == (30, 512, 1.0)


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
    preset = finetune.PRESETS[name]
    found = preset.steps, preset.warmup_steps, preset.learning_rate
    assert found == FINE_TUNED[name]
    assert (preset.batch_size, preset.optimizer) == (512, "sgd")
    assert (preset.image_size, preset.augment, preset.rho) == ((384,), "photo", 0.0)
