"""`export.py`: from a model to a file that another runtime reads."""

import dataclasses
import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import export
import keras
import numpy as np
import pytest
import segmentation
from command import command_line
from exporting import checking, formats, runtime, settings, writing
from exporting.settings import Config
from PIL import Image
from scoring import candidates

import kerasvit
from tests.models.tiny import tiny
from tests.once import mainly_on_last, on_last_backend, rest_long
from tests.random_weights import randomised

BACKEND = keras.backend.backend()
WRITTEN = [name for name, each in formats.FORMATS.items() if BACKEND in each.backends]
FORMAT = "torch" if BACKEND == "torch" else "savedmodel"  # needs no other package
NAMES = ["cat", "dog", "a bird"]
QUANTISED = [
    (name, dtype)
    for name in WRITTEN
    for dtype in ("int8", "int4")
    if not formats.FORMATS[name].reason(dtype, BACKEND)
]
LONG = [  # one of the others is in each family
    ("SwinTransformer", "litert"),
    ("SwinTransformer", "onnx"),
    ("BEiTTransformer", "litert"),
    ("BEiTTransformer", "onnx"),
    ("AlterNet", "onnx"),
    ("BigTransfer", "openvino"),
    ("MLPMixer", "savedmodel"),
    ("DistilledVisionTransformer", "torch"),
]


def require(name):
    """Skips a test where a package of the format is not installed."""
    for module in formats.FORMATS[name].modules:
        pytest.importorskip(module)


def saved(path, builder="VisionTransformer", names=NAMES, **changes):
    """The folder of a tiny model."""
    kerasvit.save_pretrained(tiny(builder, **changes), path, label_names=names)
    return str(path)


