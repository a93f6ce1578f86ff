"""`--task multilabel`, and classes with few images, in both scripts."""

import csv
import dataclasses
import json

import evaluate
import finetune
import keras
import numpy as np
import pretrain
import pytest
from command import command_line
from command.command_line import BadInput
from PIL import Image
from scoring import label_table
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from training import (
    optimizers,
    results,
    run_folder,
    stages,
    training_data,
    validation,
)

import kerasvit
from kerasvit import data, evaluation
from tests.once import long_elsewhere, on_last_backend, rest_long

pytestmark = pytest.mark.slow
TINY = kerasvit.Variant(
    "small",
    kerasvit.VisionTransformer,
    **{**finetune.SMALL.numbers, "width": 8, "depth": 1, "mlp_dim": 8},
)


def composed(folder, count, seed=0, size=16):
    """Writes images with up to four digits, and a table of them; returns its path."""
    digits = load_digits()
    random, rows = np.random.default_rng(seed), []
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        canvas, chosen = np.zeros((16, 16)), random.integers(5)
        places = random.permutation(4)[:chosen]
        numbers = random.permutation(len(digits.target))[:chosen]
        for place, number in zip(places, numbers, strict=True):
            y, x = divmod(int(place), 2)
            canvas[8 * y : 8 * y + 8, 8 * x : 8 * x + 8] = digits.images[number]
        image = Image.fromarray((canvas * 255 / 16).astype("uint8"))
        image.resize((size, size)).save(folder / f"{i}.png")
        names = sorted({f"digit {digits.target[n]}" for n in numbers})
        rows.append([f"{i}.png", "|".join(names)])
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label"], *rows])
    return folder / "labels.csv"


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.setattr(finetune, "SMALL", TINY)
    monkeypatch.chdir(tmp_path)


def config(table, **changes):
    given = {
        "steps": 20,
        "batch_size": 10,
        "out": "run",
        "rho": 0.0,
        "task": "multilabel",
    }
    return dataclasses.replace(finetune.Config(data=str(table)), **{**given, **changes})


@long_elsewhere
def test_a_training_gives_thresholds_and_a_card(tmp_path, capsys):
    table = composed(tmp_path / "images", 250)
    finetune.main(config(table))
    printed = capsys.readouterr().out
    assert "mAP" in printed and "validation loss" in printed
    result = run_folder.finished_result(tmp_path / "run")
    assert 0 < result["map"] <= 1 and "accuracy" not in result
    for logs in result["history"]:
        assert {"val_map", "val_f1_micro", "val_f1_macro", "val_f1_samples"} < {*logs}
    model = kerasvit.from_pretrained("run/model")
    assert model.record["problem_type"] == "multi_label_classification"
    found = kerasvit.Calibration(**model.record["calibration"])
    images = data.from_table(table, task="multilabel")
    x = [str(path) for path in images.test.items]
    batches = images.test.batches(model, 16)
    shares = found.probabilities(model.predict(batches, verbose=0))
    expected = label_table.of_outputs(shares, images.test.labels, found.thresholds)
    for name, number in expected.items():
        assert result[name] == pytest.approx(number, abs=1e-4)
    answers = kerasvit.classify(model, x)
    for answer, row in zip(answers, shares >= found.thresholds, strict=True):
        names = {images.class_names[i] for i in np.flatnonzero(row)}
        assert {name for name, _ in answer} == names
    card = (tmp_path / "run/model/README.md").read_text()
    assert "| mean average precision |" in card and "## Labels, test" in card
    assert card.count("| digit ") == 10
    assert (tmp_path / "run/curves.png").stat().st_size > 1000
    assert not (tmp_path / "run/model/confusion_test.png").exists()


@on_last_backend
def test_all_forms_of_a_table_pass_the_first_checks(tmp_path):
    rows = [*csv.DictReader(composed(tmp_path / "images", 30).open())]
    found = sorted({name for row in rows for name in row["label"].split("|") if name})
    lines = [
        json.dumps(
            {"path": r["path"], "labels": [*filter(None, r["label"].split("|"))]}
        )
        for r in rows
    ]
    (tmp_path / "images/labels.jsonl").write_text("\n".join(lines))
    columns = [["path", *found]]
    for r in rows:
        has = r["label"].split("|")
        columns.append([r["path"], *(int(name in has) for name in found)])
    with (tmp_path / "images/columns.csv").open("w", newline="") as file:
        csv.writer(file).writerows(columns)
    for name in ("labels.jsonl", "columns.csv"):
        asked = config(tmp_path / "images" / name, dry_run=True)
        command_line.check(asked)
        assert finetune.run([asked]) == [None]
    with pytest.raises(ValueError, match="separated by commas"):
        command_line.check(dataclasses.replace(asked, task="single_label"))


