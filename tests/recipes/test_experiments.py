"""`reproduce.py`: verdicts, shared trainings, pages, experiments with tiny models."""

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pretrain
import pytest
import reproduce
from command import command_line
from experiments import (
    catalogue,
    laboratory,
    measures,
    page,
    settings,
    tasks,
    trainings,
)
from experiments.experiment import (
    AGREES,
    DISAGREES,
    NOT_MEASURED,
    UNDECIDED,
    Claim,
    Number,
    verdict,
)
from filelock import FileLock
from PIL import Image
from scipy import stats

import kerasvit
from tests.once import long_elsewhere, on_last_backend

FOLDER = Path(catalogue.__file__).parent
TWIN = {"widths": [4, 8, 8], "stem_width": 4}
SMALLEST = {
    "small_vit": {"width": 8, "depth": 2, "num_heads": 2, "mlp_dim": 8},
    "small_mixer": {"width": 8, "depth": 2, "tokens_mlp_dim": 4}
    | {"channels_mlp_dim": 8},
    "small_bit": {"depths": [1]},
    "small_ablation": {"width": 8, "depth": 2, "num_heads": 2, "mlp_dim": 8},
    "small_alternet": {**TWIN, "num_heads": [1, 2, 2], "head_width": 4},
    "small_preact": TWIN,
    "small_hybrid": {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8},
    "small_pit": {"width": 8, "depths": [1, 1], "num_heads": [1, 2]},
    "small_resnext": {"depths": [1], "width": 8, "groups": 2, "group_width": 2},
    "small_swin": {"patch_size": 2, "width": 8, "depths": [1, 1], "num_heads": [1, 2]},
}


@pytest.fixture
def tiny(images, monkeypatch, tmp_path, tmp_path_factory):
    """Settings of experiments with the smallest models, one seed and 20 steps."""
    monkeypatch.chdir(tmp_path)
    for name, numbers in SMALLEST.items():
        row = pretrain.SMALL[name]
        numbers = {**row.numbers, **numbers, "image_size": 28}
        tiny = kerasvit.Variant(name, row.builder, **numbers)
        monkeypatch.setitem(pretrain.SMALL, name, tiny)
    for name, config in trainings.SMALL.items():
        small = dataclasses.replace(config, batch_size=5)
        monkeypatch.setitem(trainings.SMALL, name, small)
    data = str([images(kind, 20) for kind in ("ant", "bat", "cat", "dog")][0])
    return settings.Settings("chen2021-figure3", data=data, steps=20, seeds=1)


@on_last_backend
@pytest.mark.parametrize(
    ("differences", "sign", "word"),
    [
        ((1.0, 1.2, 0.9), 1, AGREES),
        ((1.0, 1.2, 0.9), -1, DISAGREES),
        ((-1.0, -1.2, -0.9), -1, AGREES),
        ((-1.0, 1.2, 0.9), 1, UNDECIDED),
        ((1.0,), 1, UNDECIDED),
        ((1.0, math.inf), 1, UNDECIDED),
        ((0.0, 0.0), 1, UNDECIDED),
        ((1.0, 1.0), 1, AGREES),
    ],
)
def test_a_verdict_is_that_of_the_interval(differences, sign, word):
    assert verdict(differences, sign).word == word


@on_last_backend
def test_the_interval_is_students():
    values = np.random.default_rng(0).normal(size=5)
    found = verdict(values, 1)
    same = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((same.low, same.high))


@on_last_backend
@pytest.mark.parametrize(("value", "word"), [(9.4, AGREES), (9.6, DISAGREES)])
def test_a_number_without_chance_has_a_tolerance(value, word):
    number = Number("heads", 9, 0.5, "theorem 1", lambda seed: seed["K"]["heads"])
    seeds = [{"K": {"heads": 9.0}}, {"K": {"heads": value}}]
    assert number.judged(seeds)["word"] == word


