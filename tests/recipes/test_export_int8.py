"""`export.py --dtype int8` with the quantiser of a runtime."""

import collections
import json

import export
import keras
import numpy as np
import pytest
from command import command_line
from exporting import checking, formats, quantizing, runtime, writing
from exporting.settings import Config
from PIL import Image

import kerasvit
from tests.models.tiny import tiny
from tests.once import on_last_backend, rest_long
from tests.random_weights import randomised
from tests.recipes.names_in_files import names_in

BACKEND = keras.backend.backend()
FORMATS = [
    name
    for name, each in formats.FORMATS.items()
    if each.quantizer and BACKEND in each.backends
]
NAMES = ["cat", "dog", "a bird"]


def require(name):
    """Skips a test where a package of the format is not installed."""
    form = formats.FORMATS[name]
    for module in (*form.modules, *form.quantizer):
        pytest.importorskip(module)


def exported(name, path, model=None, **changes):
    model = randomised(model or tiny("VisionTransformer"))
    kerasvit.save_pretrained(model, path / "model", label_names=NAMES)
    config = Config(str(path / "model"), name, str(path / "out"), dtype="int8")
    out = export.export(config.__class__(**{**vars(config), **changes}))
    model = kerasvit.from_pretrained(path / "model")
    return model, out, json.loads((out / "export.json").read_text("utf-8"))