@pytest.mark.long
def test_models_are_scored_on_a_table(tmp_path, capsys):
    table = composed(tmp_path / "images", 250)
    for seed in (0, 1):
        finetune.run([config(table, seed=seed, out=f"run{seed}")])
    other = composed(tmp_path / "others", 60, seed=5)
    asked = evaluate.Config(("run0", "run1"), on=(str(other),), card=True)
    asked = dataclasses.replace(asked, devices="1")
    capsys.readouterr()
    found = evaluate.evaluate(asked)
    printed = capsys.readouterr().out
    assert "mAP in %" in printed and "f1_micro" in printed
    model = kerasvit.from_pretrained("run0/model")
    images = data.read_table(other, "multilabel")
    answers = kerasvit.classify(model, [str(row.file) for row in images.rows])
    names = model.record["label_names"]
    truth = np.array([[n in row.labels for n in names] for row in images.rows])
    predicted = np.array([[n in dict(each) for n in names] for each in answers])
    scores = found[0].parts["all"].scores
    expected = evaluation.f1_scores(predicted, truth)
    for average in ("micro", "macro", "samples"):
        assert scores[f"f1_{average}"].value == pytest.approx(expected[average])
    assert scores["map"].low <= scores["map"].value <= scores["map"].high
    card = (tmp_path / "run0/model/README.md").read_text()
    assert "## Scores" in card and "## Labels, labels.csv" in card
    assert "mean_average_precision" in card
    assert len(evaluate.evaluate(asked)) == 2  # found again
    with pytest.raises(BadInput, match="which are read from a table"):
        evaluate.evaluate(dataclasses.replace(asked, on=(".",)))
    with pytest.raises(BadInput, match="for models of one label per image"):
        evaluate.evaluate(dataclasses.replace(asked, frozen=("knn",)))


@long_elsewhere
@pytest.mark.parametrize("loss", rest_long(["asymmetric", "focal", "sigmoid"]))
def test_losses_of_several_labels(loss, tmp_path):
    table = composed(tmp_path / "images", 60)
    [result] = finetune.run([config(table, loss=loss, steps=10, rho=0.05)])
    assert np.isfinite(result["loss"])
    # Fewer than 20 validation images: thresholds of 0.5.
    assert "calibration" not in kerasvit.from_pretrained("run/model").record


@pytest.mark.long
def test_the_head_begins_with_logistic_regressions(tmp_path, capsys):
    table = composed(tmp_path / "images", 250)
    finetune.run([config(table, steps=40)])
    again = config(table, weights="run/model", out="next", steps=10, keep_best=True)
    [result] = finetune.run([again])
    assert "linear classifier on frozen features" in capsys.readouterr().out
    assert 0 < result["start"]["linear_test"] <= 1
    assert result["kept_round"] >= 1
    finetune.main(again)  # finished: nothing is trained


@on_last_backend
@pytest.mark.parametrize("chooses", [{"keep_best": True}, {"patience": 1}])
def test_half_of_the_validation_images_choose_the_epoch(
    chooses, tmp_path, capsys, monkeypatch
):
    seen, evaluate = [], validation.Evaluation.__call__

    def spy(self, trainer):
        seen.append(self.images)
        return evaluate(self, trainer)

    monkeypatch.setattr(validation.Evaluation, "__call__", spy)
    table = composed(tmp_path / "images", 250)
    [result] = finetune.run([config(table, **chooses)])
    images = data.from_table(table, task="multilabel")
    count = len(images.validation)
    first, second = kerasvit.Calibration.halves(count)
    *rounds, test = seen
    assert rounds and len(test) == len(images.test)
    for each in rounds:
        np.testing.assert_array_equal(each.labels, images.validation.labels[first])
        assert [*each.names] == [images.validation.names[i] for i in first]
    text = f"is chosen on {len(first)} validation images, the first half"
    assert text in capsys.readouterr().out
    found = kerasvit.from_pretrained("run/model").record["calibration"]
    assert found["images"] == [len(first), len(second)]
    assert result["images"]["validation"] == count
    card = (tmp_path / "run/model/README.md").read_text()
    expected = f"{len(first)} of the validation images; a calibration has"
    assert f"| epoch chosen on | {expected} {len(second)} others |" in card


