"""The scripts on images with other than three channels."""

import dataclasses
import json
import runpy
from pathlib import Path

import evaluate
import export
import finetune
import inspection
import keras
import numpy as np
import pretrain
import pytest
import segmentation
from command.command_line import BadInput
from exporting import runtime
from PIL import Image
from reporting.settings import Config as Inspected
from scoring.settings import Config as Scored
from segmenting.settings import Config as Segmented

import kerasvit
from kerasvit import data
from tests.once import long_elsewhere, on_last_backend
from tests.recipes.test_export import FORMAT, require

pytestmark = pytest.mark.slow

NUMBERS = {**finetune.SMALL.numbers, "width": 16, "depth": 1, "mlp_dim": 16}
TINY = kerasvit.Variant("small", kerasvit.VisionTransformer, **NUMBERS)
BANDS = 13
HIGH = np.linspace(300, 5000, BANDS)  # of a band's values: a small part of 16 bits


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """Makes "small" a tiny model and runs in the test's folder."""
    monkeypatch.setattr(finetune, "SMALL", TINY)
    monkeypatch.chdir(tmp_path)


def written(root, channels=BANDS, count=20, dtype="uint16"):
    """A folder of two classes: band 5, or of fewer the last, is bright or dim."""
    tifffile = pytest.importorskip("tifffile")
    rng = np.random.default_rng(0)
    for name in ("bright", "dim"):
        (root / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.uniform(0.5, 1, (20, 20, channels))
            if name == "dim":
                pixels[..., min(5, channels - 1)] *= 0.3
            pixels = (pixels * HIGH[:channels]).astype(dtype)
            if channels == 1:
                Image.fromarray(pixels[..., 0]).save(root / name / f"{i}.png")
            else:
                path = root / name / f"{i}.tif"
                tifffile.imwrite(path, pixels, photometric="minisblack")
    return str(root)


def config(folder, **changes):
    options = {"steps": 2, "batch_size": 8, "image_size": (16,), "rho": 0.0}
    options["out"] = "run"
    return finetune.Config(data=folder, **{**options, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("bands") / "bands")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, folder):
    """The folder of a training from scratch."""
    out = str(tmp_path_factory.mktemp("trained") / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "SMALL", TINY)
        options = {"steps": 40, "augment": "none", "out": out}
        finetune.finetune(config(folder, channels=BANDS, **options))
    return out


@long_elsewhere
def test_measured_means_are_in_the_model_and_its_card(trained, folder):
    model = kerasvit.from_pretrained(f"{trained}/model")
    transform = kerasvit.Preprocessing(16, crop=1.0, mean=[0.5] * BANDS)
    images = data.from_folder(folder, channels=BANDS)
    assert model.preprocessing == images.train.measured(transform)
    means = 65_535 * np.array(model.preprocessing.mean)
    assert (0.45 * HIGH < means).all() and (means < 0.8 * HIGH).all()
    card = (Path(trained) / "model/README.md").read_text()
    assert "images of 16 × 16 pixels, 13 channels." in card
    assert "| channels | 13 |" in card
    assert "| means and deviations | measured on 28 training images |" in card
    assert json.dumps(model.preprocessing.mean)[:40].strip("[") in card
    assert 'kerasvit.classify(model, "image.tif")' in card
    result = json.loads((Path(trained) / "result.json").read_text())
    assert result["accuracy"] > 0.7


@long_elsewhere
def test_evaluate_and_classify_agree(trained, folder):
    [found] = evaluate.evaluate(Scored((trained,), on=(folder,), batch_size=8))
    model = kerasvit.from_pretrained(f"{trained}/model")
    files = sorted(Path(folder).glob("bright/*")) + sorted(Path(folder).glob("dim/*"))
    right = [
        kerasvit.classify(model, file, top=1)[0][0] == file.parent.name
        for file in files
    ]
    assert found.right["all"].tolist() == right


@long_elsewhere
def test_a_saved_model_tells_its_channels(trained, folder, capsys):
    options = {"weights": f"{trained}/model", "dtype": "mixed_bfloat16"}
    finetune.finetune(config(folder, **options))
    model, before = (
        kerasvit.from_pretrained(f"{run}/model").preprocessing
        for run in ("run", trained)
    )
    assert model == before
    assert "Means and deviations" not in capsys.readouterr().out


@pytest.mark.long
def test_weights_for_colours_are_trained_on_grey_images(tmp_path, capsys, caplog):
    kerasvit.save_pretrained(TINY(num_classes=3, image_size=32), "weights")
    folder = written(tmp_path / "grey", channels=1)
    with caplog.at_level("WARNING", "kerasvit"):
        finetune.finetune(
            config(folder, weights="weights", channels=1, augment="augreg_light1")
        )
    lines = [line for line in caplog.messages if "colours are left out" in line]
    assert lines == [
        "augment: changes of colours are left out for images of 1 channel."
    ]
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "Means and deviations of grey images: measured on 28 training images."
        in printed
    )
    model = kerasvit.from_pretrained("run/model")
    assert model.input_shape == (None, 16, 16, 1)
    assert 0.45 < model.preprocessing.mean[0] * 65_535 / HIGH[0] < 0.8


@on_last_backend
def test_pretraining_and_a_stated_range(tmp_path):
    folder = written(tmp_path / "signed", channels=4, dtype="int16")
    options = {"model": "small_vit", "epochs": None, "steps": 2, "batch_size": 8}
    settings = pretrain.Config(data=folder, channels=4, out="run", **options)
    with pytest.raises(BadInput, match="values of the type int16, of which the range"):
        pretrain.pretrain(settings)
    pretrain.pretrain(dataclasses.replace(settings, value_range=(0.0, 5000.0)))
    found = kerasvit.from_pretrained("run/model").preprocessing
    assert found.value_range == (0, 5000) and found.channels == 4
    assert 0.01 < found.mean[0] < 0.1


