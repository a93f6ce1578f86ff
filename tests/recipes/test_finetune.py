import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import finetune
import numpy as np
import pytest
import tensorflow_datasets
from command.command_line import BadInput
from devices import devices
from PIL import Image
from training import (
    curves,
    defaults,
    models,
    results,
    run_folder,
    stages,
    training_data,
)

import kerasvit
from kerasvit import data
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

SCRIPT = Path(finetune.__file__)


NUMBERS = {**finetune.SMALL.numbers, "width": 8, "depth": 1, "mlp_dim": 8}
TINY = kerasvit.Variant("small", kerasvit.VisionTransformer, **NUMBERS)


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """Makes "small" a tiny model and runs in the test's folder."""
    monkeypatch.setattr(finetune, "SMALL", TINY)
    monkeypatch.chdir(tmp_path)


def config(**changes):
    return dataclasses.replace(
        finetune.Config(steps=2, batch_size=8, compare=False, out="run"), **changes
    )


def started(**changes):
    """The model at the start of its training."""
    settings = config(augment="none", **changes)
    dataset = data.from_folder(settings.data)
    model = finetune.build(settings, dataset.class_names)
    training_data.check_first_batch(settings, model, dataset)
    return model


@pytest.fixture
def photos(images):
    images("cat", 10)
    return str(images("dog", 10))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A training on digits: its configuration, result and initial weights."""
    starts, begin = [], kerasvit.Resume.on_train_begin

    def spy(self, logs=None):
        starts.append(self.model.get_weights())
        return begin(self, logs)

    out = str(tmp_path_factory.mktemp("digits") / "run")
    settings = config(batch_size=180, out=out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "SMALL", TINY)
        patch.setattr(kerasvit.Resume, "on_train_begin", spy)
        return settings, finetune.compare(settings), starts


@long_elsewhere
def test_model_classifies(finished):
    model = kerasvit.from_pretrained(f"{finished[0].out}/sam/model")
    [(name, chance)] = kerasvit.classify(model, np.zeros((8, 8), "uint8"), top=1)
    assert name in "0123456789" and 0 < chance < 1


@long_elsewhere
def test_leaves_curves_and_results_and_nothing_else(finished):
    for run, log in (("plain", "log_without_SAM.csv"), ("sam", "log_with_SAM.csv")):
        names = {path.name for path in Path(finished[0].out, run).iterdir()}
        assert names == {"config.json", "result.json", "curves.png", "model", log}


@long_elsewhere
def test_the_card_states_the_training(finished):
    settings, (_, result), _ = finished
    card = (Path(settings.out) / "sam" / "model" / "README.md").read_text()
    accuracy = result["accuracy"]
    for row in (
        "# small-digits\n",
        f"| accuracy | {100 * accuracy:.1f} % (95 % interval ",
        " %, digits, test, 359 images) |",
        "![Confusion matrix of test](confusion_test.png)",
        "| method | SAM, rho 0.05 |",
        "| recipe | recipes/finetune.py |",
        "| data | digits |",
        "| images | 1,259 for training, 179 for validation, 359 for the test |",
        "| image_size | 32 × 32 |",
        f"| batch_size | {settings.batch_size} |",
        "| steps | 2 |",
        "Licence: none is stated.",
    ):
        assert row in card
    assert str(settings.out) not in card.split("## Training")[1]


@long_elsewhere
def test_both_trainings_begin_at_the_same_weights(finished):
    plain, sam = finished[2]
    for a, b in zip(plain, sam, strict=True):
        np.testing.assert_array_equal(a, b)


def trained(accuracy, loss):
    logs = {"val_accuracy": accuracy, "val_loss": loss}
    return {"accuracy": 0.5, "loss": 1.0, "history": [{**logs, "seconds": 1.0}]}


@on_last_backend
def test_a_comparison_is_two_trainings_and_a_table(photos, capsys):
    finetune.main(config(data=photos, compare=True, license="mit", rho=0.1))
    printed = capsys.readouterr().out
    assert printed.count("Test: 4 images") == 1
    for name, folder in (("without SAM", "run/plain"), ("with SAM", "run/sam")):
        assert re.search(rf"{name} │ +[\d.]+%", printed)
        assert f'from_pretrained("{folder}/model")' in printed
        result = json.loads(Path(folder, "result.json").read_text())
        assert result["training"] == name
        card = Path(folder, "model/README.md").read_text()
        assert 'license: "mit"' in card and "Licence: mit." in card


@on_last_backend
def test_a_comparison_needs_a_radius():
    with pytest.raises(ValueError, match="no training with SAM to compare with"):
        finetune.compare(config(compare=True, rho=0.0))


@on_last_backend
def test_results_of_an_earlier_version_are_not_continued(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/result.json").write_text('{"results": {}}')
    with pytest.raises(ValueError, match="results of an earlier version"):
        run_folder.finished_result(Path("run"))


@on_last_backend
def test_the_card_of_a_folder_is_not_about_the_digits(photos):
    dataset = data.from_folder(photos)
    settings = config(data=photos, image_size=(32,))
    model = finetune.build(settings, dataset.class_names)
    settings, _ = defaults.resolve(settings, 14, "photographs", model)
    settings = dataclasses.replace(settings, model="small")
    result = {
        **trained(0.5, 1.0),
        "rho": 0.1,
        "steps_between_validations": 2,
        "test": "test",
        "images": dataset.counts,
        "start": {"begins": "the linear classifier"},
    }
    fields = results.facts(settings, model, result, "recipes/finetune.py")
    kerasvit.save_pretrained(model, "model", **fields)
    card = Path("model/README.md").read_text()
    assert "digits" not in card and "author's own" not in card
    assert "| start | the linear classifier |" in card and "linear_head" not in card
    assert "# small-images\n" in card and ", images, test, 4 images)" in card
    assert '"dataset": {"name": "images", "type": "images", "split": "test"}' in card
    assert str(Path(photos).parent) not in card and "(32,)" not in card


@on_last_backend
@pytest.mark.parametrize(
    ("head", "license"),
    [
        ("license: apache-2.0\ntags: [a]", "apache-2.0"),
        ('tags: [a]\nlicense: "mit"', "mit"),
        ("tags: [a]", None),
        ("a: &a [x]\nlicense: *a", None),
    ],
)
def test_the_card_takes_the_licence_beside_the_weights(head, license, tmp_path):
    model = finetune.build(config(), ["a", "b"])
    (tmp_path / "README.md").write_text(f"---\n{head}\n---\nlicense: none\n")
    settings = config(weights=str(tmp_path))
    assert results._license_beside(settings, model) == license
    model.record["base"] = {"source": "timm/vit", "license": "cc0-1.0"}
    assert results._license_beside(settings, model) is None


@on_last_backend
def test_one_validation_is_seen_in_the_curves(tmp_path):
    logs = {"loss": 2.0, "accuracy": 0.2, "val_loss": 2.1, "val_accuracy": 0.1}
    result = {
        "training": "with SAM",
        "history": [logs],
        "steps_between_validations": 4,
    }
    curves.draw_curves(result, tmp_path / "curves.png")
    pixels = np.asarray(Image.open(tmp_path / "curves.png").convert("RGB"), int)
    orange = np.abs(pixels - (255, 127, 14)).sum(axis=2) < 30  # tab:orange
    height, width = orange.shape
    for half in (orange[:, : width // 2], orange[:, width // 2 :]):
        assert half[: int(0.85 * height)].sum() > 2 * 25  # not those of the legend


@on_last_backend
def test_output_is_counted_in_steps(photos, capsys, monkeypatch):
    monkeypatch.setattr(stages, "MIN_ROUND_STEPS", 1)
    results.report(finetune.finetune(config(data=photos, epochs=2, batch_size=20)))
    printed = capsys.readouterr().out
    assert "2 steps, validated and saved every 1." in printed
    assert "step 1 of 2: training loss" in printed and "; validation loss" in printed
    assert "poch" not in printed and "round" not in printed
    assert "20 images is larger than the training set of 14" in printed
    assert "Its card states no licence." in printed


@pytest.mark.long
def test_settings_are_those_of_the_training(photos, capsys):
    settings = {"steps": 25, "warmup_steps": 20, "rho": 0.0}
    result = finetune.finetune(config(data=photos, out="o [new]/x", **settings))
    results.report(result)
    printed = capsys.readouterr().out
    assert "given; raised to a multiple of 13" in printed and "26 steps" in printed
    assert 'from_pretrained("o [new]/x/model")' in printed
    assert "'o [new]/x'/model" in printed
    card = Path("o [new]/x/model/README.md").read_text()
    assert "| warmup_steps | 5 |" in card and "| steps | 26 |" in card


@pytest.mark.parametrize(
    ("label_names", "message", "kept"),
    mainly_on_last(
        [
            (
                ["cat", "dog"],
                "Head: that of the weights, because it has the same 2 classes.",
                True,
            ),
            (
                ["dog", "cat"],
                "Head: zeros; that of the weights is for dog, c",
                False,
            ),
            (
                ["a", "b", "c"],
                "Head: zeros, because the weights have none for 2 c",
                False,
            ),
            (None, "have one for 2 classes, but do not name them", False),
        ]
    ),
)
def test_head_of_the_weights_is_kept_for_the_same_classes(
    label_names, message, kept, capsys
):
    model = finetune.build(config(), label_names or ["a", "b"])
    model.record["label_names"] = label_names
    model.record["problem_type"] = "multi_label_classification"
    head = model.get_layer("head")
    head.kernel.assign(np.ones(head.kernel.shape))
    start = str(kerasvit.save_pretrained(model, "start"))
    tuned = finetune.build(config(weights=start), ["cat", "dog"])
    assert message in " ".join(capsys.readouterr().out.split())
    assert tuned.record["label_names"] == ["cat", "dog"]
    assert "problem_type" not in tuned.record  # trained for one label per image
    assert np.all(np.asarray(tuned.get_layer("head").get_weights()[0]) == kept)


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [({"weights": "vit.npz"}, "vit.npz"), ({"model": "vitb61"}, "no 'vitb61'")],
)
def test_weights_and_model_are_checked_before_images_are_read(
    changes, message, monkeypatch
):
    Path("vit.npz").write_bytes(b"no weights")
    monkeypatch.setattr(training_data, "find", None)
    with pytest.raises(BadInput, match=message):
        finetune.finetune(config(dataset="cifar10", **changes))


@on_last_backend
def test_heads_for_imagenet_fit_its_numbers():
    numbers = [f"n{i:08}" for i in range(1000)]
    assert models.same_classes("imagenet1k", numbers)
    assert not models.same_classes("imagenet1k", numbers[::-1])
    assert not models.same_classes("imagenet1k", numbers[:-1])
    assert not models.same_classes("imagenet1k", [f"class {i}" for i in range(1000)])
    assert not models.same_classes(None, numbers)


@long_elsewhere
def test_finished_training_shows_its_result(finished, capsys):
    again = finetune.compare(finished[0])
    assert again == json.loads(json.dumps(finished[1]))
    assert "is finished" in capsys.readouterr().out


@long_elsewhere
def test_other_settings_in_the_same_folder(finished):
    settings = dataclasses.replace(finished[0], rho=0.2)
    with pytest.raises(BadInput, match=r"(?s)other settings.*rho: .* 0.2 now"):
        finetune.compare(settings)


@on_last_backend
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


@pytest.mark.long
def test_tensorflow_datasets_in_mixed_precision():
    with tensorflow_datasets.testing.mock_data(num_examples=8):
        finetune.finetune(config(dataset="oxford_iiit_pet", dtype="mixed_bfloat16"))
    model = kerasvit.from_pretrained("run/model")
    assert len(model.record["label_names"]) == 37


def test_weights_keep_their_transform(photos):
    model = finetune.build(config(), ["a", "b", "c"])
    model.record["preprocessing"].update({"mean": [0.1, 0.2, 0.3], "crop": 0.5})
    start = str(kerasvit.save_pretrained(model, "start"))
    tuned = started(data=photos, weights=start)
    assert tuned.record["preprocessing"] == model.record["preprocessing"]
    for a, b in zip(model.get_weights()[:-2], tuned.get_weights()[:-2], strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_with_their_own_normalisation_get_pixels(photos):
    plain = kerasvit.save_pretrained(finetune.build(config(), ["a", "b"]), "plain")
    model = kerasvit.from_pretrained(plain, include_preprocessing=True)
    start = str(kerasvit.save_pretrained(model, "start"))
    tuned = started(data=photos, weights=start)
    assert tuned.record["kwargs"]["normalization"]


@pytest.mark.long
def test_resumed_training_equals_the_uninterrupted(photos, monkeypatch):
    monkeypatch.setattr(stages, "MIN_ROUND_STEPS", 1)
    changes = {"rho": 0.05, "dropout": 0.1, "layer_decay": 0.75}
    settings = config(data=photos, epochs=3, **changes)
    whole = finetune.finetune(dataclasses.replace(settings, out="whole"))
    saved = kerasvit.Resume.on_epoch_end

    def killed_in_the_third_round(self, epoch, logs=None):
        if epoch == 2:
            (self.folder / "unfinished.npz").write_text("half")
            raise KeyboardInterrupt
        saved(self, epoch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(kerasvit.Resume, "on_epoch_end", killed_in_the_third_round)
        with pytest.raises(KeyboardInterrupt):
            finetune.finetune(settings)
    assert not Path("run/result.json").exists()
    resumed = finetune.finetune(settings)

    models = [kerasvit.from_pretrained(f"{run}/model") for run in ("whole", "run")]
    for a, b in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert resumed["loss"] == pytest.approx(whole["loss"], abs=1e-5)
    assert len(resumed["history"]) == 3


def test_lower_blocks_have_smaller_rates():
    model = TINY(image_size=32, num_classes=2)
    settings = config(layer_decay=0.5, optimizer="adamw", learning_rate=0.1)
    settings = dataclasses.replace(settings, warmup_steps=0, augment="none")
    trainer = finetune.compiled(devices.ONE, stages.Stage(settings, 1, 2), model)
    rates = trainer.optimizer.get_config()["rates"]
    paths = ["embedding/kernel", "encoder_block_0/mlp/dense_0/kernel", "head/kernel"]
    assert [rates[path][0] for path in paths] == [0.25, 0.5, 1.0]


def test_folder_whose_first_file_was_never_finished(tmp_path):
    images = SimpleNamespace(class_names=["a", "b"], counts={"train": 2})
    (tmp_path / ".config.json").write_text('{"mod')
    assert run_folder.claim(tmp_path, config(), images) == tmp_path
    assert run_folder.claim(tmp_path, config(), images) == tmp_path
    (tmp_path / "config.json").write_text('{"mod')
    with pytest.raises(ValueError, match="config.json is damaged.*Delete"):
        run_folder.claim(tmp_path, config(), images)
    with pytest.raises(ValueError, match="cannot be used"):
        run_folder.claim(tmp_path / "config.json", config(), images)


def test_folder_with_other_files():
    Path("run").mkdir()
    Path("run/thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match="run holds other files"):
        finetune.finetune(config())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rho": -0.1}, "`rho` must be at least 0. Received: -0.1"),
        ({"steps": 0}, "`steps` must be at least 1"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be"),
        ({"layer_decay": 1.5}, "`layer_decay` must be at least 1e-12 and at most 1."),
        ({"layer_decay": 0.0}, "`layer_decay` must be at least 1e-12 and at most 1."),
        ({"dropout": 1.0}, "`dropout` must be at least 0 and at most 0.99"),
        ({"image_size": (30,)}, "`image_size` of the small model must be a multiple"),
        ({"model": "vitb61"}, "`model`: there is no 'vitb61'. Close: .*ViTB16"),
        ({"dataset": "cifar11"}, "`dataset`: there is no 'cifar11'. Close: .*cifar10"),
        ({"data": "nowhere"}, "`data`: there is no folder nowhere"),
        ({"weights": "nowhere.npz"}, "nowhere.npz"),
    ],
)
def test_bad_input_costs_no_training(changes, message):
    with pytest.raises(BadInput, match=message):
        finetune.finetune(config(**changes))
    assert not Path("run").exists()


def test_images_in_the_wrong_range(monkeypatch):
    batches = [(np.full((8, 32, 32, 3), 200.0), np.zeros(8))]
    monkeypatch.setattr(data, "training_batches", lambda *a, **k: batches)
    with pytest.raises(BadInput, match="looks like 0 to 255"):
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


def test_options_override_the_preset():
    parsed = finetune.parse(["pets", "--rho", "0.1", "--image-size", "64", "96"])
    assert parsed == dataclasses.replace(
        finetune.PRESETS["pets"], rho=0.1, image_size=(64, 96)
    )


def test_options_without_a_preset():
    parsed = finetune.parse(["--data", "photos/", "--epochs", "5"])
    assert parsed == finetune.Config(data="photos/", epochs=5)


def test_misspelled_preset():
    with pytest.raises(BadInput, match="no preset 'pet'. Close: pets"):
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
    assert stages.rounds_of(finetune.PRESETS[preset], images) == expected


@pytest.mark.parametrize("steps", [1, 49, 51, 60, 99, 101, 120, 1_000])
@pytest.mark.parametrize("steps_per_epoch", [1, 2, 7])
def test_steps_are_rounded_up_to_full_rounds(steps, steps_per_epoch):
    wanted = dataclasses.replace(config(), epochs=None, steps=steps, batch_size=8)
    rounds, each = stages.rounds_of(wanted, 8 * steps_per_epoch)
    assert steps <= rounds * each < steps + each and rounds <= 50
