"""Distillation in the recipes: loading and adapting teachers, and trainings."""

import dataclasses
import json

import keras
import numpy as np
import pretrain
import pytest
from command.command_line import BadInput, check
from keras import layers
from scoring import any_model
from training import run_folder, trainers

import kerasvit
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

SIZES = {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8}
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]


def settings(**changes):
    return pretrain.Config(**{"epochs": 1, "batch_size": 100, "out": "run", **changes})


def vit(seed=0, size=8, classes=3, mean=MEAN, std=STD, builder=None, **options):
    keras.utils.set_random_seed(seed)
    build = builder or kerasvit.VisionTransformer
    numbers = {**SIZES, "patch_size": 4, "image_size": size, "num_classes": classes}
    model = build(**numbers, **options)
    for layer in model.layers:  # logits that differ from 0
        if layer.name == "head":
            layer.kernel.assign(np.random.default_rng(seed).normal(size=(8, classes)))
    model.record["preprocessing"] |= {"mean": mean, "std": std}
    return model


def normalised(pixels):
    return ((pixels / 255 - MEAN) / STD).astype("float32")


def pixels():
    return np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 3)).astype("float32")


@pytest.mark.parametrize("include", mainly_on_last([False, True]))
def test_a_teacher_of_another_normalisation_gets_its_own(include, tmp_path, capsys):
    own = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}
    options = {"normalization": own} if include else {}
    teacher = vit(1, **own, **options)
    kerasvit.save_pretrained(teacher, tmp_path / "teacher")
    found = trainers.find_teacher(settings(teacher=str(tmp_path / "teacher")), vit())
    values = pixels()
    own_values = values if include else (values / 255 - own["mean"]) / own["std"]
    np.testing.assert_allclose(
        found.model.predict(normalised(values), verbose=0),
        teacher.predict(own_values.astype("float32"), verbose=0),
        atol=1e-4,
    )
    assert not found.probabilities
    assert "the student's image size" in capsys.readouterr().out


def test_a_file_of_keras_with_an_unknown_class(tmp_path):
    class Own(layers.Layer):
        def call(self, x):
            return x

    image = keras.Input((8, 8, 3))
    outputs = layers.GlobalAveragePooling2D()(Own()(image))
    keras.Model(image, outputs).save(tmp_path / "model.keras")
    config = settings(teacher=str(tmp_path / "model.keras"), teacher_input="unit")
    with pytest.raises(ValueError, match="classes that are defined elsewhere"):
        trainers.find_teacher(config, vit())


@pytest.mark.parametrize("name", ["missing.keras", "./missing", "~/missing.npz"])
def test_a_path_of_no_teacher_is_found_before_slow_imports(name):
    with pytest.raises(ValueError, match="there is no file or folder"):
        check(settings(teacher=name))


def test_a_file_of_keras_is_resized_and_its_values_are_given(tmp_path, capsys):
    """It returns the mean of each channel: what it got is seen in its outputs."""
    image = keras.Input((16, 16, 3))
    outputs = layers.GlobalAveragePooling2D()(image)
    keras.Model(image, outputs).save(tmp_path / "model.keras")
    config = settings(teacher=str(tmp_path / "model.keras"), teacher_input="unit")
    found = trainers.find_teacher(config, vit())
    np.testing.assert_allclose(
        found.model.predict(normalised(pixels()), verbose=0),
        pixels().mean((1, 2)) / 255,
        atol=2e-2,  # the weights of pixels at the border differ
    )
    text = capsys.readouterr().out
    assert "resized to 16 × 16 (antialiased bilinear)" in text
    assert "returns logits" in text


@on_last_backend
def test_keras_applications_have_their_own_preprocessing(monkeypatch):
    def without_weights(weights):
        assert weights == "imagenet"
        options = {"weights": None, "classes": 3, "input_shape": (32, 32, 3)}
        return original(**options)

    original = keras.applications.ResNet50
    preprocess = keras.applications.resnet.preprocess_input
    monkeypatch.setattr(keras.applications, "ResNet50", without_weights)
    found = trainers.find_teacher(settings(teacher="ResNet50"), vit())
    assert found.probabilities
    inner = found.model.layers[-1]
    values = pixels()
    resized = keras.ops.image.resize(values, (32, 32), antialias=True)
    expected = inner(preprocess(keras.ops.convert_to_numpy(resized)), training=False)
    np.testing.assert_allclose(
        found.model.predict(normalised(values), verbose=0),
        keras.ops.convert_to_numpy(expected),
        atol=1e-4,
    )


@on_last_backend
def test_weights_of_keras_that_cannot_be_downloaded(monkeypatch, tmp_path):
    def unreachable(weights):
        keras.utils.get_file("weights.h5", "http://127.0.0.1:9/", cache_dir=tmp_path)

    monkeypatch.setattr(keras.applications, "Unreachable", unreachable, raising=False)
    with pytest.raises(ValueError, match="weights of Unreachable cannot be downloaded"):
        any_model.load("Unreachable", "teacher")


