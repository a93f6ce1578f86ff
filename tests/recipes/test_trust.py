"""`evaluate.py --trust`, `--tta` and `--ensemble`."""

import csv
import dataclasses
import json
from types import SimpleNamespace

import evaluate
import keras
import numpy as np
import pytest
from command.command_line import BadInput
from PIL import Image
from scoring import averages, tables
from scoring.settings import Config
from sklearn.metrics import roc_auc_score

import kerasvit
from kerasvit import data, evaluation
from tests.once import long_elsewhere, on_last_backend
from tests.recipes.test_evaluate import save, vit
from tests.recipes.test_several_labels import composed

pytestmark = pytest.mark.slow
DIGITS = [str(i) for i in range(10)]


def digits(path, seed=0):
    """Saves a model with a head fitted to digits."""
    model = vit(seed)
    kerasvit.fit_head(model, data.built_in("digits").train)
    return save(model, path, DIGITS)


def config(*models, **changes):
    given = {"on": ("digits",), "trust": True, "devices": "1", "batch_size": 128}
    return Config(tuple(map(str, models)), **{**given, **changes})


def values(result, part):
    return {name: each.value for name, each in result.parts[part].scores.items()}


def noise(folder, count=40):
    """Writes images of noise, of no class."""
    random = np.random.default_rng(0)
    for i in range(count):
        path = folder / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(256, size=(8, 8, 3)).astype("uint8")
        Image.fromarray(pixels).save(path)
    return folder


@long_elsewhere
def test_trust_of_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = digits(tmp_path / "fitted")
    asked = config(path, unlike=(str(noise(tmp_path / "other")),), card=True)
    found = evaluate.evaluate(asked)
    printed = " ".join(capsys.readouterr().out.split())
    assert "RAPS sets for 90%" in printed and "Calibration by digits" in printed
    plain, trust = found
    assert trust.measure == "trust"
    images = data.built_in("digits")
    model = kerasvit.from_pretrained(path)
    stored = kerasvit.Calibration.of(model)
    labels = np.array(images.test.labels)
    arrays = np.concatenate([x for x, _ in images.test.batches(model, 64)])
    expected = kerasvit.calibrate(model, images.validation)
    assert stored.temperature == pytest.approx(expected.temperature, rel=1e-4)
    np.testing.assert_allclose(stored.scores, expected.scores, atol=1e-4)

    sets = kerasvit.classify(model, arrays, coverage=0.9)
    has = [DIGITS[i] in dict(each) for i, each in zip(labels, sets, strict=True)]
    of_sets = values(trust, "RAPS sets")
    assert of_sets["coverage"] == pytest.approx(np.mean(has), abs=0.005)
    assert of_sets["size"] == pytest.approx(np.mean([*map(len, sets)]), abs=0.02)
    logits = model.predict(arrays, verbose=0)
    scaled = logits / stored.temperature
    after = values(trust, "temperature")
    nll = evaluation.negative_log_likelihood(scaled, labels).mean()
    assert after["nll"] == pytest.approx(nll, rel=1e-3)
    assert values(plain, "all")["nll"] == pytest.approx(
        values(trust, "as trained")["nll"]
    )
    other = [*(tmp_path / "other").glob("*/*.png")]
    pixels = np.stack([model.preprocessing(str(file)) for file in other])
    energies = [
        evaluation.energy_score(x) for x in (logits, model.predict(pixels, verbose=0))
    ]
    unlike = np.repeat([0, 1], [len(logits), len(other)])
    auroc = roc_auc_score(unlike, np.concatenate(energies))
    assert values(trust, "other by energy")["auroc"] == pytest.approx(auroc, abs=1e-3)
    assert set(trust.parts) >= {"other by k-NN", "other by Mahalanobis", "selection"}

    assert (tmp_path / "scores/fitted/digits trust.png").stat().st_size > 5_000
    card = (tmp_path / "fitted/README.md").read_text()
    assert "## Trust, digits" in card and "trust_digits.png" in card
    rows = [*csv.DictReader((tmp_path / "scores/trust.csv").open())]
    assert {row["part"] for row in rows} == set(trust.parts)

    # Nothing is computed again, and what is stored is the same.
    monkeypatch.setattr(evaluate.Predictor, "__call__", None)
    before = (tmp_path / "fitted/config.json").read_bytes()
    again = evaluate.evaluate(asked)
    assert [x.to_json() for x in again] == [x.to_json() for x in found]
    assert (tmp_path / "fitted/config.json").read_bytes() == before

    # A copy of the model with other weights has neither picture nor section.
    model.get_layer("head").kernel.assign(0 * model.get_layer("head").kernel)
    kerasvit.save_pretrained(model, tmp_path / "copy")
    assert "trust_digits" not in (tmp_path / "copy/README.md").read_text()


