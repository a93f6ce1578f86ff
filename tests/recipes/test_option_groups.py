import dataclasses
import importlib
import re

import pytest
from command import command_line, options

from tests.once import on_last_backend

pytestmark = on_last_backend

SCRIPTS = "finetune", "pretrain", "evaluate", "export", "inspection", "segmentation"


def config_of(script):
    return importlib.import_module(script).Config


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_group_is_small_and_each_option_is_described(script):
    kind = config_of(script)
    fields = {field.name for field in dataclasses.fields(kind)}
    for group in kind.__mro__[1:-1]:
        assert len(vars(group).get("__annotations__", ())) <= 12, group
    undescribed = {"steps", "batch_size", "seed", "weight_decay", "optimizer"}
    texts = {name for name, text in options.descriptions(kind).items() if text}
    assert fields - texts <= undescribed


def test_the_descriptions_are_the_texts_of_the_fields():
    found = options.descriptions(config_of("finetune"))
    assert found["dataset"] == "of names.BUILT_IN, or of tensorflow-datasets"  # beside
    assert found["probe_epochs"] == (  # above
        "first the head alone, for so many passes through the images, then all weights"
    )
    below = options.descriptions(config_of("export"))["out"]
    assert below == "Folder of the export; None: exported/MODEL-FORMAT."


def help_of(script, capsys, monkeypatch, *arguments):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as done:
        importlib.import_module(script).parse([*arguments, "--help"])
    assert not done.value.code
    return capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_help_has_groups_with_the_main_options_first(script, capsys, monkeypatch):
    printed = help_of(script, capsys, monkeypatch)
    titles = re.findall(r"^\W*((?:\w+ )?options)\W*$", printed, re.MULTILINE)
    assert titles[:2] == ["options", "main options"]
    assert "[bold]" not in printed
    of_options = printed[printed.index("main options") :].splitlines()
    assert max(map(len, of_options)) <= 80


def test_the_help_of_a_preset_has_its_defaults(capsys, monkeypatch):
    from finetune import PRESETS

    printed = help_of("finetune", capsys, monkeypatch, "pets")
    assert f"(default: {PRESETS['pets'].dataset})" in " ".join(printed.split())


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["", "1 2 3"])
@pytest.mark.parametrize("option", ["--image-size", "--then-size"])
def test_a_size_has_one_or_two_sides(option, sizes):
    from finetune import parse

    config = parse([option, *sizes.split()])
    with pytest.raises(ValueError, match="give one side, or height and width"):
        command_line.check(config)