@on_last_backend
def test_a_number_that_is_not_finite_does_not_agree():
    number = Number("error", 0.0, 1e-5, "theorem 1", lambda seed: seed["K"]["error"])
    found = number.judged([{"K": {"error": 0.0}}, {"K": {"error": math.nan}}])
    assert (found["word"], found["here"]) == (DISAGREES, "nan")
    assert found["values"] == [0.0, None]


@on_last_backend
@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [(100.0, 1.0, 2.0), (1.0, 0.0, None), (math.inf, 1.0, None), (None, 1.0, None)],
)
def test_a_ratio_of_numbers_that_are_missing_is_not_measured(above, below, expected):
    seed = {"a": {"loss": above}, "b": {"loss": below}}
    found = measures.log_ratio("loss", "a", "b")(seed)
    assert math.isnan(found) if expected is None else found == expected
    claim = Claim("loss", 1, "figure 1", measures.log_ratio("loss", "a", "b"))
    judged = claim.judged([seed, seed])
    assert (judged["word"] == NOT_MEASURED) == (expected is None)


@on_last_backend
def test_points_of_subjects_that_are_not_there():
    difference = measures.points("accuracy", "taught", "plain")
    assert math.isnan(difference({"plain": {"accuracy": 0.5}}))
    seed = {"plain": {"accuracy": 0.5}, "taught": {"accuracy": 0.75}}
    assert difference(seed) == 25


@on_last_backend
def test_a_claim_shows_its_interval():
    claim = Claim("gain", 1, "+5", lambda seed: seed["ViT"]["gain"])
    found = claim.judged([{"ViT": {"gain": x}} for x in (1.0, 2.0, 3.0)])
    assert (found["here"], found["word"]) == ("2 [-0.484, 4.48]", UNDECIDED)


@on_last_backend
def test_list_agrees_with_the_page():
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| ([\w-]+) \| (?!item)", table, re.M) == list(
        catalogue.titles()
    )
    command = [sys.executable, str(FOLDER.parent / "reproduce.py"), "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(
        catalogue.titles()
    )


@on_last_backend
@pytest.mark.parametrize("name", catalogue.titles())
def test_an_experiment_is_a_page(name):
    path = FOLDER / f"{name.replace('-', '_')}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 150
    experiment = catalogue.load(settings.Settings(name))
    assert 1 <= len(experiment.claims) <= 5
    paper = experiment.subjects(settings.Settings(name, full=True))
    assert all(c is None or not c.model.startswith("small") for c in paper.values())


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["chen2021-table"], "Close: chen2021-table"),
        (["chen2021-table1", "--yes"], "`yes` confirms --full"),
        (["chen2021-table1", "--full", "--jobs", "2"], "takes the whole device"),
        (["chen2021-table1", "--sizes", "R50"], "not an option of chen2021-table1"),
        (["chen2021-table2", "--sizes", "R5"], "ResNet"),
        (["chen2021-table1", "--data", "nowhere"], "there is no folder nowhere"),
        (["chen2021-table1", "--seeds", "0"], "`seeds` must be at least 1"),
        (["chen2021-table1", "--jobs", "0"], "`jobs` must be at least 1"),
        (["chen2021-table4", "--shares", "0"], "`shares` must be in (0, 1]"),
        (["chen2021-table4", "--shares"], "`shares`: give one or more"),
        (["list", "--seeds", "1"], "`list` takes no options"),
        (["chen2021-table1", "--full"], "this device is a processor"),
        (["chen2021-table1", "--out", "file"], "file is a file. Give a folder"),
        (["dosovitskiy2021-figure4", "--data", "two"], "needs four classes or more"),
        (
            ["chen2021-table1", "--data", "two"],
            "with batches of 100 images, and has 28",
        ),
        (
            ["dosovitskiy2021-figure4", "--data", "four", "--shares", "1"],
            "Each class must have 5 images",
        ),
    ],
)
def test_a_wrong_command_gets_a_sentence(
    options, message, monkeypatch, tmp_path, images
):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    two = [images(f"../two/{kind}", 20) for kind in ("cat", "dog")][0]
    assert two.parent / "two" == Path("two").resolve()
    for kind, count in {"ant": 20, "bat": 20, "cat": 20, "dog": 5}.items():
        images(f"../four/{kind}", count)
    with pytest.raises(command_line.BadInput, match=re.escape(message)):
        reproduce.reproduce(reproduce.parse(options))


