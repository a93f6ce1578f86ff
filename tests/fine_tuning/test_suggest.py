"""`suggest_training`: settings, their reasons, and what is counted."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit import data
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT, random_model

pytestmark = on_last_backend
IMAGES, LABELS = np.zeros((40, 8, 8, 3), "float32"), np.zeros(40, int)


def test_pretrained_weights_are_told_from_fresh_ones():
    assert kerasvit.suggest_training(random_model(0), 400).linear_head
    fresh = kerasvit.suggest_training(TinyViT(image_size=8, num_classes=3), 400)
    assert not fresh.linear_head and fresh.learning_rate == 5e-4
    assert fresh.reasons["learning_rate"] == "fresh weights"
    given = TinyViT(image_size=8, num_classes=3)
    assert kerasvit.suggest_training(given, 400, pretrained=True).linear_head


def test_adapters_have_their_rate():
    model = random_model(0)
    kerasvit.add_lora(model, 2)
    assert kerasvit.suggest_training(kerasvit.SAM(model), 400).learning_rate == 2e-3


def test_the_optimizer_ends_with_the_last_epoch():
    settings = kerasvit.suggest_training(random_model(0), 400)
    assert settings.epochs == round(settings.steps / 13)  # of 32 images
    optimizer = settings.optimizer()
    assert optimizer.global_clipnorm == 1
    rate = optimizer._learning_rate
    steps = [0, settings.warmup_steps, settings.epochs * 13]
    rates = [float(rate(step)) for step in steps]
    assert rates == pytest.approx([0, settings.learning_rate, 0], abs=1e-9)


def test_few_images_train():
    settings = kerasvit.suggest_training(random_model(0), 1)
    assert settings.batch_size == 1  # no more than there are, as `batches` expects
    assert settings.epochs == settings.steps
    settings.optimizer()


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return IMAGES[:10], LABELS[:10]


def test_images_are_counted():
    import tensorflow as tf

    model = random_model(0)
    batches = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(10)
    for given, size in (((IMAGES, LABELS), 32), (Batches(), 10), (batches, 10)):
        settings = kerasvit.suggest_training(model, given)
        assert (settings.images, settings.batch_size) == (40, size)
    assert kerasvit.suggest_training(model, 40, batch_size=5).batch_size == 5
    images = data.IndexedImages(np.zeros((40, 8, 8, 3), "uint8"), LABELS)
    for known in (images, data.TrainingImages(images)):
        assert kerasvit.suggest_training(model, known).images == 40


def test_the_schedule_has_as_many_steps_as_fit():
    part = [(IMAGES[:32], LABELS[:32])]  # without the last, incomplete batch
    settings = kerasvit.suggest_training(random_model(0), part)
    assert settings.steps_per_epoch == 1
    assert settings.epochs == settings.steps


def test_it_prints_a_table_with_the_reasons():
    text = repr(kerasvit.suggest_training(random_model(0), 400))
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert "small beside" in lines["learning_rate"]
    assert "passes through 400 images" in lines["steps"]
    assert lines["rho"].split()[1] == "0.002"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (0, "≥ 1"),
        (IMAGES[0], None),
        ((IMAGES[:0], LABELS[:0]), "no images"),
        (iter([]), "Pass the number"),
        (None, "arrays in a tuple"),
        (IMAGES, "arrays in a tuple"),
        ([IMAGES, LABELS], "arrays in a tuple"),
        ("pets", "arrays in a tuple"),
        ({"a": IMAGES}, "arrays in a tuple"),
        ([(IMAGES[0], 1)], "must have batches of images, not single ones"),
    ],
)
def test_wrong_data_are_explained(data, message):
    if message is None:
        data, message = (batch for batch in Batches()), "Pass the number"
    with pytest.raises(ValueError, match=message):
        kerasvit.suggest_training(random_model(0), data)


def test_a_model_of_which_only_the_head_is_trained_is_refused():
    model = random_model(0)
    model.trainable = False
    model.get_layer("head").trainable = True
    with pytest.raises(ValueError, match="fit_head"):
        kerasvit.suggest_training(model, 400)
    with pytest.raises(ValueError, match="keras.Model"):
        kerasvit.suggest_training(None, 400)