def test_wrong_teachers_are_explained(tmp_path):
    student = vit()
    student.record["label_names"] = ["a", "b", "c"]
    named = vit(1)
    named.record["label_names"] = ["a", "c", "b"]
    saved = {"named": named, "four": vit(1, classes=4)}
    for name, model in saved.items():
        kerasvit.save_pretrained(model, tmp_path / name)
    keras.Sequential([keras.Input((8, 8, 3)), layers.Flatten(), layers.Dense(3)]).save(
        tmp_path / "unknown.keras"
    )
    cases = {
        "named": "or in another order.*'c', not 'b'",
        "four": "a teacher with 4 outputs and a student with 3",
        "unknown.keras": "does not say which values it expects",
        "none.keras": "does not exist, or is not a .keras file",
        "none": "there is no file or folder",
    }
    for name, message in cases.items():
        with pytest.raises(ValueError, match=message):
            trainers.find_teacher(settings(teacher=str(tmp_path / name)), student)
    for name in ("ResNet50", str(tmp_path / "named")):
        with pytest.raises(ValueError, match="Leave it out"):
            trainers.find_teacher(settings(teacher=name, teacher_input="tf"), student)
    with pytest.raises(ValueError, match="no class of that name"):
        trainers.find_teacher(settings(teacher="resnet"), student)  # a module


def test_a_trainer_in_a_file_teaches_as_its_model(tmp_path):
    teacher = vit(1)
    trainer = kerasvit.SAM(kerasvit.DistillationTrainer(teacher, vit(2)), rho=0.1)
    trainer.save(tmp_path / "trainer.keras")
    found = trainers.find_teacher(
        settings(teacher=str(tmp_path / "trainer.keras")), vit()
    )
    values = normalised(pixels())
    np.testing.assert_allclose(
        found.model.predict(values, verbose=0),
        teacher.predict(values, verbose=0),
        atol=1e-5,
    )


@on_last_backend
@pytest.mark.parametrize("shapes", [[(8, 8, 1)], [(3, 8, 8)], [(8, 8, 3)] * 2])
def test_a_teacher_of_other_inputs_than_images(shapes, tmp_path):
    inputs = [keras.Input(shape) for shape in shapes]
    flat = [layers.Flatten()(each) for each in inputs]
    outputs = layers.Dense(3)(sum(flat))
    keras.Model(inputs, outputs).save(tmp_path / "model.keras")
    config = settings(teacher=str(tmp_path / "model.keras"), teacher_input="unit")
    with pytest.raises(ValueError, match="must be images .batch, height, width, 3"):
        trainers.find_teacher(config, vit())


@on_last_backend
def test_wrong_numbers_are_found_before_the_imports():
    for changes, message in (
        ({"alpha": 1.5}, "`alpha` must be at least 0 and at most 1"),
        ({"tau": 0.0}, "`tau` must be at least"),
        ({"loss": "sigmoid", "teacher": "x"}, "for the loss softmax"),
        ({"distill": "soft"}, "`distill`: give --teacher MODEL with --distill"),
        ({"alpha": 0.1}, "`alpha`: give --teacher MODEL with --alpha"),
        ({"teacher_input": "tf"}, "give --teacher MODEL with --teacher-input"),
        ({"teacher": "x", "tau": 1.0}, "`tau`: give --distill soft with --tau"),
    ):
        with pytest.raises(ValueError, match=message):
            check(settings(**changes))


@pytest.mark.parametrize(
    ("builder", "rho"),
    [
        ("DistilledVisionTransformer", 0.05),
        pytest.param("VisionTransformer", 0.0, marks=pytest.mark.long),
    ],
)
@long_elsewhere
def test_a_training_with_a_teacher(builder, rho, tmp_path, monkeypatch, capsys):
    builder = getattr(kerasvit, builder)
    numbers = {**SIZES, "patch_size": 7, "image_size": 28}
    row = kerasvit.Variant("small_vit", builder, **numbers)
    monkeypatch.setitem(pretrain.SMALL, "small_vit", row)
    monkeypatch.chdir(tmp_path)
    teacher = vit(1, size=8, classes=10)
    kerasvit.save_pretrained(teacher, "teacher")
    config = settings(teacher="teacher", rho=rho, distill="soft")
    result = pretrain.pretrain(config)
    assert np.isfinite(result["loss"])
    loaded = kerasvit.from_pretrained("run/model")
    assert loaded.record["builder"] == builder.__name__
    card = (tmp_path / "run/model/README.md").read_text()
    assert "| teacher | teacher |" in card and "| distill | soft |" in card
    assert run_folder.finished_result(tmp_path / "run")
    saved = json.loads((tmp_path / "run/config.json").read_text())
    assert saved["teacher"] == str(tmp_path.resolve() / "teacher")
    other = dataclasses.replace(config, alpha=0.1)
    with pytest.raises(BadInput, match="alpha: 0.5 there, 0.1 now"):
        pretrain.pretrain(other)