@on_last_backend
def test_images_of_other_channels_are_refused_at_once(folder, trained, tmp_path):
    with pytest.raises(BadInput, match=r"0\.tif.*--channels of finetune"):
        finetune.finetune(config(folder))
    with pytest.raises(BadInput, match=r"0\.tif must have 12 channels.*20, 20, 13"):
        finetune.finetune(config(folder, channels=12))
    with pytest.raises(BadInput, match="digits are RGB, and the weights are for 13"):
        finetune.finetune(
            dataclasses.replace(config(None, weights=f"{trained}/model"), data=None)
        )
    with pytest.raises(BadInput, match="images of digits are RGB, and the model takes"):
        evaluate.evaluate(Scored((trained,), on=("digits",)))
    with pytest.raises(BadInput, match="corruptions and VTAB are for RGB"):
        evaluate.evaluate(Scored((trained,), on=(folder,), corrupt=("contrast",)))
    kerasvit.save_pretrained(TINY(num_classes=2, image_size=16), "rgb")
    with pytest.raises(BadInput, match="must take the same images.*13 channels, rgb"):
        evaluate.evaluate(Scored((trained, "rgb"), on=(folder,)))
    with pytest.raises(BadInput, match="from 0 to 12. Received: .*13"):
        inspection.inspect(Inspected((trained,), folder, bands=(3, 2, 13)))


@long_elsewhere
def test_the_report_draws_bands(trained, folder):
    options = {"only": ("attention", "embeddings"), "images": 8}
    found = inspection.inspect(
        Inspected((trained,), folder, bands=(3, 2, 1), **options)
    )
    numbers = {
        name: each["models"]["run"]["numbers"]
        for name, each in found["measures"].items()
    }
    assert np.shape(numbers["attention"]["images"]) == (4, 16, 16, 3)
    assert np.shape(numbers["embeddings"]["filters"])[1:] == (8, 8, 3)


@pytest.mark.long
def test_an_export_takes_and_reads_the_bands(trained, folder):
    require(FORMAT)
    out = export.export(export.Config(trained, FORMAT, "out"))
    read = runpy.run_path(str(out / "transform.py"))["read"]
    model = kerasvit.from_pretrained(f"{trained}/model")
    files = sorted(Path(folder).glob("*/1*.tif"))
    pixels = np.stack([read(file) for file in files])
    expected = [model.preprocessing(file, normalize=False) for file in files]
    np.testing.assert_array_equal(pixels, expected)
    found = runtime.READERS[FORMAT](out)(pixels)
    for row, best in zip(found, kerasvit.classify(model, files, top=2), strict=True):
        shares = dict(best)
        names = (out / "labels.txt").read_text().splitlines()
        np.testing.assert_allclose(row, [shares[name] for name in names], atol=1e-4)


@on_last_backend
@pytest.mark.parametrize("values", ["pixels", "normalized"])
@pytest.mark.parametrize("channels", [1, 3, 13])
def test_the_transform_beside_an_export_reads_every_file(channels, values, tmp_path):
    tifffile = pytest.importorskip("tifffile")
    pixels = np.random.default_rng(0).integers(0, 4000, (30, 22, channels))
    transform = kerasvit.Preprocessing(
        16, mean=[0.3] * channels, std=[0.2] * channels, value_range=(0, 4095)
    )
    about = {"preprocessing": transform.to_config(), "input": {"values": values}}
    (tmp_path / "export.json").write_text(json.dumps(about))
    (tmp_path / "transform.py").write_text(export.TRANSFORM.read_text())
    read = runpy.run_path(str(tmp_path / "transform.py"))["read"]
    np.save(tmp_path / "a.npy", pixels.astype("int32"))
    tifffile.imwrite(tmp_path / "a.tif", np.squeeze(pixels.astype("uint16")))
    Image.fromarray(pixels[..., 0].astype("uint16")).save(tmp_path / "a.png")
    for name in ("a.npy", "a.tif", *(["a.png"] if channels == 1 else [])):
        expected = transform(tmp_path / name, normalize=values == "normalized")
        np.testing.assert_array_equal(read(tmp_path / name), expected)
    with pytest.raises(ValueError, match=f"takes {channels} channels"):
        read(np.zeros((20, 20, 5), "uint8"))


@long_elsewhere
def test_segmentation_of_the_weights_channels(trained, tmp_path):
    images, masks = tmp_path / "set/images", tmp_path / "set/masks"
    images.mkdir(parents=True), masks.mkdir()
    tifffile = pytest.importorskip("tifffile")
    rng = np.random.default_rng(0)
    for i in range(6):
        pixels = (rng.uniform(size=(20, 20, BANDS)) * HIGH).astype("uint16")
        tifffile.imwrite(images / f"{i}.tif", pixels, photometric="minisblack")
        mask = rng.integers(0, 2, (20, 20), dtype="uint8")
        Image.fromarray(mask).save(masks / f"{i}.png")
    options = {"steps": 2, "batch_size": 2, "validations": 1, "bands": (3, 2, 1)}
    weights = f"{trained}/model"
    settings = Segmented(str(tmp_path / "set"), weights=weights, out="seg", **options)
    segmentation.segment(settings)
    assert Path("seg/predictions.png").is_file()
    model = keras.saving.load_model("seg/model.keras")
    assert model.input_shape == (None, 16, 16, BANDS)
    with pytest.raises(BadInput, match="shapes are RGB, and the weights are for 13"):
        segmentation.segment(Segmented(weights=weights, out="other", **options))