def softmax(x):
    exponentials = np.exp(x - x.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_the_runtime_alone_classifies_a_photograph(name, images, tmp_path):
    require(name)
    folder = saved(tmp_path / "vit")
    photos = sorted((images("cat", 3)).glob("*/*.jpg"))
    out = export.export(Config(folder, name, str(tmp_path / "out")))
    model = kerasvit.from_pretrained(folder)
    transform = kerasvit.Preprocessing.from_config(
        json.loads((out / "export.json").read_text())["preprocessing"]
    )
    pixels = np.stack([transform(photo, normalize=False) for photo in photos])
    found = runtime.READERS[name](out)(pixels)
    labels = (out / "labels.txt").read_text().splitlines()
    for row, expected in zip(found, kerasvit.classify(model, photos, top=3)):
        order = np.argsort(-row)
        assert [labels[i] for i in order] == [label for label, _ in expected]
        np.testing.assert_allclose(row[order], [p for _, p in expected], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("several", rest_long([True, False]))
def test_a_calibrated_model(several, images, tmp_path):
    require(FORMAT)
    model = kerasvit.from_pretrained(saved(tmp_path / "vit"))
    classes, random = len(NAMES), np.random.default_rng(0)
    labels = random.integers(classes, size=40)
    if several:
        model.record["problem_type"] = "multi_label_classification"
        labels = random.integers(2, size=(40, classes))
    pixels = random.normal(size=(40, *model.input_shape[1:])).astype("float32")
    kerasvit.calibrate(model, (pixels, labels))
    kerasvit.save_pretrained(model, tmp_path / "vit")
    out = export.export(Config(str(tmp_path / "vit"), FORMAT, str(tmp_path / "out")))
    stated = json.loads((out / "export.json").read_text())["output"]
    assert stated["task"] == ("multilabel" if several else "single_label")
    photos = sorted((images("cat", 3)).glob("*/*.jpg"))
    shown = np.stack([model.preprocessing(photo, normalize=False) for photo in photos])
    found = runtime.READERS[FORMAT](out)(shown)
    thresholds = np.array(stated["thresholds"] or [0] * classes)
    for row, expected in zip(found, kerasvit.classify(model, photos, top=classes)):
        assert {NAMES[i] for i in np.flatnonzero(row >= thresholds)} == {
            name for name, _ in expected
        }
        for name, share in expected:
            assert row[NAMES.index(name)] == pytest.approx(share, abs=1e-5)


PAGE = (Path(export.__file__).parent / "EXPORT.md").read_text()
OTHER = {"crop": 0.8, "kernel": "bilinear", "mean": [0.1, 0.2, 0.3], "std": 0.4}


def photograph(path):
    """A picture that is turned by its EXIF orientation."""
    x, y = np.meshgrid(np.linspace(0, 255, 50), np.linspace(0, 255, 37))
    picture = np.stack([x, y, (x * y) % 256], -1).astype("uint8")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(picture).save(path, exif=exif)


def code_of(name):
    """The code of the page for a format."""
    use = PAGE.split("## Use")[1].split("\n## ")[0]
    start, *formats, end = re.findall(r"```python\n(.*?)```", use, re.DOTALL)
    [code] = [each for each in formats if f"# --format {name}" in each]
    return start + code + end


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_the_code_of_the_page_predicts_what_classify_predicts(
    name, tmp_path, monkeypatch, capsys
):
    require(name)
    if name == "litert":
        pytest.importorskip("ai_edge_litert")
    model = randomised(tiny("VisionTransformer"))
    transform = kerasvit.Preprocessing(16, **OTHER)
    model.record |= {"preprocessing": transform.to_config(), "label_names": NAMES}
    kerasvit.save_pretrained(model, tmp_path / "vit")
    monkeypatch.chdir(tmp_path)
    export.export(Config("vit", name, "out"))
    photograph("cat.jpg")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "transform", raising=False)
    capsys.readouterr()
    found = {}
    exec(code_of(name), found)
    expected = kerasvit.classify(model, "cat.jpg")
    lines = [f"{share:.1%} {label}" for label, share in expected]
    assert capsys.readouterr().out.splitlines() == lines
    np.testing.assert_allclose(
        np.sort(found["probabilities"][0])[::-1], [p for _, p in expected], atol=1e-5
    )
    monkeypatch.delitem(sys.modules, "transform")


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("values", ["pixels", "normalized"])
@pytest.mark.parametrize("size", [16, (12, 20)])
@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize(
    ("kernel", "antialias", "crop"),
    [("bicubic", True, 0.875), ("lanczos", True, 1.0), ("bilinear", False, 0.6)],
)
def test_the_transform_beside_an_export(
    kernel, antialias, crop, mode, size, values, tmp_path, monkeypatch
):
    fields = {"kernel": kernel, "antialias": antialias, "crop": crop, "mode": mode}
    transform = kerasvit.Preprocessing(size, **fields, mean=0.3, std=[0.2, 0.3, 0.4])
    about = {"preprocessing": transform.to_config(), "input": {"values": values}}
    (tmp_path / "export.json").write_text(json.dumps(about))
    shutil.copy(export.TRANSFORM, tmp_path)
    read = runpy.run_path(str(tmp_path / "transform.py"))["read"]
    photograph(tmp_path / "cat.jpg")
    kinds = [tmp_path / "cat.jpg", Image.open(tmp_path / "cat.jpg").convert("P")]
    for photo in [*kinds, Image.open(tmp_path / "cat.jpg").convert("CMYK")]:
        expected = transform(photo, normalize=values == "normalized")
        if antialias:
            np.testing.assert_array_equal(read(photo), expected)
        np.testing.assert_allclose(read(photo), expected, atol=1e-3)
    deep = Image.fromarray(np.zeros((4, 4), "uint16"))
    with pytest.raises(ValueError, match="^The image has more than 8 bits"):
        read(deep)
    deep.convert("L").save(tmp_path / "damaged.png", exif=b"Exif\0\0MM\0*")
    for each in (transform, read):
        with pytest.raises(ValueError, match="damaged.png cannot be read as an image"):
            each(tmp_path / "damaged.png")


@pytest.mark.long
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize(("builder", "name"), [x for x in LONG if x[1] in WRITTEN])
def test_families(builder, name, batch, tmp_path):
    if name not in WRITTEN:
        pytest.skip(f"{BACKEND} does not write {name}")
    require(name)
    out = str(tmp_path / "out")
    folder = saved(tmp_path / "model", builder)
    export.export(Config(folder, name, out, batch=batch, outputs="logits"))
    found = json.loads((tmp_path / "out/export.json").read_text())
    assert found["input"]["shape"] == [batch, 16, 16, 3]
    sizes = [batch] * 11 if batch else list(checking.BATCH_SIZES)
    assert found["compared"]["batch_sizes"] == sizes and sum(sizes) >= 32
    assert found["compared"]["relative"] < 1e-5


@pytest.mark.long
@pytest.mark.parametrize(("name", "dtype"), QUANTISED)
def test_quantised_models(name, dtype, tmp_path):
    require(name)
    folder = saved(tmp_path / "model", "VisionTransformer")
    export.export(Config(folder, name, str(tmp_path / "out"), dtype=dtype))
    found = json.loads((tmp_path / "out/export.json").read_text())
    assert found["dtype"] == dtype and found["compared"]["relative"] < 1e-5


def served(folder, inputs="pixels", outputs="probabilities", batch=None):
    candidate = candidates.load(str(folder), headless=True)
    return writing.served(candidate, inputs, outputs, batch)


def pixels(count=2):
    return np.random.default_rng(0).uniform(0, 255, (count, 16, 16, 3)).astype("f4")


@pytest.mark.slow
def test_pixels_are_normalised_and_logits_become_probabilities(tmp_path):
    colours = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    model = tiny("VisionTransformer")
    transform = kerasvit.Preprocessing(16, **colours)
    model.record["preprocessing"] = transform.to_config()
    kerasvit.save_pretrained(model, tmp_path / "vit")
    logits = model((pixels() / 255 - colours["mean"]) / colours["std"])
    found = served(tmp_path / "vit").model(pixels())
    expected = softmax(keras.ops.convert_to_numpy(logits))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(found), expected, atol=1e-5)


