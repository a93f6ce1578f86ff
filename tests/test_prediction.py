import keras
import numpy as np
import pytest
from PIL import Image

from kerasvit.prediction import classify, imagenet_names
from kerasvit.preprocessing import Preprocessing
from tests.once import on_last_backend

SIZE = (6, 8)
RED, GREEN, BLUE = (np.full((9, 12, 3), 255 * row, "uint8") for row in np.eye(3))


class RecordedModel(keras.Model):
    """A functional model with a record, as kerasvit's builders return."""

    def __init__(self, inputs, outputs, name=None, **kwargs):
        super().__init__(inputs, outputs, name=name, **kwargs)


def make_model(classes=3, *, record=True, kwargs=None, **changes):
    """Logits are the mean colours (then zeros), times 2."""
    image = keras.Input((*SIZE, 3))
    x = image
    if kwargs and kwargs.get("normalization"):
        x = keras.layers.Rescaling(1 / 127.5, -1.0)(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    logits = keras.layers.Dense(classes, name="head")(x)
    model = RecordedModel(image, logits)
    model.get_layer("head").set_weights([2 * np.eye(3, classes), np.zeros(classes)])
    if record:
        model.record = {
            "kwargs": kwargs or {},
            "preprocessing": Preprocessing(SIZE).to_config(),
            "label_names": ["red", "green", "blue"] if classes == 3 else None,
            **changes,
        }
    return model


def test_names_and_probabilities_best_first():
    (name, first), (_, second) = classify(make_model(), GREEN, top=2)
    # Normalised green is (-1, 1, -1); twice that are the logits.
    odds = np.exp([2.0, -2.0, -2.0])
    assert name == "green"
    np.testing.assert_allclose([first, second], (odds / odds.sum())[:2], rtol=1e-5)
    assert isinstance(first, float)


def test_probabilities_sum_to_one():
    answer = classify(make_model(), GREEN, top=10)
    assert len(answer) == 3
    assert abs(sum(chance for _, chance in answer) - 1) < 1e-6


def as_files(folder):
    for name, pixels in (("a.png", RED), ("b.png", BLUE)):
        Image.fromarray(pixels).save(folder / name)
    return [folder / "a.png", folder / "b.png"]


def test_one_image_of_every_kind(tmp_path):
    path = as_files(tmp_path)[0]
    model = make_model()
    expected = classify(model, RED)
    prepared = Preprocessing(SIZE)(RED)
    for image in (path, str(path), Image.open(path), prepared):
        assert classify(model, image) == expected


def test_several_images_of_every_kind(tmp_path):
    paths = as_files(tmp_path)
    model = make_model()
    expected = [classify(model, RED), classify(model, BLUE)]
    transform = Preprocessing(SIZE)
    for images in (
        paths,
        tuple(map(str, paths)),
        (path for path in paths),
        np.array(list(map(str, paths))),
        [Image.open(path) for path in paths],
        [RED, BLUE],
        [paths[0], BLUE],
        np.stack([RED, BLUE]),
        keras.ops.convert_to_tensor(np.stack([RED, BLUE])),
        keras.ops.stack([transform(RED), transform(BLUE)]),
    ):
        answers = classify(model, images)
        assert [answer[0][0] for answer in answers] == ["red", "blue"]
        np.testing.assert_allclose(
            [chance for answer in answers for _, chance in answer],
            [chance for answer in expected for _, chance in answer],
            rtol=1e-6,
        )


def test_a_list_of_one_image_returns_a_list():
    assert classify(make_model(), [RED]) == [classify(make_model(), RED)]


def test_more_images_than_a_batch_keep_their_order():
    answers = classify(make_model(), [RED, GREEN, BLUE] * 12)
    assert [answer[0][0] for answer in answers] == ["red", "green", "blue"] * 12


def test_the_size_is_that_of_the_model_and_not_of_the_record():
    record = Preprocessing(224).to_config()
    assert classify(make_model(preprocessing=record), RED)[0][0] == "red"


def test_normalisation_is_left_to_the_model_that_has_it_built_in():
    model = make_model(kwargs={"normalization": "half"})
    expected = classify(make_model(), RED)
    answer = classify(model, RED)
    assert [name for name, _ in answer] == [name for name, _ in expected]
    np.testing.assert_allclose(answer[0][1], expected[0][1], rtol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy):
    keras.config.set_dtype_policy(policy)
    answer = classify(make_model(), BLUE)
    assert answer[0][0] == "blue"
    assert abs(sum(chance for _, chance in answer) - 1) < 1e-6


@on_last_backend
def test_imagenet_names_are_the_packages():
    model = make_model(1000, label_names="imagenet1k")
    assert classify(model, RED, top=1)[0][0] == "tench, Tinca tinca"


def test_classes_without_names_are_numbered():
    assert classify(make_model(4), BLUE)[0][0] == "class 2"


def test_equal_chances_keep_the_order_of_the_classes():
    grey = np.full((6, 8, 3), 128, "uint8")
    assert [n for n, _ in classify(make_model(), grey)] == ["red", "green", "blue"]


@on_last_backend
def test_imagenet_names_are_a_thousand_in_order():
    names = imagenet_names()
    assert len(names) == 1000
    assert names[0] == "tench, Tinca tinca"
    assert names[207] == "golden retriever"
    assert names[999] == "toilet tissue, toilet paper, bathroom tissue"


@pytest.mark.parametrize("built_in", [False, True])
def test_prepared_values_in_the_other_range_raise(built_in):
    model = make_model(kwargs={"normalization": "half"} if built_in else {})
    right = Preprocessing(SIZE)(RED, normalize=not built_in)
    wrong = Preprocessing(SIZE)(RED, normalize=built_in)
    assert classify(model, right)[0][0] == "red"
    with pytest.raises(ValueError, match="looks like 0 to 255|looks normalised alre"):
        classify(model, wrong)


def test_prepared_images_need_no_transform_in_the_record():
    model = make_model(preprocessing=None)
    assert classify(model, Preprocessing(SIZE)(RED))[0][0] == "red"
    with pytest.raises(ValueError, match="set model.preprocessing ="):
        classify(model, RED)


@on_last_backend
@pytest.mark.parametrize("shape", [(7, 8, 3), (6, 8, 4), (3, 6, 8), (6, 8)])
def test_prepared_image_must_have_the_models_size(shape):
    with pytest.raises(ValueError, match=r"have shape \(6, 8, 3\)"):
        classify(make_model(), np.zeros(shape, "float32"))


def test_faulty_image_is_named_before_the_model_runs(tmp_path):
    model = make_model()
    model.predict = None
    with pytest.raises(ValueError, match="Image 1 of 2: There is no file cat.jpg"):
        classify(model, [RED, "cat.jpg"])
    (tmp_path / "dog.jpg").write_bytes(b"<html>")
    with pytest.raises(ValueError, match="dog.jpg cannot be read as an image"):
        classify(model, tmp_path / "dog.jpg")
    with pytest.raises(ValueError, match="is a folder, not an image"):
        classify(model, tmp_path)


@on_last_backend
@pytest.mark.parametrize("images", [[], (), np.zeros((0, 6, 8, 3)), np.array([])])
def test_no_image_raises(images):
    with pytest.raises(ValueError, match="nothing to classify|have shape"):
        classify(make_model(), images)


@on_last_backend
@pytest.mark.parametrize("images", [None, 3, b"cat.jpg", [RED, None], {1: 2}])
def test_an_invalid_image_raises(images):
    with pytest.raises(ValueError, match="An image must be a path"):
        classify(make_model(), images)


@on_last_backend
def test_prepared_and_raw_images_are_not_mixed():
    with pytest.raises(ValueError, match="floats in image 1 but not in image 0"):
        classify(make_model(), [RED, np.zeros((6, 8, 3), "float32")])


@on_last_backend
@pytest.mark.parametrize("top", [0, -1, 2.5, None])
def test_top_must_be_positive(top):
    with pytest.raises(ValueError, match="`top` must be a whole number"):
        classify(make_model(), RED, top=top)


@on_last_backend
def test_a_model_without_a_record_raises():
    clone = keras.models.clone_model(make_model(record=False))
    with pytest.raises(ValueError, match="has no record.*clone.record = model.record"):
        classify(clone, RED)


@on_last_backend
def test_features_are_not_classified():
    with pytest.raises(ValueError, match="built with num_classes=0"):
        classify(make_model(kwargs={"num_classes": 0}), RED)


@on_last_backend
def test_a_map_of_features_is_not_classified():
    image = keras.Input((6, 8, 3))
    model = RecordedModel(image, keras.layers.Conv2D(3, 1)(image))
    model.record = make_model().record
    with pytest.raises(ValueError, match="must return logits of shape"):
        classify(model, RED)


@on_last_backend
@pytest.mark.parametrize("names", [["a", "b"], "imagenet1k"])
def test_as_many_names_as_classes(names):
    with pytest.raises(ValueError, match="has 3 classes and its record .* label names"):
        classify(make_model(label_names=names), RED)


@on_last_backend
@pytest.mark.parametrize("names", ["imagenet21k", 7, {"red": 0}])
def test_an_invalid_list_of_names_raises(names):
    with pytest.raises(ValueError, match="must be a list of names"):
        classify(make_model(label_names=names), RED)


def test_damaged_weights_are_noticed():
    model = make_model()
    model.get_layer("head").set_weights([np.full((3, 3), np.nan), np.zeros(3)])
    with pytest.raises(ValueError, match="output for image 0 is not finite"):
        classify(model, RED)


def test_several_labels_have_a_sigmoid_each():
    model = make_model(problem_type="multi_label_classification")
    found = dict(classify(model, GREEN))
    # Normalised green is (-1, 1, -1); twice that are the logits.
    right = {"red": -2.0, "green": 2.0, "blue": -2.0}
    for name, logit in right.items():
        np.testing.assert_allclose(found[name], 1 / (1 + np.exp(-logit)), rtol=1e-5)


def test_one_logit_has_a_sigmoid():
    ((name, chance),) = classify(make_model(1), RED)  # its logit is 2
    assert name == "class 0"
    np.testing.assert_allclose(chance, 1 / (1 + np.exp(-2.0)), rtol=1e-5)


def test_a_large_logit_of_several_labels_does_not_overflow():
    model = make_model(problem_type="multi_label_classification")
    model.get_layer("head").set_weights([200 * np.eye(3), np.zeros(3)])
    assert dict(classify(model, GREEN)) == {"green": 1.0, "red": 0.0, "blue": 0.0}


def test_a_regression_has_no_probabilities():
    with pytest.raises(ValueError, match="'regression' as `problem_type`"):
        classify(make_model(problem_type="regression"), GREEN)