def photographs(folder, count=40):
    """Writes images of different brightness and contrast into a folder."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for i in range(count):
        low, high = np.sort(random.integers(0, 256, size=(2, 3)), axis=0)
        pixels = random.uniform(low, high, size=(20, 24, 3)).astype("uint8")
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


def operations(out):
    import onnx

    return {node.op_type for node in onnx.load(out / "model.onnx").graph.node}


def kernels(out):
    """All matrices and kernels of a file that have whole numbers."""
    import onnx

    found = onnx.load(out / "model.onnx").graph.initializer
    arrays = [onnx.numpy_helper.to_array(each) for each in found if len(each.dims) > 1]
    return [each for each in arrays if each.dtype.kind in "iu"]


def opset(out):
    import onnx

    [version] = [
        each.version
        for each in onnx.load(out / "model.onnx").opset_import
        if not each.domain
    ]
    return version


@pytest.mark.slow
@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_the_runtime_computes_with_whole_numbers(name, calibrated, tmp_path):
    require(name)
    photos = photographs(tmp_path / "photos")
    options = {"calibrate": str(photos)} if calibrated else {}
    model, out, stated = exported(name, tmp_path, **options)
    assert stated["dtype"] == "int8" and stated["output"]["label_names"] == NAMES
    assert names_in(name, out).splitlines() == NAMES
    assert stated["compared"]["relative"] < 1e-4  # of the file before, in float32
    found = stated["int8"]
    assert found["calibration_images"] == (40 if calibrated else 0)
    # Processors without VNNI compute calibrated products of OpenVINO with overflow.
    most = 0.5 if calibrated and name == "openvino" else 0.2
    assert 0 < found["compared"]["difference"] < most * found["compared"]["spread"]
    same = found["compared"]["same_class"]
    assert same > 0.9 if calibrated else same is None
    files = sorted(photos.iterdir())
    pixels = np.stack([model.preprocessing(f, normalize=False) for f in files])
    shares = runtime.READERS[name](out)(pixels.astype("float32"))
    first = [row[0][0] for row in kerasvit.classify(model, files)]
    agree = np.mean([NAMES[i] == label for i, label in zip(shares.argmax(1), first)])
    assert agree == same if calibrated else agree > 0.9
    if name == "onnx":
        expected = "QuantizeLinear" if calibrated else "DynamicQuantizeLinear"
        assert expected in operations(out)
        assert "LayerNormalization" in operations(out)
        # Twice 255 * 64 is less than 2 ** 15.
        assert {each.dtype.name for each in kernels(out)} == {"int8"}
        assert max(np.abs(each.astype(int)).max() for each in kernels(out)) == 64
        assert opset(out) == writing.OPSET


@on_last_backend
def test_heads_are_the_products_that_no_other_follows():
    graph = [
        ("embed", ["image"], ["a"]),
        ("gelu", ["a"], ["b"]),
        ("product", ["b", "kernel"], ["c"]),
        ("add", ["a", "c"], ["d"]),
        ("head", ["d", "kernel1"], ["e"]),
        ("second head", ["d", "kernel2"], ["f"]),
        ("mean", ["e", "f"], ["g"]),
    ]
    others = {"gelu", "add", "mean"}
    found = quantizing.last(graph, lambda name: name not in others)
    assert found == ["second head", "head"]


@on_last_backend
def test_residuals_are_the_products_whose_results_are_added_to_others():
    Operation = collections.namedtuple("Operation", "kind inputs outputs")
    graph = [
        Operation("FULLY_CONNECTED", [0, 90], [1]),  # embedding
        Operation("ADD", [1, 91], [2]),  # positions
        Operation("FULLY_CONNECTED", [2, 92], [3]),
        Operation("GELU", [3], [4]),
        Operation("FULLY_CONNECTED", [4, 93], [5]),
        Operation("RESHAPE", [5, 94], [6]),
        Operation("MUL", [95, 6], [7]),  # layer scale
        Operation("ADD", [2, 7], [8]),
        Operation("FULLY_CONNECTED", [8, 96], [9]),  # head
    ]
    found = quantizing.residuals(graph, lambda op, *kinds: op.kind in kinds)
    assert [*found] == [graph[4]]


@on_last_backend
def test_the_first_images_fill_the_last_batch():
    images = np.arange(5.0).reshape(5, 1, 1, 1)
    batches = checking.in_batches(images, 3)
    assert [x[:, 0, 0, 0].tolist() for x in batches] == [[0, 1, 2], [3, 4, 0]]
    [one] = checking.in_batches(images, 7)
    assert one[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("batch", rest_long([3, 64]))  # images are 40
@pytest.mark.parametrize("calibrated", rest_long([True, False]))
@pytest.mark.parametrize("name", rest_long(FORMATS))
def test_files_of_a_fixed_batch_keep_both_heads_in_float32(
    name, calibrated, batch, tmp_path
):
    require(name)
    photos = photographs(tmp_path / "photos")
    options = {"calibrate": str(photos)} if calibrated else {}
    model = tiny("DistilledVisionTransformer")
    model, out, stated = exported(name, tmp_path, model, batch=batch, **options)
    assert stated["int8"]["compared"]["images"] == (
        40 if calibrated else max(32, batch)
    )
    if name == "onnx":
        import onnx

        graph = onnx.load(out / "model.onnx").graph
        floats = [x for x in graph.initializer if x.data_type == onnx.TensorProto.FLOAT]
        heads = [each for each in floats if sorted(each.dims)[:1] == [len(NAMES)]]
        assert len([each for each in heads if len(each.dims) == 2]) == 2


@pytest.mark.long
@pytest.mark.only_on("torch", reason="it writes ONNX")
def test_convolutions_are_quantised_with_images(tmp_path):
    photos = photographs(tmp_path / "photos")
    _, out, stated = exported(
        "onnx", tmp_path, tiny("BigTransfer"), calibrate=str(photos)
    )
    assert "QuantizeLinear" in operations(out)
    assert stated["int8"]["megabytes"] < stated["int8"]["megabytes_of_float32"]


@pytest.mark.long
@pytest.mark.only_on("tensorflow", reason="its graphs have transpositions")
def test_convolutions_with_strides_run_in_openvino(tmp_path):
    require("openvino")
    model = tiny("BigTransfer", depths=[2, 2])
    _, _, stated = exported("openvino", tmp_path, model)
    found = stated["int8"]["compared"]
    assert 0 < found["difference"] < 0.2 * found["spread"]
    import openvino

    [output] = openvino.Core().read_model(tmp_path / "out/model.xml").outputs
    assert "output_0" in output.get_names()


def called(tmp_path, **changes):
    """Exports with wrong input, and returns the message."""
    config = Config("model", "onnx", str(tmp_path / "out"), dtype="int8")
    with pytest.raises(command_line.BadInput) as error:
        export.export(config.__class__(**{**vars(config), **changes}))
    assert not (tmp_path / "out").exists()
    return str(error.value)


@pytest.mark.only_on("torch", reason="it writes ONNX")
def test_what_cannot_be_calibrated(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kerasvit.save_pretrained(tiny("VisionTransformer"), "model")
    photos = images("cat", 3)
    text = called(tmp_path, calibrate=str(photos))
    assert "has 3 images, and at least 32 are needed" in text
    (tmp_path / "empty").mkdir()
    assert "`calibrate`: empty holds no images" in called(tmp_path, calibrate="empty")
    assert "no folder or table none" in called(tmp_path, calibrate="none")
    for changes in ({"dtype": "float32"}, {"format": "torch"}):
        text = called(tmp_path, calibrate=str(photos), **changes)
        assert "`calibrate` is for --dtype int8 of litert, onnx, openvino" in text


@pytest.mark.only_on("torch", reason="it writes ONNX")
def test_a_model_that_keras_quantised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tiny("VisionTransformer")
    model.quantize("int8")
    kerasvit.save_pretrained(model, "model")
    text = called(tmp_path)
    assert "Export the model of float32 that it was made from with --dtype int8" in text


@on_last_backend
def test_a_missing_quantiser_has_its_pip_line(monkeypatch):
    real = formats.importlib.util.find_spec
    monkeypatch.setattr(
        formats.importlib.util, "find_spec", lambda n: n != "nncf" and real("keras")
    )
    with pytest.raises(ValueError, match="openvino of int8 needs nncf.*pip install nn"):
        formats.check("openvino", "int8", "torch")
    formats.check("openvino", "float32", "torch")


@on_last_backend
def test_a_line_says_that_few_images_have_the_same_class():
    compared = {"images": 50, "same_class": 0.9, "difference": 0.1, "spread": 0.2}
    int8 = {"quantizer": "onnxruntime 1.32", "calibration_images": 50}
    int8 |= {"megabytes": 22.0, "megabytes_of_float32": 86.0, "compared": compared}
    lines = quantizing.report(int8)
    assert "90.0% of 50 images have the same class." in lines
    assert "less than 98%" in lines[-1]
    compared["same_class"] = 0.99
    assert len(quantizing.report(int8)) == 2