def test_normalised_images_and_logits(tmp_path):
    saved(tmp_path / "vit")
    found = served(tmp_path / "vit", "normalized", "logits", batch=2)
    x = pixels() / 127.5 - 1
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(found.model(x)),
        keras.ops.convert_to_numpy(tiny("VisionTransformer")(x)),
        atol=1e-5,
    )
    assert found.model.input_shape == (2, 16, 16, 3)
    assert (found.low, found.high) == (-1, 1)


def test_a_model_that_normalises_takes_its_pixels(tmp_path):
    normalization = {"mean": 0.5, "std": 0.5}
    saved(tmp_path / "vit", normalization=normalization)
    found = served(tmp_path / "vit", outputs="logits").model(pixels())
    expected = tiny("VisionTransformer")(pixels() / 127.5 - 1)
    np.testing.assert_allclose(
        *map(keras.ops.convert_to_numpy, (found, expected)), atol=1e-5
    )
    with pytest.raises(ValueError, match="leave --inputs out"):
        served(tmp_path / "vit", inputs="normalized")


def test_a_model_without_classes_returns_features(tmp_path):
    saved(tmp_path / "vit", names=None, num_classes=0)
    found = served(tmp_path / "vit")
    assert (found.outputs, found.model.output_shape) == ("features", (None, 16))


@pytest.mark.slow
@pytest.mark.parametrize("kind", mainly_on_last(["block", "segmenter", "normalising"]))
def test_maps_of_pixels(kind, tmp_path):
    built_in = {"mean": OTHER["mean"], "std": [OTHER["std"]] * 3}
    normalising = {"normalization": built_in} if kind == "normalising" else {}
    model = tiny("VisionTransformer", **normalising)
    transform = kerasvit.Preprocessing(16, **OTHER)
    model.record["preprocessing"] = transform.to_config()
    built, x, values = kerasvit.features(model, -1), pixels(), None
    if kind == "segmenter":
        built, values = segmentation.segmenter(built, 5), "pixels"
    elif kind == "block":
        x = (x / 255 - OTHER["mean"]) / OTHER["std"]
    built.save(tmp_path / "maps.keras")
    candidate = candidates.load(str(tmp_path / "maps.keras"), values, headless=True)
    found = writing.served(candidate, "pixels", "probabilities", None)
    assert found.outputs == "maps" and not candidate.has_head
    assert found.transform == transform
    shown, expected = map(keras.ops.convert_to_numpy, (found.model(pixels()), built(x)))
    np.testing.assert_allclose(shown, expected, atol=1e-5 * abs(expected).max())


@pytest.mark.slow
@on_last_backend
def test_several_outputs_are_refused(tmp_path):
    kerasvit.features(tiny("SwinTransformer")).save(tmp_path / "maps.keras")
    with pytest.raises(ValueError, match="a file has one output, and .* Export each"):
        served(tmp_path / "maps.keras")


@on_last_backend
def test_a_model_for_any_size_is_exported_for_that_of_its_transform(tmp_path):
    model = kerasvit.resize(tiny("VisionTransformer"), (None, None))
    kerasvit.save_pretrained(model, tmp_path / "vit")
    config = Config(str(tmp_path / "vit"), FORMAT)
    assert export.load(config).model.input_shape == (None, 16, 16, 3)
    larger = dataclasses.replace(config, image_size=(24, 32))
    assert export.load(larger).model.input_shape == (None, 24, 32, 3)


@pytest.mark.slow
@on_last_backend
def test_adapters_are_merged(tmp_path):
    model = tiny("VisionTransformer")
    kerasvit.add_lora(model, 2)
    for variable in model.trainable_weights:
        variable.assign(keras.random.normal(variable.shape, seed=1))
    kerasvit.save_pretrained(model, tmp_path / "vit", keep_adapters=True)
    loaded = export.load(Config(str(tmp_path / "vit"), FORMAT)).model
    assert loaded.adapters is None
    found, expected = (keras.ops.convert_to_numpy(m(pixels())) for m in (loaded, model))
    np.testing.assert_allclose(found, expected, atol=1e-5 * abs(expected).max())


