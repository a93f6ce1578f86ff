"""`export.py --inputs photo`: resizing and names within the file."""

import json

import export
import keras
import numpy as np
import pytest
from command import command_line
from exporting import formats, resizing, runtime
from exporting.settings import Config
from PIL import Image

import kerasvit
from tests.models.tiny import tiny
from tests.once import mainly_on_last, on_last_backend, runs_alike
from tests.random_weights import randomised
from tests.recipes.names_in_files import names_in
from tests.recipes.test_export import FORMAT

BACKEND = keras.backend.backend()
WRITTEN = [name for name, each in formats.FORMATS.items() if BACKEND in each.backends]
NAMES = ["cat", "dog", "a\nbird"]
KERNELS = [(name, True) for name in reversed(resizing.WIDTHS)] + [("bilinear", False)]
SIZES = [(301, 233), (40, 170), (19, 11)]


def photograph(height, width):
    """An image with smooth edges, as those of cameras."""
    random = np.random.default_rng(height)
    small = random.integers(0, 256, size=(9, 9, 3), dtype="uint8")
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


CASES = [
    (*kernel, mode, *size)
    for size in ((32, 0.875), ((24, 40), 1.0), ((24, 40), 0.6))
    for mode in ("center", "squash", "border")
    for kernel in KERNELS
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "antialias", "mode", "size", "crop"), mainly_on_last(CASES)
)
def test_pixels_are_those_of_the_transform(kernel, antialias, mode, size, crop):
    fields = {"kernel": kernel, "antialias": antialias, "mode": mode}
    transform = kerasvit.Preprocessing(size, crop, **fields, mean=[0.1, 0.5, 0.9])
    layer = resizing.ResizeAndCrop(transform)
    for sides in SIZES if runs_alike() else SIZES[:1]:  # JAX compiles each
        photo = photograph(*sides)
        expected = transform(photo, normalize=False)
        found = keras.ops.convert_to_numpy(layer(np.asarray(photo)[None]))[0]
        far = np.mean(np.abs(found - expected) > 1)
        # A pixel half-way between two may be counted for either.
        assert far <= (0.03 if kernel == "box" else 0.001), sides


@on_last_backend
def test_the_nearest_pixel():
    transform = kerasvit.Preprocessing(32, 0.875, kernel="nearest")
    photo = photograph(301, 233)
    found = resizing.ResizeAndCrop(transform)(np.asarray(photo)[None])
    expected = transform(photo, normalize=False)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(found)[0], expected)


def saved(path):
    model = randomised(tiny("VisionTransformer"))
    transform = kerasvit.Preprocessing(16, 0.8, std=[0.2, 0.3, 0.4])
    model.record["preprocessing"] = transform.to_config()
    kerasvit.save_pretrained(model, path, label_names=NAMES)
    return kerasvit.from_pretrained(path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.slow if name == "onnx" else pytest.mark.long
        )
        for name in WRITTEN
    ],
)
def test_a_photograph_goes_in_and_names_come_out(name, tmp_path):
    for module in formats.FORMATS[name].modules:
        pytest.importorskip(module)
    model = saved(tmp_path / "vit")
    config = Config(str(tmp_path / "vit"), name, str(tmp_path / "out"), inputs="photo")
    out = export.export(config)
    stated = json.loads((out / "export.json").read_text("utf-8"))["input"]
    assert stated == {
        "name": "image",
        "shape": [None, None, None, 3],
        "values": "photo",
        "dtype": "uint8",
    }
    names = names_in(name, out).splitlines()
    assert names == ["cat", "dog", "a bird"]
    assert names == (out / "labels.txt").read_text("utf-8").splitlines()
    run = runtime.READERS[name](out)
    for sides in SIZES:
        photo = photograph(*sides)
        [found] = run(np.asarray(photo)[None])
        expected = dict(kerasvit.classify(model, photo))
        assert names[found.argmax()] == " ".join(next(iter(expected)).split())
        shares = [expected[each] for each in NAMES]
        np.testing.assert_allclose(found, shares, atol=0.01)


@on_last_backend
def test_what_takes_no_photographs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tiny("VisionTransformer", channels=4)
    kerasvit.save_pretrained(model, "model")
    with pytest.raises(command_line.BadInput, match="the model takes 4 channels"):
        export.export(Config("model", FORMAT, "out", inputs="photo"))
    with pytest.raises(ValueError, match="quantiser of int8 takes images of one size"):
        Config("model", "onnx", "out", inputs="photo", dtype="int8").check("torch")
    assert not (tmp_path / "out").exists()