@on_last_backend
def test_the_images_are_divided_as_in_the_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = noise(tmp_path / "images", 300)
    for share in (0.2, 0.25):
        run = tmp_path / f"run{share}"
        save(vit(classes=2), run / "model", ["a", "b"])
        (run / "result.json").write_text("{}")
        (run / "config.json").write_text(json.dumps({"validation_share": share}))
    counts = data.from_folder(folder, validation_share=0.2).counts
    for name in ("run0.2", "run0.2/model"):
        asked = config(tmp_path / name, on=(str(folder),))
        trust = evaluate.evaluate(asked)[-1]
        assert sum(trust.calibration["images"]) == counts["validation"] != 30
        assert trust.images == counts["test"]
    with pytest.raises(BadInput, match="trained with different --validation-share"):
        both = (str(tmp_path / "run0.2"), str(tmp_path / "run0.25"))
        evaluate.evaluate(dataclasses.replace(asked, models=both))


@pytest.mark.long
def test_trust_of_several_labels(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = composed(tmp_path / "images", 300)
    images = data.from_table(table, task="multilabel")
    names = images.class_names
    model = vit(classes=len(names))
    kerasvit.fit_head(model, images.train, task="multilabel")
    path = save(model, tmp_path / "model", names)
    asked = config(path, on=(str(table),), unlike=(str(noise(tmp_path / "other")),))
    trust = evaluate.evaluate(asked)[-1]
    assert "F1, macro" in capsys.readouterr().out
    found = kerasvit.Calibration.of(kerasvit.from_pretrained(path))
    assert len(found.thresholds) == len(names)
    model = kerasvit.from_pretrained(path)
    arrays = np.concatenate([x for x, _ in images.test.batches(model, 64)])
    answers = kerasvit.classify(model, arrays)
    predicted = np.array([[n in dict(each) for n in names] for each in answers])
    expected = evaluation.f1_scores(predicted, images.test.labels)
    for average in ("micro", "macro", "samples"):
        got = values(trust, "calibrated")[f"f1_{average}"]
        assert got == pytest.approx(expected[average], abs=0.01)
    held = images.validation.part(
        kerasvit.Calibration.halves(len(images.validation))[1]
    )
    arrays = [x for x, _ in held.batches(model, 64)]
    logits = model.predict(np.concatenate(arrays), verbose=0)
    limits = evaluation.fit_thresholds(logits, held.labels, recall=0.9, conformal=True)
    arrays = np.concatenate([x for x, _ in images.test.batches(model, 64)])
    chosen = model.predict(arrays, verbose=0) >= limits
    truth = np.array(images.test.labels, bool)
    got = values(trust, "thresholds")
    assert got["recall"] == pytest.approx(chosen[truth].mean(), abs=0.03)
    assert got["size"] == pytest.approx(chosen.sum(1).mean(), abs=0.1)
    [picture] = (tmp_path / "scores").glob("*/labels.csv trust.png")
    assert picture.stat().st_size > 5_000
    scores, strict = evaluate.evaluate(dataclasses.replace(asked, recall=0.95))
    found = kerasvit.Calibration.of(kerasvit.from_pretrained(path))
    first = images.validation.part(
        kerasvit.Calibration.halves(len(images.validation))[0]
    )
    logits = [x for x, _ in first.batches(model, 64)]
    logits = model.predict(np.concatenate(logits), verbose=0)
    shares = found.probabilities(logits) >= np.array(found.thresholds)
    truth = np.array(first.labels, bool)
    assert (shares & truth).sum() >= 0.95 * truth.sum()
    assert strict.calibration["thresholds"] == found.thresholds
    # All numbers of a command are by the thresholds that it stores.
    np.testing.assert_array_equal(scores.right["thresholds"], found.thresholds)
    assert values(scores, "all")["f1_micro"] == pytest.approx(
        values(strict, "calibrated")["f1_micro"]
    )
    assert "other by energy" in trust.parts and "other by softmax" not in trust.parts


@on_last_backend
def test_a_table_of_some_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = composed(tmp_path / "images", 240)
    images = data.from_table(table, task="multilabel")
    names = images.class_names
    model = vit(classes=len(names))
    kerasvit.fit_head(model, images.train)
    path = save(model, tmp_path / "model", names)
    _, *lines = table.read_text().splitlines()
    some, columns = table.with_name("some.csv"), [*names[:2], "unicorn"]
    rows = [",".join(["path", *columns])]
    for i, line in enumerate(lines):
        file, labels = line.split(",")
        has = [*(name in labels.split("|") for name in names[:2]), i % 9 == 0]
        rows.append(",".join([file, *(str(int(each)) for each in has)]))
    some.write_text("\n".join(rows))
    [found] = evaluate.evaluate(config(path, on=(str(some),), trust=False))
    assert found.parts["all"].classes == 2 and found.unmatched == ["unicorn"]
    shares, labels = (found.right[x][:, :2] for x in ("probabilities", "labels"))
    expected = evaluation.f1_scores(shares >= 0.5, labels)
    assert values(found, "all")["f1_micro"] == pytest.approx(expected["micro"])
    with pytest.raises(BadInput, match="says nothing about the classes .* images with"):
        evaluate.evaluate(config(path, on=(str(some),)))
    none = table.with_name("none.csv")
    none.write_text(
        "path,label\n" + "\n".join(line.split(",")[0] + "," for line in lines)
    )
    with pytest.raises(BadInput, match="no image of none.csv has a label"):
        evaluate.evaluate(config(path, on=(str(none),), trust=False))


@on_last_backend
def test_too_few_images_or_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = digits(tmp_path / "fitted")
    with pytest.raises(BadInput, match=r"has 179 validation images.*needs 2000"):
        evaluate.evaluate(config(path, coverage=0.999))
    with pytest.raises(BadInput, match="`coverage` must be between"):
        evaluate.evaluate(config(path, coverage=90))
    with pytest.raises(BadInput, match="`unlike` is for --trust"):
        evaluate.evaluate(config(path, trust=False, unlike=("digits",)))
    with pytest.raises(BadInput, match="`recall` must be between"):
        evaluate.evaluate(config(path, recall=90))
    with pytest.raises(BadInput, match="for models of several labels"):
        evaluate.evaluate(config(path, precision=0.9))
    with pytest.raises(BadInput, match="none of --on"):
        evaluate.evaluate(config(path, unlike=("digits",)))
    folder = noise(tmp_path / "few", 30)
    other = save(vit(classes=2), tmp_path / "other", ["a", "b"])
    with pytest.raises(BadInput, match="has 4 validation images.*needs 20"):
        evaluate.evaluate(config(other, on=(str(folder),)))
    with pytest.raises(BadInput, match="`tta`, `ensemble`: not with"):
        evaluate.evaluate(config(path, trust=False, tta="flip", frozen=("knn",)))
    with pytest.raises(BadInput, match="`card`: .*not a mean over views"):
        evaluate.evaluate(config(path, trust=False, tta="flip", card=True))
    with pytest.raises(BadInput, match="two models or more"):
        evaluate.evaluate(config(path, trust=False, ensemble=True))
    assert (
        "calibration"
        not in json.loads((tmp_path / "fitted/config.json").read_text())["kerasvit"]
    )


def softmax(logits):
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


@pytest.mark.long
def test_means_of_views_and_of_models(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    paths = [digits(tmp_path / name, seed) for seed, name in enumerate("ab")]
    images = data.built_in("digits").test
    models = [kerasvit.from_pretrained(path) for path in paths]
    x = np.concatenate([x for x, _ in images.batches(models[0], 64)])
    labels = np.array(images.labels)

    def shares(model, *views):
        return np.mean([softmax(model.predict(v, verbose=0)) for v in views], 0)

    asked = config(*paths, trust=False, ensemble=True)
    expected = [shares(model, x) for model in models]
    expected.append((expected[0] + expected[1]) / 2)
    found = evaluate.evaluate(asked)
    for result, each in zip(found, expected, strict=True):
        nll = -np.log(each[np.arange(len(labels)), labels]).mean()
        assert values(result, "all")["nll"] == pytest.approx(nll, rel=1e-3)
    assert found[-1].model == "mean of 2"
    assert "mean of 2" in capsys.readouterr().out
    flipped = evaluate.evaluate(dataclasses.replace(asked, tta="flip"))
    expected = [shares(model, x, x[:, :, ::-1]) for model in models]
    for result, each in zip(flipped, expected):
        nll = -np.log(each[np.arange(len(labels)), labels]).mean()
        assert values(result, "all")["nll"] == pytest.approx(nll, rel=1e-3)
    rows = [*csv.DictReader((tmp_path / "scores/scores.csv").open())]
    assert int(rows[0]["multiply_adds"]) * 2 == int(rows[2]["multiply_adds"])


@on_last_backend
def test_means_of_probabilities():
    random = np.random.default_rng(0)
    parts = random.normal(size=(3, 5, 4)).astype("float32")
    mean = softmax(parts).mean(0)
    np.testing.assert_allclose(softmax(averages.mean_logits(parts)), mean, rtol=1e-5)
    mixed = [softmax(parts[0]), *parts[1:]]  # the first gives probabilities
    np.testing.assert_allclose(softmax(averages.mean_logits(mixed)), mean, rtol=1e-5)
    sigmoids = (1 / (1 + np.exp(-parts))).mean(0)
    several = averages.mean_logits(parts, several=True)
    np.testing.assert_allclose(1 / (1 + np.exp(-several)), sigmoids, rtol=1e-5)


@on_last_backend
def test_ten_crops(tmp_path):
    model = vit()
    transform = kerasvit.Preprocessing((16, 16))
    known = {"name": "vit", "model": model, "transform": transform}
    known |= {"normalize": True, "label_names": DIGITS, "weights": ""}
    viewed = averages.with_views(averages.Candidate(**known), "crops")
    x = np.random.default_rng(0).normal(size=(3, 16, 16, 3)).astype("float32")
    found = viewed.outputs(lambda of, images, *_: of.predict(images, verbose=0), x)
    views = []
    for row, column in ((0, 0), (0, 2), (2, 0), (2, 2), (1, 1)):
        crops = x[:, row : row + 14, column : column + 14]
        resized = keras.ops.image.resize(crops, (16, 16))
        resized = keras.ops.convert_to_numpy(resized)
        views += [resized, resized[:, :, ::-1]]
    shares = np.mean([softmax(model.predict(v, verbose=0)) for v in views], 0)
    np.testing.assert_allclose(softmax(found), shares, atol=1e-5)


@on_last_backend
def test_models_of_several_labels_are_compared_by_the_map():
    random = np.random.default_rng(0)
    labels = (random.random((80, 3)) < 0.4).astype("uint8")
    good, bad = labels + random.normal(size=(2, 80, 3)) * [[[0.5]], [[2.0]]]
    one, other = (
        SimpleNamespace(right={"probabilities": x, "labels": labels})
        for x in (bad, good)
    )
    found = tables.map_difference(one, other)
    maps = [evaluation.average_precision(x, labels).mean() for x in (good, bad)]
    assert found.value == pytest.approx(maps[0] - maps[1])
    assert 0 < found.low < found.value < found.high
    assert tables.map_difference(other, one).value == pytest.approx(-found.value)
    assert tables.top1_difference(one, other, "all").startswith("+")
    shuffled = SimpleNamespace(right={**other.right, "labels": labels[::-1]})
    assert tables.map_difference(one, shuffled) is None
