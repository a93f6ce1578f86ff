"""The study of `python -m recipes.benchmarks.study claim`, with tiny trainings."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pretrain
import pytest
from command import command_line
from PIL import Image
from scipy import stats
from training import stages

import kerasvit
from kerasvit import data
from recipes.benchmarks.study import claim, settings
from tests.once import on_last_backend

pytestmark = on_last_backend

SMALLEST = {
    "small_vit": {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8},
    "small_mixer": {
        "width": 8,
        "depth": 1,
        "tokens_mlp_dim": 4,
        "channels_mlp_dim": 8,
    },
}


@pytest.fixture
def study(images, monkeypatch, tmp_path):
    """Two shares of 14 images, two radii and two seeds: 24 trainings of 2 steps."""
    monkeypatch.chdir(tmp_path)
    for name, numbers in SMALLEST.items():
        row = pretrain.SMALL[name]
        numbers = {**row.numbers, **numbers, "image_size": 28}
        tiny = kerasvit.Variant(name, row.builder, **numbers)
        monkeypatch.setitem(pretrain.SMALL, name, tiny)
        preset = dataclasses.replace(
            pretrain.PRESETS[f"study_{name[6:]}"], batch_size=8
        )
        monkeypatch.setitem(claim.PRESETS, f"study_{name[6:]}", preset)
    images("cat", 10)
    return settings.Claim(
        data=str(images("dog", 10)),
        images=12,
        shares=(0.5, 1.0),
        steps=2,
        rhos=(0.05, 0.1),
        seeds=2,
        curved_images=6,
        out="study",
    )


def made(rng, shift, seeds=5):
    """Measurements of pairs of trainings, and SAM's accuracy higher by `shift`."""

    def values(more):
        return [
            {
                "accuracy": 0.8 + more + 0.01 * rng.normal(),
                "loss": 0.1 + 0.01 * rng.normal(),
                "sharpness": 3 + rng.normal(),
            }
            for _ in range(seeds)
        ]

    return {"without SAM": values(0), "with SAM": values(shift)}


def test_the_interval_is_that_of_a_paired_t_test():
    before, after = np.random.default_rng(0).normal(size=(2, 5))
    found = claim.paired_difference(before, after)
    differences = after - before
    mean = differences.sum() / 5
    error = (((differences - mean) ** 2).sum() / 4 / 5) ** 0.5
    half = 2.7764451 * error  # 97.5 % of Student's t with 4 degrees of freedom
    expected = [mean, mean - half, mean + half]
    assert [found[key] for key in ("mean", "low", "high")] == pytest.approx(expected)
    assert found["differences"] == pytest.approx(differences.tolist())
    same = stats.ttest_rel(after, before).confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx((same.low, same.high))


def test_equal_pairs_have_an_interval_without_width():
    found = claim.paired_difference([0.5, 0.6], [0.5, 0.6])
    assert found["low"] == found["mean"] == found["high"] == 0


@pytest.mark.parametrize(
    ("shift", "helps", "sentence"),
    [
        (0.1, "yes", "SAM increases the test accuracy of ViT with 40 images."),
        (0.0, "not shown", "No effect of SAM on the test accuracy is shown for ViT w"),
        (-0.1, "no: worse", "SAM decreases the test accuracy of ViT with 40 images."),
    ],
)
def test_the_page_says_whether_sam_helps(shift, helps, sentence):
    row = claim.compare(made(np.random.default_rng(1), shift))
    assert row["helps"] == helps
    assert sentence in claim.conclusion([{**row, "model": "ViT", "images": 40}])


def test_the_table_states_means_differences_and_intervals():
    values = {
        kind: [{"accuracy": a, "loss": 0.5, "sharpness": 2.0} for a in accuracies]
        for kind, accuracies in (("without SAM", (0.7, 0.8)), ("with SAM", (0.8, 0.9)))
    }
    row = {"model": "Mixer", "images": 1000, "rho": 0.1, **claim.compare(values)}
    text = claim.markdown(
        {
            "rows": [row],
            "settings": {"seeds": 2, "steps": 900},
            "tasks": 4,
            "measured": dict.fromkeys("abc"),
            "images": {"test": 10_000},
            "test": "test",
            "backend": "jax",
            "seconds": 7200,
            "cpu_seconds": 3600,
        }
    )
    assert (
        "| Mixer | 1,000 | 2 | 0.1 | 75.00 ± 7.07 | 85.00 ± 7.07 "
        "| +10.00 [+10.00, +10.00] | yes | 0.5000, 0.5000 | 2.00, 2.00 |"
    ) in text
    assert "**Incomplete: 3 of 4 parts of the study are finished; the table" in text
    assert "2.0 process hours, 1.0 CPU hours, on jax" in text


def test_the_figure_shows_both_models(tmp_path):
    rng = np.random.default_rng(2)
    rows = [
        {"model": model, "images": images, **claim.compare(made(rng, 0.01))}
        for model in claim.MODELS
        for images in (1000, 2500, 5000, 10_000)
    ]
    claim.draw(rows, tmp_path / "claim.png")
    pixels = np.asarray(Image.open(tmp_path / "claim.png"))[..., :3]
    colours = set(map(tuple, pixels.reshape(-1, 3).tolist()))
    assert {(0, 0x72, 0xB2), (0xD5, 0x5E, 0)} <= colours