QUICK = ("cordonnier2020", "dosovitskiy2021-figure7")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=long_elsewhere if name in QUICK else pytest.mark.long)
        for name in catalogue.titles()
    ],
)
def test_each_experiment_runs_at_its_smallest(name, tiny, tmp_path_factory):
    out = tmp_path_factory.getbasetemp() / f"experiments-{os.getpid()}"
    found = reproduce.reproduce(dataclasses.replace(tiny, name=name, out=str(out)))
    assert found["claims"]
    with Image.open(out / "results" / f"{name}.png") as picture:
        assert len(np.unique(np.asarray(picture))) > 10
    text = (out / "results" / f"{name}.md").read_text(encoding="utf-8")
    assert f"]({name}.png)" in text and "## In the paper" in text
    assert f"[{name}]({name}.md)" in (out / "results" / "README.md").read_text()
    json.loads((out / "results" / f"{name}.json").read_text())


@on_last_backend
def test_a_task_is_done_once_and_after_those_that_it_needs(tmp_path):
    order = []
    names = {"c": ("a", "b"), "a": (), "b": ("a",)}
    todo = {
        name: tasks.Task(lambda name=name: order.append(name) or {}, needs)
        for name, needs in names.items()
    }
    tasks.work(todo, tmp_path)
    tasks.work(todo, tmp_path)
    assert order == ["a", "b", "c"]
    kept = {"seconds", "cpu_seconds", "date", "machine"}
    assert tasks.result_of(tmp_path, "a").keys() == kept


@on_last_backend
def test_a_task_of_another_process_is_left_to_it(tmp_path, monkeypatch):
    (tmp_path / "locks").mkdir()
    lock, order = FileLock(tmp_path / "locks" / "a"), []
    lock.acquire()
    monkeypatch.setattr(tasks.time, "sleep", lambda seconds: lock.release())
    todo = {name: tasks.Task(lambda n=name: order.append(n) or {}) for name in "ab"}
    tasks.work(todo, tmp_path)
    assert order == ["b", "a"]


@pytest.mark.long
def test_trainings_are_shared_and_never_repeated(tiny, monkeypatch):
    reproduce.reproduce(tiny)
    folders = sorted(Path(tiny.out, "trainings").iterdir())
    monkeypatch.setattr(trainings.pretrain, "pretrain", None)
    reproduce.reproduce(tiny)
    other = dataclasses.replace(tiny, name="chen2021-figure2")
    with pytest.raises(TypeError):  # the Mixer's training
        reproduce.reproduce(other)
    assert len(folders) == 2
    vits = [name for name in map(str, folders) if "small_vit" in name]
    todo = laboratory.tasks_of(
        catalogue.load(other),
        catalogue.load(other).subjects(other),
        other,
        Path(other.out),
    )
    needed = {f"{other.out}/{name}" for name in todo if name.startswith("trainings/")}
    assert set(vits) < needed


@pytest.mark.long
def test_a_seed_whose_training_diverges_is_left_out(tiny, monkeypatch, capsys):
    real = trainings.pretrain.pretrain

    def diverging(config):
        if config.seed == 0:
            raise trainings.NotFinite("The loss became infinite.")
        return real(config)

    monkeypatch.setattr(trainings.pretrain, "pretrain", diverging)
    found = reproduce.reproduce(
        dataclasses.replace(tiny, name="dosovitskiy2021-figure6", seeds=2)
    )
    assert [len(rows) for rows in found["results"].values()] == [1]
    assert "ViT, seed 0: the training diverged" in capsys.readouterr().out
    monkeypatch.setattr(trainings.pretrain, "pretrain", None)
    with pytest.raises(command_line.BadInput, match="A training of each seed diverged"):
        reproduce.reproduce(dataclasses.replace(tiny, name="dosovitskiy2021-figure6"))


