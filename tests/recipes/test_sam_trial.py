"""`--method auto`: a trial decides whether `finetune.py` trains with SAM."""

import dataclasses
import json
from types import SimpleNamespace

import finetune
import pytest
from command import command_line
from command.command_line import BadInput
from devices.devices import ONE, Devices
from training import run_folder, sam_trial

import kerasvit
from kerasvit.fine_tuning import try_sam
from tests.once import long_elsewhere, on_last_backend
from tests.recipes.small_training import interrupted

pytestmark = pytest.mark.slow
NUMBERS = {**finetune.SMALL.numbers, "width": 8, "depth": 1, "mlp_dim": 8}
TINY = kerasvit.Variant("small", kerasvit.VisionTransformer, **NUMBERS)
WHY = "with SAM: SAM gained +3.0 points"


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.setattr(finetune, "SMALL", TINY)
    monkeypatch.chdir(tmp_path)


def config(**changes):
    made = finetune.Config(steps=12, batch_size=64, method="auto", out="run")
    return dataclasses.replace(made, **changes)


@pytest.fixture
def helped(monkeypatch):
    """Trials in which SAM helps; a list of their images and settings."""
    calls = []

    def suggest(model, data, **options):
        calls.append((len(data), options))
        return SimpleNamespace(rho=0.04, reasons={"rho": WHY})

    monkeypatch.setattr(kerasvit, "suggest_training", suggest)
    return calls


@long_elsewhere
def test_a_trial_on_the_images_decides(tmp_path, capsys):
    settings = config(share=0.2, try_minutes=0.05)
    finetune.main(settings)
    printed = capsys.readouterr().out
    result = json.loads((tmp_path / "run/result.json").read_text())
    start = "with SAM: " if result["rho"] else "plain training: "
    assert result["trial"].startswith(start)
    assert "Tries SAM in short trainings on 25" in printed
    assert f"Method: {result['trial']}." in printed
    card = (tmp_path / "run/model/README.md").read_text()
    assert f"| method chosen | {result['trial']} |" in card
    assert "Balanced accuracy: " in card and "| class | images | precision |" in card
    assert not (tmp_path / "run" / run_folder.TRIAL).exists()
    finetune.main(settings)
    assert "run is finished" in capsys.readouterr().out


@pytest.mark.long
def test_a_continued_training_keeps_the_decision(helped, monkeypatch, tmp_path):
    def stop():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kerasvit.Resume, "on_train_batch_begin", interrupted(3, stop))
        with pytest.raises(KeyboardInterrupt):
            finetune.finetune(config(save_minutes=0.0))
    assert (tmp_path / "run" / run_folder.TRIAL).exists()
    assert list((tmp_path / "run/with_SAM").glob("state_*.npz"))
    result = finetune.finetune(config(save_minutes=0.0))
    assert (result["rho"], result["training"]) == (0.04, "with SAM")
    assert result["trial"] == WHY
    [(count, options)] = helped
    assert count == 1259 and options == {
        **{"batch_size": 64, "pretrained": False, "adapters": False},
        "try_sam": 10.0,
    }
    card = (tmp_path / "run/model/README.md").read_text()
    assert "| method | SAM, rho 0.04 |" in card and "try_minutes" not in card


@on_last_backend
def test_with_few_images_training_is_plain(helped, images, tmp_path, capsys):
    images("cat", 20)
    photos = str(images("dog", 20))
    result = finetune.finetune(config(data=photos, batch_size=8, steps=2))
    assert not helped and result["rho"] == 0
    assert "40 training images or more, and here are 28" in result["trial"]
    assert sam_trial.FEWEST == try_sam.FEWEST


@on_last_backend
def test_a_dry_run_measures_sam_and_tries_nothing(helped, tmp_path):
    assert finetune.finetune(config(dry_run=True)) is None
    assert not helped and not (tmp_path / "run").exists()


@on_last_backend
def test_several_processes_are_refused():
    sam_trial.check_processes(config(), ONE)
    sam_trial.check_processes(config(method="sam"), Devices(2, 0, 2))
    with pytest.raises(ValueError, match="auto tries SAM in one process. Received: 2"):
        sam_trial.check_processes(config(), Devices(2, 0, 2))


@on_last_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "auto"], "`compare` trains with SAM and without"),
        (["--no-compare", "--rho", "0"], "`rho`: --method auto tries SAM and plain"),
        (["--no-compare", "--sam-every", "2"], "Leave out --sam-every or the preset"),
        (["--no-compare", "--freeze", "block_0"], "`freeze`: --method auto"),
        (["--no-compare", "--try-minutes", "0"], "`try_minutes` must be at least"),
    ],
)
def test_contradictions_get_a_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        command_line.check(finetune.parse([*options, "--method", "auto"]))


@on_last_backend
def test_the_minutes_are_those_of_the_trial():
    with pytest.raises(ValueError, match="give --method auto with --try-minutes"):
        command_line.check(finetune.parse(["--no-compare", "--try-minutes", "3"]))


@on_last_backend
def test_several_labels_are_not_tried(tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n")
    with pytest.raises(BadInput, match="auto compares accuracies of one label"):
        finetune.run([config(data=str(table), task="multilabel")])