@on_last_backend
def test_without_a_choice_or_a_calibration_all_images_validate():
    several = config("labels.csv")
    assert validation.is_halved(dataclasses.replace(several, keep_best=True), 20)
    assert not validation.is_halved(dataclasses.replace(several, keep_best=True), 19)
    assert not validation.is_halved(several, 100)
    one = config("labels.csv", task="single_label", patience=1)
    assert validation.is_halved(one, 100)
    digits = data.built_in("digits")
    same = dataclasses.replace(digits, validation=digits.test)
    assert validation.seen_in_training(one, same) is same
    seen = validation.seen_in_training(one, digits).validation
    assert len(seen) == len(digits.validation) // 2


@on_last_backend
def test_classes_with_few_images_are_named(tmp_path):
    table = composed(tmp_path / "images", 20)
    images = data.from_table(table, task="multilabel")
    settings = config(table)
    text = training_data.few_images(settings, images)
    number = images.train.images.labels.sum(0)
    fewest = images.class_names[int(np.argmin(number))]
    assert text.startswith(f"Fewer than 10 training images: {fewest} ({number.min()})")
    assert f" and {np.sum(number < 10) - 5} more classes. Add images, and read" in text
    assert training_data.few_images(config(table, share=0.5), images) is None
    labels = np.repeat([0, 1, 2], [10, 9, 3])
    of_one = data.IndexedImages(np.zeros((22, 8, 8, 3), "uint8"), labels)
    found = data.LabelledImages(
        data.TrainingImages(of_one), of_one, of_one, ["ant", "bat", "cat"]
    )
    single = config(table, task="single_label")
    assert training_data.few_images(single, found) == (
        "Fewer than 10 training images: cat (3), bat (9). Add images; else give "
        "--class-weights balanced or --balanced, and read the table of classes in the "
        "card."
    )
    given = dataclasses.replace(single, balanced=True)
    assert "--balanced" not in training_data.few_images(given, found)
    demo = dataclasses.replace(single, data=None)
    assert training_data.few_images(demo, found) is None


@on_last_backend
def test_pretrain_learns_several_labels(tmp_path):
    table = composed(tmp_path / "images", 60)
    small = dataclasses.replace(
        pretrain.Config(data=str(table)), task="multilabel", loss="sigmoid", steps=10
    )
    found = pretrain.pretrain(dataclasses.replace(small, batch_size=10, out="run"))
    assert 0 < found["map"] <= 1
    record = kerasvit.from_pretrained("run/model").record
    assert record["problem_type"] == "multi_label_classification"


def of_one(**changes):
    return dataclasses.replace(pretrain.Config(), **changes)


COUNTS = np.array([10, 5, 1])
LOGITS = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
CLASSES = np.array([0, 1, 2, 0, 1, 2])


def plain(logits, labels):
    return evaluation.negative_log_likelihood(logits, labels)


