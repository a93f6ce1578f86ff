"""The study of `python -m recipes.benchmarks.study optimizers`, with tiny trainings."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pretrain
import pytest
from command import command_line
from PIL import Image
from training import stages

import kerasvit
from recipes.benchmarks.study import optimizers, settings
from tests.once import on_last_backend

pytestmark = on_last_backend

SMALLEST = {
    "small_vit": {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8},
    "small_bit": {"depths": [1]},
}


@pytest.fixture
def study(images, monkeypatch, tmp_path):
    """One SGD rate, two of AdamW and two seeds: 18 trainings of 2 steps."""
    monkeypatch.chdir(tmp_path)
    for name, numbers in SMALLEST.items():
        row = pretrain.SMALL[name]
        tiny = kerasvit.Variant(name, row.builder, **{**row.numbers, **numbers})
        monkeypatch.setitem(pretrain.SMALL, name, tiny)
        preset = f"study_{name[6:]}"
        small = dataclasses.replace(pretrain.PRESETS[preset], batch_size=8)
        monkeypatch.setitem(optimizers.PRESETS, preset, small)
    images("cat", 10)
    return settings.Optimizers(
        data=str(images("dog", 10)),
        steps=2,
        sgd_rates=(0.1,),
        adamw_rates=(1e-3, 1e-2),
        seeds=2,
        out="study",
    )


def measured(rng, accuracy=0.9, losses=(1.2, 0.4, 0.2)):
    """Measurements of a training, with a loss of every 10 steps."""
    return {
        "accuracy": accuracy + 0.01 * rng.normal(),
        "val_accuracy": accuracy,
        "val_loss": 0.3,
        "losses": list(losses),
        "steps_between_losses": 10,
    }


def invented(study):
    """{name of a task: measurements} of all tasks of a study."""
    rng = np.random.default_rng(0)
    trained = optimizers.trainings(study)
    found = {each.name: measured(rng, 0.9 + each.rate) for each in trained}
    return found | {
        each.timing: {"cpu_ms_per_step": 50.0} for each in optimizers.firsts(study)
    }


def result_of(study, found, tasks=24):
    """The content of result.json."""
    return {
        "settings": dataclasses.asdict(study),
        "images": {"train": 1000, "validation": 500, "test": 3500},
        "test": "test",
        "backend": "jax",
        "tasks": tasks,
        "measured": found,
        "seconds": 7200,
        "cpu_seconds": 3600,
        "rows": optimizers.rows_of(study, found),
    }


def test_the_trainings_differ_in_optimizer_rate_and_rho_only():
    study = settings.Optimizers()
    each = optimizers.trainings(study)
    assert len({one.name for one in each}) == len(each) == 2 * 3 * 3 * 3
    for one in each:
        config = optimizers.config_of(study, one, Path("out"))
        same = {"model": config.model, "out": config.out, "seed": one.seed}
        same |= {"optimizer": {"SGD": "sgd"}.get(one.optimizer, "adamw")}
        same |= {"learning_rate": one.rate, "rho": 0.1 * (one.kind == "SAM")}
        first = optimizers.config_of(study, each[0], Path("out"))
        same["weight_decay"] = {"sgd": 0.01, "adamw": 0.1}[same["optimizer"]]
        assert dataclasses.replace(first, **same) == config
        assert np.prod(stages.rounds_of(config, 1000)) == study.steps
    bases = {(one.model, one.optimizer) for one in each if one.kind == "SAM"}
    assert bases == {("ViT", "AdamW"), ("BiT", "SGD")}


def test_steps_until_the_loss_is_below_a_limit():
    assert optimizers.steps_until([2.0, 0.5, 0.4, 0.6], 0.5, 10) == 30
    assert optimizers.steps_until([2.0, 0.5], 0.5, 10) is None


def test_the_rate_is_chosen_on_validation_images(study):
    found = invented(study)
    for name in found:  # the test images say the opposite
        if "accuracy" in found[name]:
            found[name]["accuracy"] = -found[name]["val_accuracy"]
    rows = optimizers.rows_of(study, found)
    assert [row["rate"] for row in rows if row["chosen"]] == [
        *(0.1, 1e-2, 1e-2),
        *(0.1, 1e-2, 0.1),
    ]


def test_the_table_states_speed_and_accuracy(study):
    found = invented(study)
    slow = optimizers.Training("ViT", "AdamW", 1e-3, 0).name
    found[slow] |= {"losses": [2.0, 1.0, 0.9]}
    values = {"accuracy": 0.7}, {"accuracy": 0.8}
    for seed in range(2):
        found[f"BiT_SGD_0.1_seed_{seed}"] |= values[seed]
    text = optimizers.markdown(result_of(study, found))
    assert "| steps until training loss < 0.5 |" in text
    assert "| ViT | AdamW | 0.001 | 2 | 1 of 2 seeds | – | 50 | 0.5500" in text
    assert (
        "| **BiT** | **SGD** | **0.1** | **2** | **20** | **1.0** | **50** | "
        "**0.2000 ± 0.0000** | **100.00 ± 0.00** | **75.00 ± 7.07** |"
    ) in text
    assert "| **SAM (SGD)** |" in text and "| **SAM (AdamW)** |" in text
    assert "Incomplete" not in text
    assert "may be better, for ViT with SGD (0.1), ViT with AdamW (0.01)" in text


def test_an_incomplete_study_says_so(study, tmp_path):
    found = invented(study)
    del found["ViT_SGD_time"]
    kept = {name: each for name, each in found.items() if "BiT_SAM_0" not in name}
    result = result_of(study, kept)
    assert len(result["rows"]) == 8
    text = optimizers.markdown(result)
    assert "**Incomplete: 21 of 24 parts of the study are finished; the" in text
    optimizers.draw(result, tmp_path / "some.png")


def test_a_chosen_rate_between_others_is_not_at_the_edge():
    row = {"model": "ViT", "kind": "SGD"}
    rates = (0.1, 0.2, 0.3)
    rows = [{**row, "rate": rate, "chosen": rate == 0.2} for rate in rates]
    assert optimizers.at_the_edge(rows) == []


def test_the_figure_shows_all_optimizers(study, tmp_path):
    optimizers.draw(result_of(study, invented(study)), tmp_path / "optimizers.png")
    pixels = np.asarray(Image.open(tmp_path / "optimizers.png"))[..., :3]
    colours = set(map(tuple, pixels.reshape(-1, 3).tolist()))
    assert {(0, 0x72, 0xB2), (0xD5, 0x5E, 0), (0, 0x9E, 0x73)} <= colours


@pytest.mark.slow
def test_finished_trainings_are_not_repeated(study, monkeypatch):
    configs = []

    def train(config):
        if len(configs) == 3 and not Path("interrupted").exists():
            Path("interrupted").touch()
            raise KeyboardInterrupt
        configs.append(config)
        history = [{"val_accuracy": 0.5, "val_loss": 1.0, "loss": 0.4}]
        found = {"accuracy": 0.5, "history": history}
        return {**found, "steps_between_validations": 2}

    monkeypatch.setattr(optimizers, "time_step", lambda *_: {"cpu_ms_per_step": 1.0})
    monkeypatch.setattr(optimizers.pretrain, "pretrain", train)
    # It takes most of the time of an invented training, and frees nothing.
    monkeypatch.setattr(optimizers.keras.utils, "clear_session", lambda: None)
    with pytest.raises(KeyboardInterrupt):
        optimizers.run(study)
    result = optimizers.run(study)
    assert len(configs) == len({config.out for config in configs}) == 18
    assert len(result["rows"]) == 9
    assert Path("study/optimizers.png").stat().st_size > 10_000
    assert Path("study/optimizers.md").read_text() == optimizers.markdown(result)
    found = optimizers.run(dataclasses.replace(study, summary="pages"))
    assert len(configs) == 18 and found["rows"] == result["rows"]
    saved = json.loads(Path("pages/optimizers.json").read_text())
    assert saved["rows"] == result["rows"] and "folder" not in saved


@pytest.mark.slow
def test_a_training_and_its_steps_are_measured(study, monkeypatch):
    monkeypatch.setattr(optimizers, "TIMED", 2)
    each = optimizers.Training("ViT", "SAM", 0.1, 0)
    found = optimizers.train(study, each, Path())
    assert len(found["losses"]) == 1 and np.isfinite(found["losses"]).all()
    trained = json.loads(Path(each.name, "result.json").read_text())
    assert found["accuracy"] == trained["accuracy"]
    timed = optimizers.time_step(study, each, Path("new"))
    assert timed["cpu_ms_per_step"] > 0 and not Path("new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--sgd-rates 0.1 0.1", "`sgd_rates` must be different numbers.* 0.1, 0.1"),
        ("--adamw-rates 0", "`adamw_rates` must be at least 1e-12"),
        ("--rho 0", "`rho` must be above 0, for SAM. Received: 0."),
        ("--threshold 0", "`threshold` must be at least 1e-12"),
        ("--dataset cifra10", "there is no 'cifra10'. Close: cifar10"),
    ],
)
def test_bad_input_of_the_optimizer_study(arguments, message):
    with pytest.raises(command_line.BadInput, match=message):
        settings.read(["optimizers", *arguments.split()])
