"""`evaluate.py`: from a model and images to the tables."""

import csv
import io
import json

import evaluate
import keras
import numpy as np
import pytest
from command import command_line
from rich.console import Console
from scoring import any_model, tables
from scoring.settings import Config

import kerasvit
from tests.hub.conftest import hub as hub
from tests.once import long_elsewhere, on_last_backend

pytestmark = pytest.mark.slow

SIZES = {"patch_size": 8, "width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8}


def vit(seed=0, classes=10, **options):
    keras.utils.set_random_seed(seed)
    options = {"image_size": 16, **SIZES, **options}
    model = kerasvit.VisionTransformer(num_classes=classes, name="vit", **options)
    random = np.random.default_rng(seed)
    model.set_weights([random.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def save(model, path, names):
    kerasvit.save_pretrained(model, path, label_names=names)
    return str(path)


def nll(result):
    return result.parts["all"].scores["nll"].value


@long_elsewhere
def test_models_on_photographs(images, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    images("cat", 11)
    folder = str(images("dog", 8))
    names = ["dog", "wolf", "cat"]
    models = [save(vit(i, 3), tmp_path / name, names) for i, name in enumerate("ab")]
    config = Config(tuple(models), on=(folder,), batch_size=8)
    found = evaluate.evaluate(config)
    printed = " ".join(capsys.readouterr().out.split())
    assert "minus a" in printed and "M params" in printed
    for path, result in zip(models, found):
        model = kerasvit.from_pretrained(path)
        files = sorted((tmp_path / "images").glob("*/*.jpg"))
        predicted = [top[0][0] for top in kerasvit.classify(model, files, top=1)]
        right = [file.parent.name == name for file, name in zip(files, predicted)]
        assert result.right["all"].tolist() == right
        assert result.parts["all"].scores["top1"].value == np.mean(right)
        assert (result.images, result.left_out) == (19, 0)
        whole, restricted = result.parts["all"], result.parts["restricted"]
        assert (whole.classes, restricted.classes) == (3, 2)
        assert restricted.scores["top1"].value >= whole.scores["top1"].value
    for name in ("scores.txt", "scores.md", "scores.tex"):
        assert "images, 2 classes" in (tmp_path / "scores" / name).read_text()
    rows = [*csv.DictReader((tmp_path / "scores/scores.csv").open())]
    assert [row["classes"] for row in rows] == ["3", "2", "3", "2"]
    parameters = sum(weight.size for weight in vit(classes=3).get_weights())
    assert {row["parameters"] for row in rows} == {str(parameters)}
    assert float(rows[0]["top1"]) == found[0].parts["all"].scores["top1"].value
    stored = json.loads((tmp_path / "scores/scores.json").read_text())
    assert stored[1]["versions"]["keras"] == keras.__version__

    # Nothing is computed again.
    monkeypatch.setattr(evaluate.Predictor, "__call__", None)
    again = evaluate.evaluate(config)
    assert [x.to_json() for x in again] == [x.to_json() for x in found]


@long_elsewhere
def test_other_weights_or_images_are_computed_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    digits = [str(i) for i in range(10)]
    save(vit(0), "model", digits)
    config = Config(("model",), on=("digits",), images=50)
    [first] = evaluate.evaluate(config)
    [more] = evaluate.evaluate(Config(("model",), on=("digits",), images=60))
    assert (first.images, more.images) == (50, 60)
    save(vit(1), "model2", digits)
    (tmp_path / "model").rename("old")
    (tmp_path / "model2").rename("model")
    [other] = evaluate.evaluate(config)
    assert other.weights != first.weights
    assert nll(other) != nll(first)


@on_last_backend
def test_a_command_that_was_interrupted_continues(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = ("a", "b")
    for i, name in enumerate(models):
        save(vit(i), name, [str(i) for i in range(10)])
    config = Config(models, on=("digits",), images=50)
    predict, called = evaluate.Predictor.__call__, []

    def interrupted(self, model, *arguments):
        called.append(model)
        if len(called) == 2:
            raise KeyboardInterrupt
        return predict(self, model, *arguments)

    monkeypatch.setattr(evaluate.Predictor, "__call__", interrupted)
    with pytest.raises(SystemExit, match="The same command continues"):
        command_line.main(lambda: evaluate.evaluate(config))
    evaluate.evaluate(config)
    first, second, again = called  # which is loaded anew
    np.testing.assert_array_equal(second.get_weights()[0], again.get_weights()[0])
    assert not np.array_equal(first.get_weights()[0], again.get_weights()[0])


@on_last_backend
@pytest.mark.parametrize(
    ("file", "start"), [("json", b"[]"), ("npz", b""), ("npz", b"no zip")]
)
def test_a_damaged_result_is_computed_again(file, start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(vit(), "model", [str(i) for i in range(10)])
    config = Config(("model",), on=("digits",), images=50)
    [first] = evaluate.evaluate(config)
    path = tmp_path / f"scores/model/digits.{file}"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], start):
        path.write_bytes(damaged)
        [again] = evaluate.evaluate(config)
        assert again.parts == first.parts
        assert json.loads((tmp_path / "scores/model/digits.json").read_text())


@on_last_backend
def test_models_of_equal_short_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    digits = [str(i) for i in range(10)]
    models = [save(vit(i), f"{name}/vit", digits) for i, name in enumerate("ab")]
    found = evaluate.evaluate(Config(tuple(models), on=("digits",), images=50))
    assert [each.model for each in found] == models
    assert nll(found[0]) != nll(found[1])
    files = [path.parent.name for path in (tmp_path / "scores").glob("*/digits.json")]
    assert sorted(files) == ["a_vit", "b_vit"]


@long_elsewhere
def test_folders_of_equal_names(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place, count in (("a", 7), ("b", 9)):
        for name in ("cat", "dog"):
            images(f"{place}/val/{name}", 6, size=(20, 20 + count))
    folders = [f"images/{place}/val" for place in "ab"]
    save(vit(classes=2), "model", ["cat", "dog"])
    found = evaluate.evaluate(Config(("model",), on=tuple(folders)))
    assert [each.set for each in found] == folders
    assert nll(found[0]) != nll(found[1])
    for folder, expected in zip(
        folders, found
    ):  # the second is not taken for the first
        [alone] = evaluate.evaluate(Config(("model",), on=(folder,), out="alone"))
        assert (alone.set, nll(alone)) == ("val", nll(expected))
    both = Config(("model",), on=tuple(folders), frozen=("probe",))
    probed = [each.set for each in evaluate.evaluate(both) if each.measure]
    assert probed == folders


@on_last_backend
def test_later_models_are_compared_with_a_first_one_without_classes(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    save(vit(0), "model", [str(i) for i in range(10)])
    kerasvit.save_pretrained(vit(1, classes=0), "features")
    config = Config(("features", "model"), on=("digits",), frozen=("knn",))
    one, two = [x for x in evaluate.evaluate(config) if x.measure]
    shares = [x.parts["k-NN"].scores["top1"].value for x in (one, two)]
    assert [one.model, two.model] == ["features", "model"]
    printed = capsys.readouterr().out
    assert "minus features" in printed and "minus model" not in printed
    assert f"{100 * (shares[1] - shares[0]):+.2f} [" in printed


@on_last_backend
def test_printed_tables_have_all_numbers_in_full():
    cells = [f"{i}0.00 [55.5, 66.6]" for i in range(1, 6)]
    rows = [["top-1 in %", *(f"photos, {i}-shot" for i in range(1, 6))]]
    rows += [["vit", *cells], ["  minus another model with a long name", *cells]]
    for width, count in ((45, 2), (200, 1)):
        console = Console(width=width, record=True, file=io.StringIO())
        found = tables.printed(rows, width)
        assert len(found) == count
        for table in found:
            console.print(table)
        text = console.export_text()
        assert all(text.count(cell) == 2 for cell in cells)
        assert all(f"{i}-shot" in text for i in range(1, 6))
        assert max(map(len, text.splitlines())) <= width


@on_last_backend
def test_a_file_of_keras_that_returns_probabilities(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images("0", 6)
    folder = str(images("1", 6))
    pixels = keras.Input((8, 8, 3))
    x = keras.layers.Flatten()(pixels)
    keras.utils.set_random_seed(0)
    logits = keras.layers.Dense(2, name="logits")(x)
    model = keras.Model(pixels, keras.layers.Softmax()(logits))
    model.save("model.keras")
    beside = vit(classes=2)  # with its own preprocessing
    kerasvit.save_pretrained(beside, "vit", label_names=["0", "1"])
    config = Config(("model.keras", "vit"), on=(folder,), model_input="unit")
    result, other = evaluate.evaluate(config)
    [alone] = evaluate.evaluate(Config(("vit",), on=(folder,), out="alone"))
    assert nll(other) == nll(alone)
    found = any_model.load("model.keras", "model", "unit")
    transform = kerasvit.Preprocessing(
        8, crop=1.0, mode="squash", kernel="bilinear", antialias=False
    )
    files = sorted((tmp_path / "images").glob("*/*.jpg"))
    batch = np.stack([transform(file, normalize=False) for file in files])
    probabilities = found.model.predict(batch / 255, verbose=0)
    chosen = probabilities[np.arange(12), [0] * 6 + [1] * 6]
    expected = -np.log(chosen).mean()
    assert nll(result) == pytest.approx(expected, abs=1e-4)


@on_last_backend
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(()), "give one or more models"),
        (Config(("model",)), "give one or more sets"),
        (Config(("model", "model"), on=("digits",)), "each model once"),
        (Config(("model",), on=("digits", "digits")), "`on`: each set once"),
        (Config(("model",), on=("v2", "imagenet_v2")), "`on`: each set once"),
        (Config(("model",), on=("vtab",), corrupt=("fog",)), "that is not of VTAB"),
        (
            Config(("features",), on=("digits",), frozen=("knn",), corrupt=("fog",)),
            "`corrupt`: features: no classes",
        ),
        (Config(("nothing",), on=("digits",)), "no file or folder nothing"),
        (Config(("model",), on=("imagnet",)), "`on`: there is no 'imagnet'. Close: im"),
        (
            Config(("model",), on=("./none",)),
            "`on`: there is no folder or table ./none",
        ),
        (
            Config(("model",), on=("real",)),
            "by hand: put ILSVRC2012_img_val.tar.* into data/downloads/manual/",
        ),
        (Config(("model",), on=("digits",), images=0), "`images` must be at least 1"),
        (Config(("model",), on=("digits",)), "none of the classes of digits"),
        (Config(("features",), on=("digits",)), "has no classes"),
        (Config(("model",), on=("digits",), out="file"), "`out`: file cannot be used"),
        (Config(("run/with_SAM",), on=("digits",)), "no file or folder run/with_SAM"),
        (Config(("x.keras",), on=("digits",)), "no file or folder x.keras"),
    ],
)
def test_wrong_input(config, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", "data")
    save(vit(classes=2), "model", ["cat", "dog"])
    kerasvit.save_pretrained(vit(classes=0), "features")
    (tmp_path / "run").mkdir()
    for name in ("file", "run/result.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(command_line.BadInput, match=message):
        evaluate.evaluate(config)


@on_last_backend
def test_a_logit_that_is_not_finite(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images("cat", 3)
    folder = str(images("dog", 3))
    model = vit(classes=2)
    weights = model.get_weights()
    weights[-2][:] = 3e38  # the logits overflow
    model.set_weights(weights)
    save(model, "model", ["cat", "dog"])
    with pytest.raises(command_line.BadInput, match="logits.*not finite"):
        evaluate.evaluate(Config(("model",), on=(folder,)))
    assert not (tmp_path / "scores/model").exists()


@on_last_backend
def test_a_wide_table_is_turned_on_the_console():
    rows = [["top-1 in %", "a" * 30, "b" * 30], ["vit", "1.00", "2.00"]]
    [table] = tables.printed(rows, 100)
    assert len(table.columns) == 3
    [turned] = tables.printed(rows, 60)
    assert [column.header for column in turned.columns] == ["top-1 in %", "vit"]
    assert [*turned.columns[1].cells] == ["1.00", "2.00"]


def test_a_model_of_the_hub_scores_as_its_folder(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(vit(), "vit", [str(i) for i in range(10)])
    files = {each.name: each.read_bytes() for each in (tmp_path / "vit").iterdir()}
    hub.add("me/vit", files)
    config = Config(("hf://me/vit", "vit"), on=("digits",), images=40, card=True)
    remote, local = evaluate.evaluate(config)
    assert [remote.model, local.model] == ["me/vit", "vit"]
    assert remote.parts == local.parts and remote.weights == local.weights
    assert "## Scores" in (tmp_path / "scores/me_vit/README.md").read_text()


@on_last_backend
def test_models_without_one_label_per_image_are_refused(tmp_path):
    several, of_table = "multi_label_classification", "which are read from a table"
    one = "one label per image"
    for classes, stated, text in ((1, None, one), (3, several, of_table)):
        model = vit(classes=classes)
        if stated:
            model.record["problem_type"] = stated
        kerasvit.save_pretrained(model, tmp_path / f"{classes}")
        config = Config(models=(f"{tmp_path / str(classes)}",), on=("digits",))
        with pytest.raises(command_line.BadInput, match=text):
            evaluate.evaluate(config)