@on_last_backend
def test_the_name_of_a_training_depends_on_data_model_and_teacher(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    config = dataclasses.replace(pretrain.PRESETS["study_vit"], data="photos")
    name = trainings.name_of(config)
    assert name == trainings.name_of(dataclasses.replace(config, data="./photos"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir("other")
    assert trainings.name_of(config) != name
    taught = [
        dataclasses.replace(config, teacher=f"hf://{each}/b")
        for each in ("resnet", "convnext")
    ]
    assert trainings.name_of(taught[0]) != trainings.name_of(taught[1])
    before = trainings.name_of(config)
    row = pretrain.SMALL["small_vit"]
    numbers = {**row.numbers, "width": 2 * row.numbers["width"]}
    wider = kerasvit.Variant("small_vit", row.builder, **numbers)
    monkeypatch.setitem(pretrain.SMALL, "small_vit", wider)
    assert trainings.name_of(config) != before


@on_last_backend
def test_another_code_measures_again(monkeypatch, tiny):
    def name():
        return laboratory.measurement("ViT", 0, None, tiny)

    before = name()
    assert name() == before
    code = catalogue.code(tiny.name)
    assert "EXPERIMENT = " in code and "def kappa" in code
    monkeypatch.setattr(catalogue, "code", lambda name: code + "COUNT = 2")
    assert name() != before


@on_last_backend
def test_a_model_trained_with_sigmoids_is_measured_with_them():
    config = pretrain.PRESETS["study_vit"]
    logits = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    y = np.array([0, 3, 2, 2, 1, 0])
    found = {}
    for loss in ("softmax", "sigmoid"):
        chosen = dataclasses.replace(config, loss=loss)
        subject = trainings.Subject("ViT", 0, None, chosen, {})
        found[loss] = float(subject.loss()(y, logits))
    own = logits[np.arange(6), y]
    assert found["softmax"] == pytest.approx(
        np.mean(np.log(np.exp(logits).sum(-1)) - own), rel=1e-5
    )
    each = np.log1p(np.exp(logits)).sum(-1) - own
    assert found["sigmoid"] == pytest.approx(each.mean(), rel=1e-5)


@pytest.mark.long
@on_last_backend
def test_two_jobs_share_the_work(images, tmp_path):
    data = [images(kind, 80) for kind in ("ant", "bat")][0]
    command = [sys.executable, str(FOLDER.parent / "reproduce.py")]
    options = ["dosovitskiy2021-figure6", "--data", str(data), "--steps", "5"]
    done = subprocess.run(
        [*command, *options, "--seeds", "4", "--jobs", "2", "--out", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "![results](dosovitskiy2021-figure6.png)" in done.stdout
    assert len(list((tmp_path / "out/trainings").iterdir())) == 4
    found = json.loads(
        (tmp_path / "out/results/dosovitskiy2021-figure6.json").read_text()
    )
    assert [len(rows) for rows in found["results"].values()] == [4]
    numbers = re.findall(r"^(\d) of 8: ", done.stdout, re.M)
    assert len(set(numbers)) == len(numbers) < 8  # the other process did some


@on_last_backend
def test_full_says_how_long_it_takes(tiny, monkeypatch, capsys):
    monkeypatch.setattr(trainings, "seconds_per_step", lambda config: (0.5, 86_400))
    monkeypatch.setattr(laboratory.device_name, "accelerator", lambda: "a device")
    monkeypatch.setattr(laboratory, "check", lambda *_: None)
    full = dataclasses.replace(tiny, full=True, seeds=2)
    assert reproduce.reproduce(full) is None
    assert "All trainings: about 2 days" in capsys.readouterr().out
    assert not Path(full.out).exists()


@on_last_backend
def test_the_command_of_a_page_repeats_it(tiny):
    changes = {"seeds": 4, "shares": (0.5, 1.0), "out": "elsewhere", "jobs": 2}
    changed = dataclasses.replace(tiny, data="my photos", **changes)
    assert page.command(changed) == (
        "python recipes/reproduce.py chen2021-figure3 --data 'my photos' --steps 20 "
        "--seeds 4 --shares 0.5 1.0"
    )