def test_rho_is_chosen_on_validation_images(study, tmp_path):
    scores = {0.05: (0.8, 0.6), 0.1: (0.8, 0.5)}
    for each in claim.tuned(study, "ViT", 0.5):
        (tmp_path / each.name).mkdir()
        accuracy, loss = scores[each.rho]
        found = {"val_accuracy": accuracy, "val_loss": loss}
        (tmp_path / each.name / "measured.json").write_text(json.dumps(found))
    assert claim.choose_rho(study, "ViT", 0.5, tmp_path) == 0.1
    assert claim.TUNING_SEED not in {
        each.seed for each in claim.trainings(study) if each.kind != "tuning"
    }


def test_the_real_study_trains_on_1000_to_10000_of_54000_images():
    study = settings.Claim()
    assert len({each.name for each in claim.trainings(study)}) == 2 * 4 * (3 + 10)
    labels = np.repeat(np.arange(10), 5_400)
    images = data.TrainingImages(data.IndexedImages(np.zeros(54_000), labels))
    dataset = data.LabelledImages(images, None, None, [str(i) for i in range(10)])
    for each in claim.trainings(study)[-8:]:
        config = claim.config_of(study, each, 0.1, 54_000, Path("out"))
        assert np.prod(stages.rounds_of(config, 54_000)) == 900
        some = dataset.of_share(config.share, config.share_seed).train
        assert np.bincount(some.images.labels).tolist() == [each.share * 1000] * 10


@pytest.mark.slow
def test_pairs_differ_in_rho_only_and_finished_trainings_are_not_repeated(
    study, monkeypatch, capsys
):
    configs, rng = [], np.random.default_rng(0)

    def train(config):
        if len(configs) == 3 and not Path("interrupted").exists():
            Path("interrupted").touch()
            raise KeyboardInterrupt
        configs.append(config)
        history = [{"val_accuracy": rng.random(), "val_loss": rng.random()}]
        return {"accuracy": rng.random(), "history": history}

    monkeypatch.setattr(claim, "measure", lambda *_: {"loss": 0.5, "sharpness": 2.0})
    monkeypatch.setattr(claim, "pretrain", train)
    # It takes most of the time of an invented training, and frees nothing.
    monkeypatch.setattr(claim.keras.utils, "clear_session", lambda: None)
    with pytest.raises(KeyboardInterrupt):
        claim.run(study)
    result = claim.run(study)
    assert len(configs) == len({config.out for config in configs}) == 24
    tuning, rest = configs[:8], configs[8:]
    assert {config.seed for config in tuning} == {claim.TUNING_SEED}
    for plain, sam in zip(rest[::2], rest[1::2], strict=True):
        assert plain.rho == 0 and sam.rho in study.rhos
        changes = {"rho": sam.rho, "out": sam.out}
        assert dataclasses.replace(plain, **changes) == sam
    assert [row["images"] for row in result["rows"]] == [6, 12] * 2
    for row in result["rows"]:
        assert len(row["accuracy"]["differences"]) == 2
    assert json.loads(Path("study/result.json").read_text()) == json.loads(
        json.dumps(result)
    )
    assert Path("study/claim.png").stat().st_size > 10_000
    assert Path("study/claim.md").read_text() == claim.markdown(result)
    printed = capsys.readouterr().out
    assert "24 of 24: " in printed and claim.markdown(result) in printed
    assert "Picture: study/claim.png" in printed
    claim.run(study)
    assert len(configs) == 24
    summarise(study, result)


def summarise(study, result):
    """The page of a study of which two trainings are missing, and of all."""
    summary = dataclasses.replace(study, summary="pages")
    claim.run(summary)
    assert "Incomplete" not in Path("pages/claim.md").read_text()
    assert json.loads(Path("pages/claim.json").read_text())["rows"] == result["rows"]
    for each in claim.trainings(study)[-2:]:  # a pair of the second seed
        Path("study", each.name, "measured.json").unlink()
    found = claim.run(summary)
    assert found["rows"] == result["rows"][:3]  # an interval needs two pairs
    text = Path("pages/claim.md").read_text()
    assert "**Incomplete: 22 of 24 parts of the study are finished; the" in text
    assert "decides nothing yet" in text and "SAM on the test" not in text
    assert Path("pages/claim.png").stat().st_size > 10_000
    for each in claim.trainings(study)[8:]:
        Path("study", each.name, "measured.json").unlink(missing_ok=True)
    with pytest.raises(command_line.BadInput, match="two pairs of trainings"):
        claim.run(summary)


@pytest.mark.slow
def test_a_training_is_measured(study):
    each = claim.Training("Mixer", 1.0, "without SAM", 0)
    found = claim.train(study, each, 14, Path())
    result = json.loads(Path(each.name, "result.json").read_text())
    trained = result
    assert found["accuracy"] == trained["accuracy"] and found["rho"] == 0
    assert len(trained["history"]) == 1 and np.isfinite(found["sharpness"])
    assert result["images"] == {"train": 12, "validation": 2, "test": 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--seeds 1", "`seeds` must be at least 2, for an interval. Received: 1."),
        ("--shares 0.5 0.5", "`shares` must be different numbers.* 0.5, 0.5"),
        ("--shares 0 1", "`shares` must be at least 1e-12 and at most 1"),
        ("--rhos 0", "`rhos` must be at least 1e-12"),
        ("--dataset cifra10", "there is no 'cifra10'. Close: cifar10"),
    ],
)
def test_bad_input_of_the_claim(arguments, message):
    with pytest.raises(command_line.BadInput, match=message):
        settings.read(["claim", *arguments.split()])


def test_a_share_that_leaves_a_class_empty_costs_no_training(study):
    small = dataclasses.replace(study, shares=(0.01, 1.0))
    with pytest.raises(command_line.BadInput, match="no image of the class 'cat'"):
        claim.run(small)
    assert not Path("study").exists()