@pytest.mark.parametrize("soft", [False, True])
def test_losses_of_rare_classes(soft):
    labels = np.eye(3, dtype="float32")[CLASSES] if soft else CLASSES
    smooth = {"mixup": 0.2} if soft else {}
    loss = optimizers.loss_of(of_one(class_weights="balanced", **smooth), COUNTS)
    weights = np.array([*kerasvit.class_weights(COUNTS).values()])
    expected = np.mean(weights[CLASSES] * plain(LOGITS, CLASSES))
    assert float(loss(labels, LOGITS)) == pytest.approx(expected, rel=1e-5)
    loss = optimizers.loss_of(of_one(loss="adjusted", **smooth), COUNTS)
    adjusted = LOGITS + np.log(COUNTS / COUNTS.sum())
    expected = np.mean(plain(adjusted, CLASSES))
    assert float(loss(labels, LOGITS)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.long
def test_balanced_batches_and_weights_train(tmp_path, images, capsys):
    for name, count in {"ant": 40, "bat": 12, "cat": 9}.items():
        root = images(name, count)
    for changes in (
        {"balanced": True},
        {"class_weights": "effective"},
        {"loss": "focal"},
        {"loss": "adjusted"},
    ):
        made = config(root, task="single_label", steps=10, batch_size=9, **changes)
        made = dataclasses.replace(made, out=f"run-{[*changes.values()][0]}")
        [result] = finetune.run([made])
        assert np.isfinite(result["loss"])
        stage = stages.main_of(
            stages.of(
                *(made_complete(made, root), data.from_folder(root)),
                finetune.build(made, ["ant", "bat", "cat"]),
            )
        )
        if "class_weights" in changes or changes.get("loss") == "adjusted":
            assert stage.counts.tolist() == [28, 9, 6]


def made_complete(made, root):
    return dataclasses.replace(
        made, warmup_steps=0, learning_rate=0.1, optimizer="sgd", augment="none"
    )


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "read from a table. Give it with --data labels.csv"),
        ({"loss": "softmax"}, "`loss`: softmax does not fit the task multilabel"),
        ({"loss": "adjusted"}, "`loss`: adjusted does not fit"),
        ({"balanced": True}, "`balanced` is for one label per image"),
        ({"class_weights": "balanced"}, "`class_weights` is for one label"),
        ({"teacher": "ViTB16/sam"}, "`teacher` is for one label per image"),
        ({"label_smoothing": 0.1}, "`label_smoothing` is for one label"),
        ({"few_shot": 5}, "`few_shot` is for one label"),
        ({"task": "single_label", "loss": "asymmetric"}, "asymmetric does not fit"),
        ({"task": "single_label"}, "with several labels or none, give the task"),
        ({"data": "."}, "several labels per image are read from a table"),
    ],
)
def test_wrong_settings_get_a_sentence(changes, message, tmp_path):
    table = composed(tmp_path / "images", 12)
    with pytest.raises(BadInput, match=message):
        finetune.run([config(table, **changes)])


@on_last_backend
def test_a_class_that_no_test_image_has_is_named(capsys):
    labels = np.zeros((30, 3), "uint8")
    labels[::2, 0] = labels[::3, 1] = 1
    images = data.IndexedImages(np.zeros((30, 8, 8, 3), "uint8"), labels)
    found = data.LabelledImages(
        data.TrainingImages(images), images, images, ["a", "b", "c"]
    )
    model = kerasvit.Variant("small", kerasvit.VisionTransformer, **TINY.numbers)(
        num_classes=3, image_size=8
    )
    logits = [np.random.default_rng(i).normal(size=(30, 3)) for i in (0, 1)]
    table = results._with_thresholds(model, logits, found, "test")
    assert "No test image has c: left out of the mAP" in capsys.readouterr().out
    assert table.missing == ["c"] and "No image has: c." in table.section()
    assert len(model.record["calibration"]["thresholds"]) == 3


@pytest.mark.long
def test_a_small_bit_learns_composed_digits(tmp_path):
    table = composed(tmp_path / "images", 2500, size=28)
    settings = dataclasses.replace(
        pretrain.PRESETS["study_bit"],
        **{"data": str(table), "task": "multilabel", "loss": "sigmoid", "rho": 0.0},
        **{"steps": 600, "epochs": None, "learning_rate": 0.2, "out": "run"},
    )
    found = pretrain.pretrain(settings)
    images = data.from_table(table, task="multilabel")
    pixels = [
        np.stack([np.asarray(Image.open(path)).ravel() / 255 for path in part.items])
        for part in (images.train.images, images.test)
    ]
    labels = [images.train.images.labels, images.test.labels]
    scores = np.stack(
        [
            LogisticRegression(max_iter=500).fit(pixels[0], labels[0][:, i])
            .decision_function(pixels[1])
            for i in range(10)
        ],
        axis=1,
    )  # fmt: skip
    baseline = np.mean(evaluation.average_precision(scores, labels[1]))
    assert found["map"] > max(0.9, baseline)
    json.dumps(found)
    keras.utils.clear_session()
