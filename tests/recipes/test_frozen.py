"""Scores of frozen features: `evaluate.py --frozen` and callbacks of a training."""

import dataclasses
import types

import evaluate
import keras
import numpy as np
import pretrain
import pytest
import tensorflow_datasets
from command import command_line
from devices.devices import ONE
from scoring import any_model, candidates, features, planning, sets
from scoring.settings import Config
from training import few_shot

import kerasvit
from kerasvit import data, evaluation
from tests.models.tiny import TINY
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

SIZES = {"patch_size": 4, "width": 8, "depth": 2, "num_heads": 2, "mlp_dim": 8}
DIGITS = [str(i) for i in range(10)]
ALL = ("few_shot", "knn", "probe")


def vit(seed=0, classes=10, **options):
    options = {"image_size": 8, **SIZES, **options}
    return filled(kerasvit.VisionTransformer(num_classes=classes, **options), seed)


def filled(model, seed=0):
    random = np.random.default_rng(seed)
    model.set_weights([random.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def digits(images, transform, normalize=True):
    pixels = [transform(each, normalize=normalize) for each in images.items]
    return np.stack(pixels), images.labels


def values(part):
    return {name: each.value for name, each in part.scores.items()}


@long_elsewhere
def test_scores_are_those_of_features_that_predict_returns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = vit()
    kerasvit.save_pretrained(model, "vit", label_names=DIGITS)
    config = Config(
        ("vit",), on=("digits",), frozen=ALL, shots=(1, 5), train_images=200
    )
    scored, result = evaluate.evaluate(config)
    assert (scored.measure, result.measure) == ("", "frozen")
    dataset = data.built_in("digits")
    transform = model.preprocessing
    body = keras.Model(model.input, model.get_layer("head").input)
    parts = dataset.train.images.sample(200, 0), dataset.validation, dataset.test
    (x, y), (held, held_y), (test, test_y) = (digits(p, transform) for p in parts)
    x, held, test = (body.predict(each, verbose=0) for each in (x, held, test))
    found = {name: values(part) for name, part in result.parts.items()}

    shots = evaluation.few_shot_accuracy(x, y, test, test_y, 10, shots=(1, 5))
    for k, accuracies in shots.items():
        seeds = {f"seed {i}": pytest.approx(a) for i, a in enumerate(accuracies)}
        mean = pytest.approx(np.mean(accuracies))
        assert found[f"{k}-shot"] == {"top1": mean, **seeds}
        assert result.right[f"{k}-shot"].shape == (3, 359)
    votes = evaluation.neighbor_votes(x, y, test, 10)
    assert found["k-NN"] == {"top1": pytest.approx(np.mean(votes.argmax(1) == test_y))}
    kernel, bias = evaluation.linear_probe(x, y, held, held_y, 10)
    expected = evaluation.scores(test @ kernel + bias, test_y)
    for name, each in expected.items():
        assert found["linear probe"][name] == pytest.approx(each.value, abs=3e-3)


@on_last_backend
def test_models_are_compared_with_the_same_shots(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    kerasvit.save_pretrained(vit(), "a", label_names=list("abcdefghij"))
    kerasvit.save_pretrained(vit(1, classes=0), "b")
    config = Config(
        ("a", "b"), on=("digits",), frozen=("few_shot", "knn"), images=50, layer="-2"
    )
    one, other = evaluate.evaluate(config)  # neither has classes of the digits
    printed = " ".join(capsys.readouterr().out.split())
    assert "1,259 training, 179 validation and 50 test images" in printed
    assert "5-shot top1" in printed and "seed" not in printed
    right, others = (each.right["5-shot"].astype(int) for each in (one, other))
    expected = evaluation.seeds_interval(others - right)
    found = evaluate.results.difference(one, other, "5-shot")
    assert (found.low, found.high) == expected
    table = (tmp_path / "scores/scores.txt").read_text()
    assert "minus a" in table
    assert f"{100 * found.value:+.2f} [{100 * found.low:+.1f}" in table

    # Nothing is computed again.
    monkeypatch.setattr(evaluate.Predictor, "__call__", None)
    again = evaluate.evaluate(config)
    assert [x.to_json() for x in again] == [one.to_json(), other.to_json()]


def outputs(model, x):
    return keras.ops.convert_to_numpy(model(x, training=False))


@on_last_backend
@pytest.mark.parametrize("name", TINY)
def test_features_are_those_of_the_model_without_head(name):
    builder = getattr(kerasvit, name)
    model = filled(builder(**TINY[name]))
    headless = builder(**TINY[name] | {"num_classes": 0})
    weights = {w.path: keras.ops.convert_to_numpy(w) for w in model.weights}
    for variable in headless.weights:
        variable.assign(weights[variable.path])
    x = np.random.default_rng(0).normal(size=(2, *model.input_shape[1:]))
    expected = outputs(headless, x)
    for each in (model, headless):
        found = outputs(features.model_of(each), x)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@on_last_backend
@pytest.mark.parametrize(
    ("options", "pooled"),
    [
        ({}, lambda x: x[:, 0]),
        ({"register_tokens": 2}, lambda x: x[:, 0]),
        ({"pool": "average"}, lambda x: x.mean(1)),
        (
            {"pool": "average", "register_tokens": 2, "class_token": True},
            lambda x: x[:, 3:].mean(1),
        ),
    ],
)
def test_a_layer_of_tokens_is_pooled_as_the_model_pools(options, pooled):
    model = vit(**options)
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3))
    layer = keras.Model(model.input, model.get_layer("encoder_block_0").output)
    for name in ("encoder_block_0", "0", "-2"):
        found = outputs(features.model_of(model, name), x)
        np.testing.assert_allclose(found, pooled(outputs(layer, x)), atol=1e-6)
    patches = keras.Model(model.input, model.get_layer("embedding").output)
    found = outputs(features.model_of(model, "embedding"), x)
    np.testing.assert_allclose(found, outputs(patches, x).mean(1), atol=1e-6)


@on_last_backend
def test_a_stage_of_maps_is_their_mean():
    model = filled(kerasvit.AlterNet(**TINY["AlterNet"]))
    x = np.random.default_rng(0).normal(size=(2, 16, 16, 3))
    layer = keras.Model(model.input, model.get_layer("stage_1_unit_1").output)
    found = outputs(features.model_of(model, "stage_1"), x)
    np.testing.assert_allclose(found, outputs(layer, x).mean((1, 2)), atol=1e-6)


@on_last_backend
def test_layers_of_nested_models_without_a_record(tmp_path):
    layers = keras.layers
    inside = keras.Input((8, 8, 3))
    body = keras.Model(inside, layers.Conv2D(4, 3, name="conv")(inside), name="body")
    tail = [layers.GlobalAveragePooling2D(), layers.Dropout(0.1)]
    head = layers.Dense(3, activation="softmax")
    model = filled(keras.Sequential([keras.Input((8, 8, 3)), body, *tail, head]))
    model.save(tmp_path / "model.keras")
    found = candidates.load(str(tmp_path / "model.keras"), "unit")
    loaded = any_model.load(str(tmp_path / "model.keras"), "model", "unit").model
    x = np.random.default_rng(0).uniform(0, 255, size=(2, 8, 8, 3))
    expected = outputs(loaded.get_layer("body"), x / 255).mean((1, 2))
    for layer in (None, "body", "body/conv"):
        frozen = features.of_layer(found, layer)
        np.testing.assert_allclose(outputs(frozen.model, x), expected, atol=1e-5)
    with pytest.raises(ValueError, match="no layer 'convs'. It has body/conv, body,"):
        features.of_layer(found, "convs")


@on_last_backend
def test_test_images_of_a_folder_are_not_trained_on(images):
    images("cat", 20)
    folder = images("dog", 15)
    found = sets.find_training(str(folder), most=100)
    parts = [found.train, found.validation, found.test.images]
    files = [path for part in parts for path in part.items]
    assert len(files) == len(set(files)) == 35
    dataset = data.from_folder(folder)
    assert found.test.images.items == dataset.test.items
    assert found.text.endswith("test images, divided as for a training.")
    fewer = sets.find_training(str(folder), most=10)
    assert len(fewer.train) == 10 and " of 24 training" in fewer.text
    assert np.bincount(fewer.train.labels).min() >= 4


@on_last_backend
@pytest.mark.parametrize("name", ["cifar10", "imagenet", "oxford_iiit_pet"])
def test_training_images_are_all_of_train(name):
    with tensorflow_datasets.testing.mock_data(num_examples=20):
        found = sets.find_training(name, most=12)
        assert len(found.train) == 12 and len(found.test.labels) == 20
        assert found.validation is None
        whole = sets.find_training(name, most=100)
    assert len(whole.train) == 40  # of both parts: mock_data ignores their sizes
    labels = whole.train.labels
    assert labels[:12].tolist() == found.train.labels.tolist()


@on_last_backend
@pytest.mark.parametrize(("splits", "has_own"), [(["test"], False), ([], True)])
def test_validation_images_of_their_own_are_not_trained_on(
    splits, has_own, monkeypatch
):
    with tensorflow_datasets.testing.mock_data(num_examples=20):
        dataset = data.from_tfds("cifar10")
    splits = splits or ["train", "validation", "test"]
    builder = types.SimpleNamespace(info=types.SimpleNamespace(splits=splits))
    monkeypatch.setattr(data, "tfds_builder", lambda name: builder)
    monkeypatch.setattr(data, "from_tfds", lambda given: dataset)
    found = sets.find_training("flowers", most=100)
    if not has_own:
        assert found is None
    else:
        assert (
            found.train is dataset.train.images
            and found.validation is dataset.validation
        )


@on_last_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"layer": "encoder_block_9"},
            "no layer 'encoder_block_9'. It has encoder_blo",
        ),
        ({"layer": "-3"}, "has 2 blocks, from 0 to 1 or -2 to -1. Received: -3"),
        ({"shots": (500,)}, "must have 500 training images or more. .* has 12"),
        ({"train_images": 19}, "knn needs 20 training images or more"),
        ({"frozen": (), "layer": "-1"}, "`layer` is for features"),
        ({"image_size": (9,)}, "multiple"),
    ],
)
def test_wrong_input(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kerasvit.save_pretrained(vit(), "vit", label_names=DIGITS)
    config = Config(("vit",), on=("digits",), frozen=("few_shot", "knn"))
    with pytest.raises(command_line.BadInput, match=message):
        evaluate.evaluate(dataclasses.replace(config, **options))


@on_last_backend
def test_a_set_without_training_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kerasvit.save_pretrained(vit(classes=0), "vit")
    config = Config(("vit",), on=("imagenet_r", "v2"), frozen=("knn",))
    with tensorflow_datasets.testing.mock_data(num_examples=5):
        with pytest.raises(ValueError, match="imagenet_r, v2: no training images"):
            planning.plan(ONE, config, None)


@on_last_backend
def test_a_feature_that_is_not_finite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = vit(classes=0)
    weights = model.get_weights()
    weights[-2][:] = weights[-1][:] = 3e38  # the last normalisation overflows
    model.set_weights(weights)
    kerasvit.save_pretrained(model, "vit")
    config = Config(("vit",), on=("digits",), frozen=("knn",), images=5)
    with pytest.raises(
        command_line.BadInput, match="features of vit are NaN or infinite"
    ):
        evaluate.evaluate(config)


@pytest.mark.parametrize(
    ("wrap", "ema"),
    mainly_on_last([(lambda model: model, True), (kerasvit.SAM, False)]),
)
@long_elsewhere
def test_callbacks_score_the_weights_of_each_round(wrap, ema):
    model = vit(classes=3, depth=1)
    random = np.random.default_rng(0)
    train, test = (
        (random.normal(size=(n, 8, 8, 3)).astype("float32"), np.arange(n) % 3)
        for n in (48, 30)
    )
    trainer = wrap(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.Adam(0.01, use_ema=ema), loss)

    def outputs(model, images):
        return np.asarray(model.predict(images.items, verbose=0))

    images = (data.TransformedImages(*each) for each in (train, test))
    score = few_shot.FewShot(*images, 3, (1, 5), outputs)
    options = {"epochs": 3, "batch_size": 24, "verbose": 0}
    history = trainer.fit(*train, **options, callbacks=[score]).history
    assert len(history["val_5_shot"]) == 3
    body = keras.Model(model.input, model.get_layer("head").input)
    x, test_x = (body.predict(each, verbose=0) for each in (train[0], test[0]))
    expected = evaluation.few_shot_accuracy(
        *(x, train[1], test_x, test[1], 3), shots=(1, 5)
    )
    for k, accuracies in expected.items():
        assert history[f"val_{k}_shot"][-1] == pytest.approx(np.mean(accuracies))


@on_last_backend
def test_a_recipe_scores_features_at_each_validation(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images("cat", 16)
    tiny = kerasvit.Variant("tiny", kerasvit.VisionTransformer, image_size=8, **SIZES)
    monkeypatch.setitem(pretrain.SMALL, "small_vit", tiny)
    config = pretrain.Config(
        data=str(images("dog", 16)),
        few_shot=(1, 5),
        epochs=None,
        steps=20,
        batch_size=8,
    )
    result = pretrain.pretrain(config)
    trained = result
    assert len(trained["history"]) == 2
    assert all(0 <= logs["val_5_shot"] <= 1 for logs in trained["history"])
    with pytest.raises(command_line.BadInput, match="as many as `shots`"):
        pretrain.pretrain(dataclasses.replace(config, few_shot=(500,), out="other"))
