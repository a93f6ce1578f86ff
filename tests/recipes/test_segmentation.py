"""`segmentation.py`: a linear head on features, from images and masks to a model."""

import json

import keras
import numpy as np
import pytest
import segmentation
from command import command_line
from PIL import Image
from segmenting import labelled_masks
from segmenting.settings import Config

import kerasvit
from tests.models.tiny import tiny
from tests.once import on_last_backend

QUICK = {"image_size": (16,), "batch_size": 4, "steps": 4, "validations": 2}


@pytest.fixture
def folder(tmp_path):
    """Six images, 20 × 30 pixels, with masks of classes 0 to 2 and 255."""
    root = tmp_path / "data"
    for part in ("images", "masks"):
        (root / part).mkdir(parents=True)
    random = np.random.default_rng(0)
    for i in range(6):
        image = random.integers(256, size=(20, 30, 3), dtype="uint8")
        mask = random.choice(np.array([0, 1, 2, 255], "uint8"), (20, 30))
        Image.fromarray(image).save(root / "images" / f"{i}.jpg")
        palette = Image.fromarray(mask).convert("P")
        palette.putpalette(list(range(255, -1, -1)) * 3)
        palette.putdata(mask.ravel().tolist())
        palette.save(root / "masks" / f"{i}.png")
    return root


@pytest.mark.long
def test_shapes_are_segmented(tmp_path):
    result = segmentation.segment(Config(out=str(tmp_path / "out")))
    assert result["mean_iou"] > 0.9
    assert list(result["iou"]) == ["background", "disc", "square", "triangle"]
    assert result["history"][-1]["val_mean_iou"] == pytest.approx(result["mean_iou"])


@pytest.mark.slow
@on_last_backend
def test_a_head_on_frozen_features_of_a_folder(folder, tmp_path, capsys):
    weights = tmp_path / "weights"
    model = tiny("SwinTransformer", image_size=32)
    kerasvit.save_pretrained(model, weights)
    (folder / "classes.txt").write_text("wall\ncat\ndog\n")
    out = tmp_path / "out"
    config = Config(str(folder), weights=str(weights), out=str(out), **QUICK)
    result = segmentation.segment(config)
    assert list(result["iou"]) == ["wall", "cat", "dog"]
    assert json.loads((out / "result.json").read_text()) == json.loads(
        json.dumps(result)
    )
    assert sorted(path.name for path in out.iterdir()) == [
        *("config.json", "log.csv", "model.keras", "predictions.png", "result.json"),
    ]
    assert segmentation.segment(config)["mean_iou"] == result["mean_iou"]
    segmentation.results.report(result)
    printed = " ".join(capsys.readouterr().out.split())
    count = len(labelled_masks.find(config, (16, 16)).validation)
    assert (
        f"Validation: {count} image" in printed and f"validated on {count}" in printed
    )
    assert "Test" not in printed and "tested" not in printed
    assert result["measured_on"] == "validation"
    loaded = keras.saving.load_model(out / "model.keras")
    pixels = np.full((1, 16, 16, 3), 255, "float32")
    assert loaded.predict(pixels, verbose=0).shape == (1, 16, 16, 3)
    backbone = next(x for x in loaded.layers if hasattr(x, "strides") and x.layers)
    assert backbone.strides == (4, 8)
    kernel = backbone.get_layer("embedding").kernel
    np.testing.assert_allclose(kernel, model.get_layer("embedding").kernel)


@pytest.mark.slow
@on_last_backend
def test_a_stopped_training_ends_with_the_same_weights(folder, tmp_path, monkeypatch):
    def train(name):
        config = Config(str(folder), out=str(tmp_path / name), rho=0.05, **QUICK)
        segmentation.segment(config)
        model = keras.saving.load_model(tmp_path / name / "model.keras")
        return model.get_weights()

    expected, call = train("whole"), segmentation.Tested.__call__
    calls = []

    def stop(self, trainer):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return call(self, trainer)

    monkeypatch.setattr(segmentation.Tested, "__call__", stop)
    with pytest.raises(KeyboardInterrupt):
        train("stopped")
    for found, wanted in zip(train("stopped"), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@on_last_backend
def test_masks_keep_their_classes_and_batches_begin_anywhere(folder):
    dataset = labelled_masks.find(Config(str(folder)), (20, 30))
    assert dataset.class_names == ["0", "1", "2"]
    assert dataset.counts == {"train": 5, "validation": 1}
    images = dataset.train.images
    file, mask_file = images.pairs[0]
    x, y = images[0]
    np.testing.assert_array_equal(x, np.asarray(Image.open(file)))
    np.testing.assert_array_equal(y, np.asarray(Image.open(mask_file)))
    assert set(np.unique(y)) == {0, 1, 2, 255}
    batches = labelled_masks.Batches(dataset.train, 3, steps=4, seed=1)
    assert len(batches) == 4
    later = batches[3]
    batches.start_at(3)
    for one, other in zip(batches[0], later, strict=True):
        np.testing.assert_array_equal(one, other)


@on_last_backend
def test_shapes_are_the_same_each_time_and_have_all_classes():
    shapes = labelled_masks.find(Config(images=30), (48, 64)).train
    x, y = shapes[3]
    assert x.shape == (48, 64, 3) and 0 <= x.min() and x.max() <= 255
    np.testing.assert_array_equal(x, shapes[3][0])
    _, masks = labelled_masks.stacked(shapes, range(20))
    assert set(np.unique(masks)) == {0, 1, 2, 3}
    assert 0.05 < np.mean(masks > 0) < 0.5


@pytest.mark.slow
@on_last_backend
def test_wrong_input(folder, tmp_path):
    def refused(words, **options):
        config = Config(
            **{"folder": str(folder), "out": str(tmp_path / "x"), **options}
        )
        with pytest.raises(command_line.BadInput, match=words):
            segmentation.segment(config)

    refused("must hold images/NAME.jpg and masks/NAME.png", folder=str(tmp_path))
    refused("`image_size`: give one side", image_size=(1, 2, 3))
    refused("Did you mean stride_4", layers=("stride_44",), **QUICK)
    mask = folder / "masks" / "0.png"
    good = mask.read_bytes()
    Image.new("RGB", (30, 20)).save(mask)
    refused("0.png must have one channel of 8 bits", **QUICK)
    Image.new("L", (30, 21)).save(mask)
    refused(r"must have the size of its image, \(30, 20", **QUICK)
    mask.write_bytes(good[:-40])
    refused("0.png cannot be read", **QUICK)
    mask.unlink()
    refused("1 of 6 images have no mask of the same name", **QUICK)
    mask.write_bytes(good)
    (folder / "classes.txt").write_text("a\nb\n")
    refused("must name the classes of the masks, 0 to 2", **QUICK)


@on_last_backend
def test_the_command_line():
    config = segmentation.parse(["--data", "x", "--steps", "3", "--layers", "0", "1"])
    assert (config.folder, config.steps, config.layers) == ("x", 3, ("0", "1"))
    assert not config.weights and config.trains_backbone and config.rate == 2e-3
    config = segmentation.parse(["--weights", "w"])
    assert not config.trains_backbone
    config = segmentation.parse(["--weights", "w", "--train-backbone"])
    assert config.trains_backbone and config.rate == 1e-4