@pytest.mark.slow
@on_last_backend
def test_the_precision_of_a_file_is_refused_where_the_option_is(tmp_path):
    model = tiny("VisionTransformer")
    assert writing.precision(model) == "float32"
    model.quantize("int8")
    kerasvit.save_pretrained(model, tmp_path / "vit")
    for dtype in ("float32", "int8"):
        config = Config(str(tmp_path / "vit"), FORMAT, dtype=dtype)
        assert writing.precision(export.load(config).model) == "int8"
    with pytest.raises(ValueError, match="is int8, which litert does not.*was made fr"):
        formats.check_model("litert", "int8", "tensorflow")
    half = tiny("VisionTransformer", dtype="mixed_bfloat16")
    assert writing.precision(half) == "mixed_bfloat16"


@on_last_backend
def test_probabilities_stay_as_they_are():
    image = keras.Input((16, 16, 3))
    x = keras.layers.Dense(3, activation="softmax")(keras.layers.Flatten()(image))
    model = keras.Model(image, x)
    assert writing.probabilities(model, x) is x


@pytest.mark.slow
def test_several_labels_and_one_logit_have_sigmoids():
    for classes, stated, name in (
        (3, None, "softmax"),
        (3, "single_label_classification", "softmax"),
        (3, "multi_label_classification", "sigmoid"),
        (1, None, "sigmoid"),
    ):
        model = kerasvit.ViTTi16(depth=1, image_size=32, num_classes=classes)
        if stated:
            model.record["problem_type"] = stated
        last = writing.probabilities(model, model.outputs[0])
        assert keras.Model(model.inputs, last).layers[-1].name == name
    model.record["problem_type"] = "regression"
    with pytest.raises(ValueError, match="regression and has no probabilities"):
        writing.probabilities(model, model.outputs[0])
    layers = [keras.Input((4, 4, 3)), keras.layers.Flatten()]
    inner = keras.Sequential([*layers, keras.layers.Dense(1, activation="sigmoid")])
    model = keras.Sequential([keras.Input((4, 4, 3)), inner])
    assert writing.probabilities(model, model.outputs[0]) is model.outputs[0]


@pytest.mark.slow
def test_a_file_that_its_runtime_cannot_run_leaves_nothing(tmp_path, monkeypatch):
    require(FORMAT)
    monkeypatch.setattr(export.writing, "write", lambda *_: None)
    folder = saved(tmp_path / "vit", names=None)
    config = Config(folder, FORMAT, str(tmp_path / "made" / "out"))
    with pytest.raises(command_line.BadInput, match="cannot run the exported model"):
        export.export(config)
    assert not [*(tmp_path / "made").iterdir()]


@on_last_backend
def test_a_new_model_returns_zeros_and_is_exported(monkeypatch):
    sizes = enumerate(checking.BATCH_SIZES)
    zeros = {str(i): np.zeros((size, 3)) for i, size in sizes}
    monkeypatch.setattr(checking, "_read_back", lambda *_: zeros)
    monkeypatch.setattr(checking, "reader", lambda name: "runtime 1.0")
    model = tiny("VisionTransformer")
    for each in model.weights:
        each.assign(0 * each)
    errors = checking.check(model, "float32", FORMAT, Path("none"), 0.0, 1.0)
    assert (errors.absolute, errors.relative) == (0.0, 0.0)
    checking.check_errors(errors, "float32")


@on_last_backend
def test_a_file_with_other_outputs_leaves_nothing(tmp_path, monkeypatch):
    sizes = enumerate(checking.BATCH_SIZES)
    wrong = {str(i): np.zeros((size, 3)) for i, size in sizes}
    monkeypatch.setattr(export.writing, "write", lambda *_: None)
    monkeypatch.setattr(checking, "_read_back", lambda *_: wrong)
    folder = saved(tmp_path / "vit", names=None)
    config = Config(folder, FORMAT, str(tmp_path / "made" / "out"))
    with pytest.raises(command_line.BadInput, match="differs from the Keras model by"):
        export.export(config)
    assert not [*(tmp_path / "made").iterdir()]


@on_last_backend
@pytest.mark.parametrize("value", [np.nan, 2e-4])
def test_errors_that_do_not_pass(value):
    errors = checking.Errors(value, value, (1,), "runtime 1.0")
    with pytest.raises(ValueError, match="differs"):
        checking.check_errors(errors, "float32")


