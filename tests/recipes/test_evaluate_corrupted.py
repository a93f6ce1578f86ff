"""`evaluate.py` on corrupted images: tasks, means, mCE, tables and the picture."""

import csv
import dataclasses
import json

import evaluate
import finetune
import numpy as np
import pytest
from command import command_line
from finetune import PRESETS
from PIL import Image
from scoring import catalogue, corruptions, results, robustness
from scoring.catalogue import CIFAR100
from scoring.corrupted import Plan
from scoring.robustness import Errors
from scoring.settings import Config

import kerasvit
from kerasvit import evaluation
from tests.once import on_last_backend

from .test_evaluate import save, vit

pytestmark = pytest.mark.slow

DIGITS = [str(i) for i in range(10)]


@pytest.mark.long
def test_models_on_corrupted_images(images, tmp_path, monkeypatch, capsys):
    """One of three corruptions fails; then the finished results are read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    images("cat", 6)
    folder = str(images("dog", 5))
    names = ["cat", "dog", "wolf"]
    models = tuple(save(vit(i, 3), name, names) for i, name in enumerate("ab"))
    corrupt = ("contrast", "impulse_noise", "frost")
    config = Config(models, on=(folder,), corrupt=corrupt, batch_size=8)
    found = {(x.model, x.measure): x for x in evaluate.evaluate(config)}
    printed = " ".join(capsys.readouterr().out.split())
    assert "images, corruptions that are left out of the mean: frost: needs " in printed
    assert "mean of 2 of 3 corruptions" in printed

    accuracies = {}
    for name in models:
        model = kerasvit.from_pretrained(name)
        transform = model.preprocessing
        files = sorted((tmp_path / "images").glob("*/*.jpg"))
        for kind in ("contrast", "impulse_noise"):
            right = []
            for severity in catalogue.SEVERITIES:
                pixels = [
                    corruptions.corrupt(
                        transform(path, normalize=False).astype("uint8"),
                        kind,
                        severity,
                        i,
                    )
                    for i, path in enumerate(files)
                ]
                batch = (np.stack(pixels) / 255 - transform.mean) / transform.std
                logits = model.predict(batch.astype("float32"), verbose=0)
                right.append(logits.argmax(1) == [0] * 6 + [1] * 5)
                result = found[name, kind]
                part = f"severity {severity}"
                assert result.right[part].tolist() == right[-1].tolist()
                assert set(result.parts[part].scores) == {"top1", "top5", "nll", "ece"}
                among = logits[:, :2].argmax(1) == [0] * 6 + [1] * 5
                part = f"severity {severity}, restricted"
                assert result.right[part].tolist() == among.tolist()
            accuracies[name, kind] = np.mean(right, axis=1)
    content = json.loads((tmp_path / "scores/corruptions.json").read_text())
    assert [x["classes"] for x in content] == [3, 2, 3, 2]
    stored, _, other, _ = content
    mean = np.mean([accuracies["a", kind] for kind in ("contrast", "impulse_noise")])
    assert stored["mean"][0] == pytest.approx(mean)
    result = found["a", "corrupted, all"]
    [part] = result.parts
    assert part == "corrupted (mean of 2 kinds)"
    assert result.parts[part].scores["top1"].value == pytest.approx(mean)
    assert list(stored["left_out"]) == ["frost"] and stored["mce"] is None
    ratios = [
        (1 - accuracies["b", kind]).mean() / (1 - accuracies["a", kind]).mean()
        for kind in ("contrast", "impulse_noise")
    ]
    assert other["mce"]["reference"] == "a"
    assert other["mce"]["value"] == pytest.approx(np.mean(ratios))

    for name in ("scores.txt", "corruptions.txt", "corruptions.md", "corruptions.tex"):
        assert (tmp_path / "scores" / name).read_text()
    assert (
        "images, corrupted (mean of 2 kinds)"
        in (tmp_path / "scores/scores.txt").read_text()
    )
    rows = [*csv.DictReader((tmp_path / "scores/corruptions.csv").open())]
    top1 = [x for x in rows if x["metric"] == "top1" and x["severity"] != "mean"]
    assert len(top1) == 2 * 2 * 2 * 5  # models, numbers of classes, kinds, severities
    assert float(top1[3]["value"]) == accuracies["a", "contrast"][3]
    with Image.open(tmp_path / "scores/corruptions.png") as picture:
        assert min(picture.size) > 400

    monkeypatch.setattr(
        evaluate.Predictor, "__call__", None
    )  # nothing is computed again
    again = {(x.model, x.measure): x for x in evaluate.evaluate(config)}
    assert {k: x.to_json() for k, x in again.items()} == {
        k: x.to_json() for k, x in found.items()
    }


@on_last_backend
def test_an_interrupted_run_finds_finished_corruptions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(vit(), "model", DIGITS)
    corrupt = ("fog", "contrast", "spatter")
    config = Config(("model",), on=("digits",), corrupt=corrupt, images=9)
    call, computed = evaluate.Predictor.__call__, []

    def until_third(self, model, images, *transform):
        computed.append(getattr(images, "kind", ""))
        if len(computed) == 3:
            raise KeyboardInterrupt
        return call(self, model, images, *transform)

    monkeypatch.setattr(evaluate.Predictor, "__call__", until_third)
    with pytest.raises(KeyboardInterrupt):
        evaluate.evaluate(config)
    found = evaluate.evaluate(config)
    assert computed == ["", "fog", "contrast", "contrast", "spatter"]
    assert [x.measure for x in found][1:4] == ["fog", "contrast", "spatter"]


@on_last_backend
def test_a_folder_like_cifar_100_c(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "CIFAR-100-C"
    root.mkdir()
    np.save(root / "labels.npy", np.tile([3, 50, 7, 99], 5))
    pixels = np.random.default_rng(0).integers(256, size=(20, 16, 16, 3), dtype="uint8")
    np.save(root / "snow.npy", pixels)
    model = vit(classes=100)
    save(model, "model", list(CIFAR100))
    found = evaluate.evaluate(Config(("model",), on=("CIFAR-100-C",)))
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "CIFAR-100-C, corruptions that are left out of the mean: gaussian_noise: "
        in printed
    )
    assert "mean of 1 of 15 corruptions" in printed
    [result, *_] = found
    assert (result.set, result.measure, result.images) == ("CIFAR-100-C", "snow", 4)
    transform = model.preprocessing
    batch = np.stack([transform(each) for each in pixels])
    right = model.predict(batch, verbose=0).argmax(1) == np.tile([3, 50, 7, 99], 5)
    for severity in range(5):
        part = result.right[f"severity {severity + 1}"]
        assert part.tolist() == right.reshape(5, 4)[severity].tolist()


@on_last_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corrupt": ("fogg",)}, "`corrupt`: there is no 'fogg'. Close: fog"),
        (
            {"corrupt": ("frost",)},
            "all corruptions fail for images of 16 × 16.*frost: ",
        ),
        ({"reference": "other"}, "`reference`: give one of the models, model"),
        ({"on": ("c",)}, "by hand: put ILSVRC2012_img_val.tar"),
        ({"on": ("imagenet2012_corrupted/fog_1",)}, "by hand: put ILSVRC2012_img"),
    ],
)
def test_wrong_input(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    save(vit(), "model", DIGITS)
    config = Config(("model",), **{"on": ("digits",), "images": 5, **options})
    with pytest.raises(command_line.BadInput, match=message):
        evaluate.evaluate(config)


@on_last_backend
def test_packages_that_are_missing(monkeypatch, tmp_path):
    model = str(tmp_path)
    monkeypatch.setitem(catalogue.PACKAGES, "no_such_module", "opencv-python-headless")
    with pytest.raises(ValueError, match=r'pip install -e "\.\[evaluate\]"'):
        Config((model,), on=("digits",), corrupt=("fog",)).check()
    Config((model,), on=("digits",)).check()  # they are not needed


def errors(model, *, images=400, seed=0, clean=0.2, **rates):
    """Errors of a model with these rates by kind, on the same images for a seed."""
    random = np.random.default_rng(seed)
    wrong = {k: random.binomial(5, r, size=images) / 5 for k, r in rates.items()}
    return Errors(model, wrong, random.random(images) < clean)


@on_last_backend
def test_corruption_errors_longhand():
    ours = errors("ours", fog=0.4, snow=0.6, saturate=0.5)
    theirs = errors("theirs", seed=1, fog=0.5, snow=0.8, clean=0.1)
    found = robustness.ratio(ours, theirs)
    a, b = ([x.kinds[k].mean() for k in ("fog", "snow")] for x in (ours, theirs))
    assert (found.reference, found.kinds) == ("theirs", 2)
    assert found.value == pytest.approx((a[0] / b[0] + a[1] / b[1]) / 2)
    relative = robustness.ratio(ours, theirs, relative=True)
    clean, reference = ours.clean.mean(), theirs.clean.mean()
    expected = [(x - clean) / (y - reference) for x, y in zip(a, b)]
    assert relative.value == pytest.approx(np.mean(expected))
    for each in (found, relative):
        assert each.interval[0] < each.value < each.interval[1]


@on_last_backend
@on_last_backend
def test_the_interval_of_a_mean_has_a_width_if_all_are_wrong():
    right = [result("ours", "photos", "fog", np.zeros(25, bool), classes=10)]
    plan = Plan([], {("ours", "photos"): {}}, {"photos": "photos"})
    [found] = robustness.summarize(right, plan)
    assert found.mean == (0, *evaluation.binomial_interval(0, 25))


def test_the_interval_of_a_corruption_error_is_of_images():
    ours = errors("ours", images=2_000, fog=0.4, snow=0.6)
    found = robustness.ratio(ours, robustness.alexnet(ours))
    known = evaluation.ALEXNET.errors
    of_image = sum(ours.kinds[kind] / known[kind] for kind in ours.kinds) / 2
    assert found.value == pytest.approx(of_image.mean())
    half = 1.96 * of_image.std() / np.sqrt(2_000)
    ends = [of_image.mean() - half, of_image.mean() + half]
    np.testing.assert_allclose(found.interval, ends, atol=2e-3)


@on_last_backend
def test_corruption_errors_that_are_not_defined():
    ours = errors("ours", fog=0.4)
    assert robustness.ratio(ours, errors("theirs", snow=0.4)) is None
    assert robustness.ratio(ours, errors("theirs", fog=0.0)) is None
    easy = errors("theirs", fog=0.1, clean=0.5)
    assert robustness.ratio(ours, easy)
    assert robustness.ratio(ours, easy, relative=True) is None
    rare = errors("theirs", fog=0.0)
    rare.kinds["fog"][0] = 0.2  # most samples have this image, some do not
    assert robustness.ratio(ours, rare).interval is None


def result(model, name, kind, right, classes=1000):
    """A `Result` with the same right images for each severity."""
    parts = [f"severity {i}" for i in catalogue.SEVERITIES] if kind else ["all"]
    top1 = {"top1": evaluation.Estimate(right.mean(), 0.0, 1.0)}
    return results.Result(
        model=model,
        set=name,
        measure=kind,
        weights="",
        images=len(right),
        left_out=0,
        unmatched=[],
        parts={part: results.Part(classes, top1) for part in parts},
        seconds=1.0,
        settings={"labels": "same"},
        versions={},
        right={part: right for part in parts},
    )


@on_last_backend
@pytest.mark.parametrize(
    ("name", "classes", "reference", "expected"),
    [
        ("imagenet2012", 1000, None, ["AlexNet", "AlexNet"]),
        ("imagenet2012_corrupted", 1000, None, ["AlexNet", "AlexNet"]),
        ("imagenet2012", 1000, "b", ["b", None]),
        ("imagenet2012", 10, None, [None, "a"]),
        ("photos", 1000, None, [None, "a"]),
    ],
)
def test_references(name, classes, reference, expected):
    random = np.random.default_rng(0)
    scored = [
        result(model, each, kind, random.random(200) < share, classes)
        for model in "ab"
        for each, kind, share in (
            *(("imagenet2012", "", 0.8), ("photos", "", 0.8)),
            *((name, "fog", 0.4), (name, "frost", 0.3), (name, "saturate", 0.5)),
        )
    ]
    plan = Plan([], {("a", name): {}, ("b", name): {"snow": "fails"}}, {name: name})
    plan.clean["imagenet2012_corrupted"] = "imagenet2012"
    found = robustness.summarize(scored, plan, reference)
    assert [x.mce and x.mce.reference for x in found] == expected
    assert [x.mean_name for x in found] == [
        "mean of 3 corruptions",
        "mean of 3 of 4 corruptions",
    ]
    for each in found:
        values = [row.value for row in each.means.values()]
        assert each.mean.value == pytest.approx(np.mean(values))
        if each.mce and each.mce.reference == "AlexNet":
            assert each.mce.kinds == each.relative_mce.kinds == 2  # not of saturate
            table = {k: [each.means[k].value] * 5 for k in ("fog", "frost")}
            value = evaluation.mean_corruption_error(table, evaluation.ALEXNET)
            assert each.mce.value == pytest.approx(value)


@pytest.mark.long
@on_last_backend
def test_a_trained_model_on_all_corruptions(tmp_path, monkeypatch):
    """200 digits, sixteen corruptions of five severities: 16,000 images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # without ImageMagick
    settings = {"optimizer": "adamw", "learning_rate": 0.002, "steps": 250, "rho": 0.0}
    finetune.finetune(
        dataclasses.replace(PRESETS["digits"], out="run", compare=False, **settings)
    )
    config = Config(("run",), on=("digits",), corrupt=("all",), images=200)
    clean, *found, mean = evaluate.evaluate(config)
    assert len(found) == 16
    [summary] = json.loads((tmp_path / "scores/corruptions.json").read_text())
    assert set(summary["left_out"]) == {"motion_blur", "snow", "frost"}
    table = np.array([*summary["top1"].values()])[..., 0]
    assert table.shape == (16, 5)
    of_clean = clean.parts["all"].scores["top1"].value
    assert of_clean > 0.8 and summary["mean"][0] < of_clean - 0.05
    assert summary["mean"][0] == pytest.approx(table.mean())
    assert table.mean(axis=0)[0] > table.mean(axis=0)[4] + 0.05
    [part] = mean.parts.values()
    assert part.scores["top1"].value == pytest.approx(table.mean())
