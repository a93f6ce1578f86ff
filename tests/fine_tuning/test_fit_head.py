"""`fit_head`: forms of data, models, accuracies and errors."""

import logging

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit import evaluation
from tests.once import mainly_on_last, on_last_backend

HALF = {"mean": [0.5] * 3, "std": [0.5] * 3}  # takes pixels from 0 to 255
TINY = {"image_size": 16, "num_classes": 3, "normalization": HALF}
VIT = {"patch_size": 8, "width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8}
BUILDERS = {
    "vit": lambda **more: kerasvit.VisionTransformer(**VIT, **{**TINY, **more}),
    "deit_distilled": lambda: kerasvit.DistilledVisionTransformer(**VIT, **TINY),
    "mixer": lambda: kerasvit.MLPMixer(
        patch_size=8, width=8, depth=1, tokens_mlp_dim=4, channels_mlp_dim=8, **TINY
    ),
    "bit": lambda: kerasvit.BigTransfer(depths=[1], width_factor=0.5, **TINY),
    "sequential": lambda: keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(3, activation="softmax"),
        ]
    ),
}
vit = BUILDERS["vit"]


def some(count=60, seed=0, hard=0):
    """Noise images of three classes, each with its colour."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    pixels = random.integers(80 + hard, size=(count, 16, 16, 3))
    pixels[np.arange(count), :, :, labels] += 100
    return pixels.astype("float32"), labels


X, Y = some()


def accuracy(model, x, y):
    return float(np.mean(model.predict(x, verbose=0).argmax(-1) == y))


@pytest.mark.slow
@pytest.mark.parametrize("name", mainly_on_last(BUILDERS))
def test_the_head_classifies_as_the_accuracies_say(name):
    model, (x, y) = BUILDERS[name](), some(20, seed=1)
    found = kerasvit.fit_head(model, (X, Y), (x, y))
    assert (found.images, found.validation_images) == (60, 20)
    assert found.training == pytest.approx(accuracy(model, X, Y))
    assert found.validation == pytest.approx(accuracy(model, x, y))
    assert found.validation > 0.9
    if name != "sequential":
        assert found.before is None  # fresh heads are zeros
    again = kerasvit.fit_head(model, (X, Y), (x, y))
    assert again.before == pytest.approx(found.validation)
    assert again.validation == found.validation


def test_the_head_is_the_linear_probe_of_features_without_dropout():
    model = vit(dropout=0.5)
    kerasvit.fit_head(model, (X, Y), seed=3)
    head = model.get_layer("head")
    features = keras.Model(model.input, head.input).predict(X, verbose=0)
    rest, held = evaluation.quarter(60, seed=3)
    expected = evaluation.linear_probe(
        *(features[rest], Y[rest], features[held], Y[held], 3)
    )
    for found, values in zip(head.get_weights(), expected, strict=True):
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_held_out_quarter_is_judged_by_a_head_that_has_not_seen_it():
    random = np.random.default_rng(0)
    labels = random.integers(3, size=60)  # labels of chance
    found = [kerasvit.fit_head(vit(), (some(60, seed)[0], labels)) for seed in range(4)]
    assert np.mean([each.validation for each in found]) < 0.6
    assert {each.validation_images for each in found} == {15}


class Sequence(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return X[i * 15 : i * 15 + 15], Y[i * 15 : i * 15 + 15]


def endless():
    while True:
        yield from Sequence()


def tf_data(repeat=1):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(15).repeat(repeat)


def loader():
    import torch

    data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    return torch.utils.data.DataLoader(data, batch_size=15)


FORMS = {
    "columns": lambda: (X, Y[:, None]),
    "one-hot": lambda: (X, np.eye(3)[Y]),
    "smoothed": lambda: (X, np.eye(3)[Y] * 0.9 + 0.1 / 3),
    "floats": lambda: (X.astype("uint8"), Y.astype("float32")),
    "weights": lambda: (np.tile(X, (2, 1, 1, 1)), np.tile(Y, 2), np.arange(120) < 60),
    "list of batches": lambda: list(Sequence()),
    "PyDataset": Sequence,
    "endless generator": endless,
    "tf.data": tf_data,
    "endless tf.data": lambda: tf_data(repeat=-1),
    "DataLoader": loader,
}


@pytest.mark.slow
@pytest.mark.parametrize("form", mainly_on_last(FORMS, everywhere=1))
def test_forms_of_data(form):
    if form == "weights":
        x, y, mask = FORMS[form]()
        data = x, y, mask.astype("float32")
    else:
        data = FORMS[form]()
    model = vit()
    weights = [keras.ops.convert_to_numpy(w) for w in model.weights[:-2]]
    other = vit()
    other.set_weights([*weights, *other.get_weights()[-2:]])
    expected = kerasvit.fit_head(model, (X, Y))
    found = kerasvit.fit_head(other, data)
    assert found.images == 60 == expected.images
    assert found == expected
    for a, b in zip(other.get_weights()[-2:], model.get_weights()[-2:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@on_last_backend
def test_a_weight_counts_in_the_fit_and_in_the_accuracy():
    labels = np.where(np.arange(60) < 30, 0, 1)
    same = np.zeros((60, 16, 16, 3), "float32") + np.arange(60)[:, None, None, None]
    # Classes that the weights tell apart, and the images hardly.
    heavy = np.where(labels == 0, 1.0, 9.0)
    random = np.random.default_rng(0).permutation(60)
    model = vit()
    found = kerasvit.fit_head(model, (same[random], labels, heavy), (same, labels))
    assert accuracy(model, same[random], np.ones(60)) > 0.9
    assert found.training > 0.8  # of the weighted images: 9 of 10


@on_last_backend
def test_trainers_adapters_and_mixed_precision():
    model = vit()
    kerasvit.add_lora(model, 2)
    assert kerasvit.fit_head(kerasvit.SAM(model), (X, Y)).validation > 0.9
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = vit()
    assert kerasvit.fit_head(model, (X, Y)).validation > 0.9
    assert model.get_layer("head").kernel.dtype == "float32"


@on_last_backend
def test_so_many_images_are_read():
    read = []

    def batches():
        for i, batch in enumerate(endless()):
            read.append(i)
            yield batch

    assert kerasvit.fit_head(vit(), batches(), max_images=20).images == 20
    assert read == [0, 1]
    assert kerasvit.fit_head(vit(), (X, Y), max_images=31).images == 31


@on_last_backend
def test_a_class_without_images_is_named(caplog):
    model = vit(num_classes=5)
    with caplog.at_level(logging.WARNING, "kerasvit"):
        kerasvit.fit_head(model, (X, Y))
    assert "is of the classes 3, 4. The head never predicts these" in caplog.text
    assert set(model.predict(X, verbose=0).argmax(-1)) <= {0, 1, 2}


@on_last_backend
def test_an_overflow_of_float16_is_an_error():
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            keras.layers.Rescaling(1e4),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    before = model.get_weights()
    with pytest.raises(ValueError, match="NaN or infinite.*float16 overflows"):
        kerasvit.fit_head(model, (X, Y))
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def quantized():
    model = vit()
    kerasvit.fit_head(model, (X, Y))
    model.quantize("int8")
    return model


WRONG_DATA = {
    "too few classes": ((X, Y + 1), r"in \[0, 2\].*Received: 3 for image 2"),
    "negative": ((X, Y - 1), r"in \[0, 2\].*Received: -1"),
    "fraction": ((X, Y + 0.5), "whole numbers.*Received: 0.5"),
    "several ones": ((X, np.ones((60, 3))), "the sum 1 and one largest"),
    "words": ((X, np.array(["a"] * 60)), "class indices.*<U1"),
    "size": ((X[:, :8], Y), r"\(16, 16, 3\).*shape \(32, 8, 16, 3\)"),
    "channels first": ((X.transpose(0, 3, 1, 2), Y), "Resize them"),
    "nothing": ((X[:0], Y[:0]), "no images"),
    "no batch": (iter([]), "no images"),
    "one image": ((X[:1], Y[:1]), "two images"),
    "one class": ((X, Y * 0), "only class 0"),
    "unit range": ((X / 255, Y), "takes values 0 to 255"),
    "NaN": ((X * np.nan, Y), "not finite"),
    "no labels": (X, "tuple .images, labels"),
    "a list of arrays": ([X, Y], "tuple .images, labels"),
    "no batches": (zip(X, Y), r"shape \(16, 16, 3\) with.*\.batch\(32\)"),
    "a list of images": ((list(X), Y), r"Received: arrays of shapes .*\), …\.$"),
    "lengths": ((X, Y[:5]), "one label for each image"),
    "a path": ("photos", "Received: str"),
    "weights of zero": ((X, Y, np.zeros(60)), "no images with a weight"),
    "negative weights": ((X, Y, -np.ones(60)), "finite and ≥ 0"),
}


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("case", WRONG_DATA)
def test_wrong_data_are_explained(case):
    data, message = WRONG_DATA[case]
    model = vit()
    with pytest.raises(ValueError, match=message):
        kerasvit.fit_head(model, data)
    assert not np.any(model.get_layer("head").get_weights()[0])


@on_last_backend
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: vit(num_classes=0), "num_classes"),
        (lambda: vit(num_classes=1), "two classes or more"),
        (lambda: keras.Sequential([keras.Input((16, 16, 3)), vit()]), "pass that one"),
        (lambda: keras.Sequential([keras.layers.Dense(3)]), "no variables yet"),
        (lambda: None, "keras.Model"),
        (quantized, "before `quantize`"),
    ],
)
def test_a_model_without_such_a_head_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        kerasvit.fit_head(build(), (X, Y))


@on_last_backend
def test_the_new_head_has_one_label_per_image():
    model = vit()
    model.record["problem_type"] = "multi_label_classification"
    kerasvit.fit_head(model, (X, Y))
    assert "problem_type" not in model.record
    assert sum(p for _, p in kerasvit.classify(model, X[0].astype("uint8"))) == (
        pytest.approx(1)
    )


@on_last_backend
@pytest.mark.parametrize("seed", [-1, "a", 0.5])
def test_a_wrong_seed_is_named(seed):
    with pytest.raises(ValueError, match="`seed` must be"):
        kerasvit.fit_head(vit(), (X, Y), seed=seed)
