import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import finetune
import numpy as np
import pytest
import tensorflow_datasets
import training

import kerasvit
from tests.once import on_last_backend

SCRIPT = Path(finetune.__file__)


NUMBERS = {**finetune.SMALL.numbers, "width": 8, "depth": 1, "mlp_dim": 8}
TINY = kerasvit.Variant("small", kerasvit.VisionTransformer, **NUMBERS)


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """The smallest of models, in a folder of its own."""
    monkeypatch.setattr(finetune, "SMALL", TINY)
    monkeypatch.chdir(tmp_path)


def config(**changes):
    return dataclasses.replace(
        finetune.Config(steps=2, batch_size=8, compare=False, out="run"), **changes
    )


@pytest.fixture
def photos(images):
    images("cat", 10)
    return str(images("dog", 10))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A training on digits: its configuration, result and the weights it began with."""
    starts, restore = [], training.Progress.restore

    def spy(self, trainer):
        starts.append(trainer.get_weights())
        return restore(self, trainer)

    out = str(tmp_path_factory.mktemp("digits") / "run")
    settings = config(compare=True, batch_size=180, out=out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "SMALL", TINY)
        patch.setattr(training.Progress, "restore", spy)
        return settings, finetune.finetune(settings), starts


def test_model_classifies(finished):
    model = kerasvit.from_pretrained(f"{finished[0].out}/model")
    [(name, chance)] = kerasvit.classify(model, np.zeros((8, 8), "uint8"), top=1)
    assert name in "0123456789" and 0 < chance < 1


def test_leaves_curves_and_results_and_nothing_else(finished):
    names = {path.name for path in Path(finished[0].out).iterdir()}
    assert names == {"config.json", "result.json", "curves.png", "model"}


def test_the_card_says_how_it_was_trained(finished):
    settings, result, _ = finished
    card = (Path(settings.out) / "model" / "README.md").read_text()
    accuracy = result["results"]["with SAM"]["accuracy"]
    for row in (
        f"| accuracy | {accuracy:g} |",
        f"| method | SAM, rho {settings.rho:g} |",
        "| recipe | recipes/finetune.py |",
        f"| batch_size | {settings.batch_size} |",
    ):
        assert row in card
    assert str(settings.out) not in card.split("## Training")[1]


def test_both_trainings_begin_at_the_same_weights(finished):
    plain, sam = finished[2]
    for a, b in zip(plain, sam, strict=True):
        np.testing.assert_array_equal(a, b)


def test_finished_training_shows_its_result(finished, capsys):
    again = finetune.finetune(finished[0])
    assert again == json.loads(json.dumps(finished[1]))
    assert "is finished" in capsys.readouterr().out


def test_other_settings_in_the_same_folder(finished):
    settings = dataclasses.replace(finished[0], rho=0.2)
    with pytest.raises(training.BadInput, match=r"(?s)other settings.*rho: .* 0.2 now"):
        finetune.finetune(settings)


def test_folder_with_splits_and_images_not_square(images):
    for name in ("cat", "dog"):
        images(f"train/{name}", 8)
        root = images(f"val/{name}", 4)
    result = finetune.finetune(
        config(data=str(root), image_size=(16, 24), augment="photo", epochs=1)
    )
    assert result["images"] == {"train": 16, "validation": 8, "test": 8}
    assert result["test"] == "val"
    model = kerasvit.from_pretrained("run/model")
    assert model.input_shape == (None, 16, 24, 3)
    assert model.record["label_names"] == ["cat", "dog"]


def test_tensorflow_datasets_in_mixed_precision():
    with tensorflow_datasets.testing.mock_data(num_examples=8):
        finetune.finetune(config(dataset="oxford_iiit_pet", dtype="mixed_bfloat16"))
    model = kerasvit.from_pretrained("run/model")
    assert len(model.record["label_names"]) == 37


def test_weights_keep_their_transform(photos):
    model = finetune.build(config(), ["a", "b", "c"])
    model.record["preprocessing"].update({"mean": [0.1, 0.2, 0.3], "crop": 0.5})
    start = str(kerasvit.save_pretrained(model, "start"))
    tuned, _, _ = training.prepare(config(data=photos, weights=start), finetune.build)
    assert tuned.record["preprocessing"] == model.record["preprocessing"]
    for a, b in zip(model.get_weights()[:-2], tuned.get_weights()[:-2], strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_with_their_own_normalisation_get_pixels(photos):
    plain = kerasvit.save_pretrained(finetune.build(config(), ["a", "b"]), "plain")
    model = kerasvit.from_pretrained(plain, include_preprocessing=True)
    start = str(kerasvit.save_pretrained(model, "start"))
    tuned, _, _ = training.prepare(config(data=photos, weights=start), finetune.build)
    assert tuned.record["kwargs"]["normalization"]


def test_resumed_training_equals_the_uninterrupted(photos, monkeypatch):
    settings = config(data=photos, epochs=3, compare=True, dropout=0.1)
    whole = finetune.finetune(dataclasses.replace(settings, out="whole"))
    saved = training.Progress.on_epoch_end

    def killed_in_the_third_round(self, epoch, logs=None):
        if self.folder.name == "with_SAM" and epoch == 2:
            (self.folder / "unfinished.weights.h5").write_text("half")
            (self.folder / "round_0003.json").write_text("[]")
            raise KeyboardInterrupt
        saved(self, epoch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(training.Progress, "on_epoch_end", killed_in_the_third_round)
        with pytest.raises(KeyboardInterrupt):
            finetune.finetune(settings)
    assert not Path("run/result.json").exists()
    resumed = finetune.finetune(settings)

    models = [kerasvit.from_pretrained(f"{run}/model") for run in ("whole", "run")]
    for a, b in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    for name, result in whole["results"].items():
        again = resumed["results"][name]
        assert again["loss"] == pytest.approx(result["loss"], abs=1e-5)
        assert len(again["history"]) == 3


def test_folder_whose_first_file_was_never_finished(tmp_path):
    import progress

    images = SimpleNamespace(label_names=["a", "b"], counts={"train": 2})
    (tmp_path / ".config.json").write_text('{"mod')
    assert progress.claim_folder(tmp_path, config(), images) == tmp_path
    assert progress.claim_folder(tmp_path, config(), images) == tmp_path
    (tmp_path / "config.json").write_text('{"mod')
    with pytest.raises(ValueError, match="config.json is damaged.*Delete"):
        progress.claim_folder(tmp_path, config(), images)
    with pytest.raises(ValueError, match="cannot be used"):
        progress.claim_folder(tmp_path / "config.json", config(), images)


def test_folder_with_other_files():
    Path("run").mkdir()
    Path("run/thesis.tex").write_text("years of work")
    with pytest.raises(training.BadInput, match="run holds other files"):
        finetune.finetune(config())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rho": -0.1}, "`rho` must be at least 0. Received: -0.1"),
        ({"steps": 0}, "`steps` must be at least 1"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be"),
        ({"dropout": 1.0}, "`dropout` must be at least 0 and at most 0.99"),
        ({"image_size": (30,)}, "`image_size` must be a multiple of the patch size"),
        ({"model": "vitb61"}, "`model`: there is no 'vitb61'. Close: .*ViTB16"),
        ({"dataset": "cifar11"}, "`dataset`: there is no 'cifar11'. Close: .*cifar10"),
        ({"data": "nowhere"}, "`data`: there is no folder nowhere"),
        ({"weights": "nowhere.npz"}, "nowhere.npz"),
    ],
)
def test_bad_input_costs_no_training(changes, message):
    with pytest.raises(training.BadInput, match=message):
        finetune.finetune(config(**changes))
    assert not Path("run").exists()


def test_images_in_the_wrong_range(monkeypatch):
    batches = [(np.full((8, 32, 32, 3), 200.0), np.zeros(8))]
    monkeypatch.setattr(training, "training_batches", lambda *a, **k: batches)
    with pytest.raises(training.BadInput, match="looks like 0 to 255"):
        finetune.finetune(config())


@on_last_backend
def test_error_on_the_command_line_is_a_line():
    run = subprocess.run(
        [sys.executable, SCRIPT, "--rho=-1"],
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert "Error: `rho` must be at least 0. Received: -1.0." in run.stderr
    assert "Traceback" not in run.stderr


def test_preset_is_what_the_options_change():
    parsed = finetune.parse(["pets", "--rho", "0.1", "--image-size", "64", "96"])
    assert parsed == dataclasses.replace(
        finetune.PRESETS["pets"], rho=0.1, image_size=(64, 96)
    )


def test_options_without_a_preset():
    parsed = finetune.parse(["--data", "photos/", "--epochs", "5"])
    assert parsed == finetune.Config(data="photos/", epochs=5)


def test_misspelled_preset():
    with pytest.raises(training.BadInput, match="no preset 'pet'. Close: pets"):
        finetune.parse(["pet"])


def test_misspelled_option(capsys):
    with pytest.raises(SystemExit):
        finetune.parse(["--modle", "ViTB16"])
    assert "--model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("preset", "images", "expected"),
    [
        ("cifar10", 49_000, (50, 200)),
        ("pets", 3_606, (50, 10)),
        ("flowers", 1_020, (50, 10)),
        ("imagenet", 1_255_543, (8, 2_500)),
    ],
)
def test_presets_make_the_steps_of_the_paper(preset, images, expected):
    assert training.plan(finetune.PRESETS[preset], images) == expected


@pytest.mark.parametrize("steps", [1, 49, 51, 60, 99, 101, 120, 1_000])
@pytest.mark.parametrize("steps_per_epoch", [1, 2, 7])
def test_no_more_steps_than_asked_for_but_to_fill_a_round(steps, steps_per_epoch):
    wanted = dataclasses.replace(config(), epochs=None, steps=steps, batch_size=8)
    rounds, each = training.plan(wanted, 8 * steps_per_epoch)
    assert steps <= rounds * each < steps + each and rounds <= 50