@on_last_backend
@pytest.mark.parametrize("changes", [1.0, 10.0])
def test_rounded_numbers_may_change_as_much_as_by_rounding(changes, monkeypatch):
    """A runtime with differences of 1 or 10 times those of float32's rounding."""
    images = keras.Input((8, 8, 3))
    x = keras.layers.Dense(5)(keras.layers.Flatten()(images))
    model = keras.Model(images, x)

    def runtime(name, folder, batches):
        random = np.random.default_rng(2)
        return {
            key: checking._outputs(
                model,
                each + changes * 1e-6 * each * random.normal(size=each.shape),
            )
            for key, each in batches.items()
        }

    monkeypatch.setattr(checking, "_read_back", runtime)
    monkeypatch.setattr(checking, "reader", lambda name: "runtime 1.0")
    arguments = "onnx", None, 0, 255
    small = checking.check(model, "int8", *arguments)
    assert small.of_rounding is None  # below the tolerance: not measured
    monkeypatch.setitem(checking.TOLERANCES, "int8", 0.0)
    errors = checking.check(model, "int8", *arguments)
    assert errors.of_rounding == pytest.approx(changes, rel=0.4)
    if changes < checking.MOST_OF_ROUNDING:
        checking.check_errors(errors, "int8")
    else:
        with pytest.raises(ValueError, match="differs"):
            checking.check_errors(errors, "int8")
    with pytest.raises(ValueError, match="differs"):
        nan = dataclasses.replace(errors, relative=np.nan, of_rounding=np.nan)
        checking.check_errors(nan, "int8")


@on_last_backend
def test_an_export_is_replaced_only_if_asked(tmp_path, monkeypatch):
    out = tmp_path / "out"
    for text in ("first", "second"):
        with settings.complete_folder(out, replace=text == "second") as folder:
            (folder / "export.json").write_text(text)
            assert not out.exists() or (out / "export.json").read_text() == "first"
    assert (out / "export.json").read_text() == "second"
    assert [*tmp_path.iterdir()] == [out]
    with pytest.raises(ValueError, match="exists. Give another --out, or --replace"):
        settings.check_folder(str(out), replace=False)
    monkeypatch.chdir(out)
    assert settings.check_folder(".", replace=True) == out
    (out / "export.json").unlink()
    with pytest.raises(ValueError, match="is no export"):
        settings.check_folder(str(out), replace=True)


@on_last_backend
def test_an_interrupted_export_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with settings.complete_folder(tmp_path / "out", replace=False) as folder:
            (folder / "half").write_text("")
            raise KeyboardInterrupt
    assert not [*tmp_path.iterdir()]


@on_last_backend
def test_a_precision_that_a_format_does_not_take():
    with pytest.raises(ValueError, match="litert takes no mixed.* --dtype float32 or "):
        formats.check("litert", "mixed_bfloat16", "tensorflow")
    with pytest.raises(ValueError, match="onnx takes no int4: .* subtraction"):
        formats.check("onnx", "int4", "torch")
    elsewhere = "float32 or int8, or KERAS_BACKEND=tensorflow"
    with pytest.raises(ValueError, match="openvino takes no int4: .*" + elsewhere):
        formats.check("openvino", "int4", "torch")
    formats.check_model("openvino", "int4", "tensorflow")
    with pytest.raises(ValueError, match="float8.*, or KERAS_BACKEND=torch"):
        formats.check_model("openvino", "float8", "tensorflow")


@on_last_backend
@pytest.mark.parametrize(
    ("model", "folder"),
    [
        ("ViTB16/sam", "exported/ViTB16-sam-torch"),
        ("hf://me/vit", "exported/hf-me-vit-torch"),
        ("run/model", "exported/run-torch"),
        ("vit.keras", "exported/vit-torch"),
    ],
)
def test_the_folder_is_named_after_the_model(model, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run/model").mkdir(parents=True)
    (tmp_path / "vit.keras").touch()
    assert Config(model, "torch").folder == folder


@on_last_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "nothing"}, "no file or folder nothing"),
        ({"batch": 0}, "`batch` must be at least 1"),
        pytest.param(
            {"format": "litert"},
            "litert is not written on",
            marks=[] if "litert" not in WRITTEN else pytest.mark.not_on(BACKEND),
        ),
        ({"model": "x.keras", "dtype": "mixed_bfloat16"}, "its own precision"),
        ({"out": "."}, "exists. Give another"),
        ({"out": "a file/x"}, "a file is no folder in which you may write"),
    ],
)
def test_wrong_input(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file").touch()
    config = Config(**{"model": "vit", "format": FORMAT, **options})
    with pytest.raises(command_line.BadInput, match=message):
        export.export(config)
