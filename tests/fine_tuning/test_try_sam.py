"""`suggest_training(try_sam=...)`: SAM only where it helps."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit import data
from kerasvit.fine_tuning import try_sam
from tests.models.tiny import TINY
from tests.once import long_elsewhere, on_last_backend

random = np.random.default_rng(0)


def model(classes=3):
    keras.utils.set_random_seed(0)
    options = {**TINY["VisionTransformer"], "num_classes": classes}
    return kerasvit.VisionTransformer(**options)


def images(count, of, classes=3):
    labels = random.integers(classes, size=count)
    x = random.normal(size=(count, *of.input_shape[1:])) * 0.4
    x += 0.3 * (labels - 1)[:, None, None, None]
    return np.clip(x, -1, 1).astype("float32"), labels


@long_elsewhere
def test_short_trainings_decide():
    made = model()
    before = [w.copy() for w in made.get_weights()]
    found = kerasvit.suggest_training(made, images(80, made), try_sam=0.1)
    # Images that plain training learns at once: SAM gains nothing, or is not tried.
    assert found.rho == 0 and found.reasons["rho"].startswith("plain training: ")
    assert "rho" in repr(found) and found.optimizer()
    for a, b in zip(before, made.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@on_last_backend
def test_sam_is_chosen_only_if_the_interval_is_above_zero(monkeypatch):
    made = model()
    data = images(80, made)
    for low, pairs, least, rho, why in (
        (0.01, 4, 0.02, 0.05, "in 4 pairs"),
        (-0.01, 4, 0.02, 0.0, "in 4 pairs"),
        (0.0, 4, 0.02, 0.0, "in 4 pairs"),
        (0.01, 1, 0.03, 0.0, "in 1 pair of trainings of 20 steps, where two are"),
        (0.01, 4, -0.02, 0.0, "but -2.0 points in one of them"),
    ):
        trial = try_sam.Trial(0.03, low, 0.05, pairs, 20, least)
        monkeypatch.setattr(try_sam, "try_sam", lambda *a, trial=trial, **o: trial)
        found = kerasvit.suggest_training(made, data, try_sam=1)
        assert found.rho == rho
        assert "+3.0 points of validation accuracy" in found.reasons["rho"]
        assert found.reasons["rho"].startswith("with SAM" if rho else "plain training")
        assert why in found.reasons["rho"]


@on_last_backend
def test_images_in_the_order_of_their_classes_are_mixed(monkeypatch):
    labels = np.repeat(np.arange(3), 30)
    pixels = data.IndexedImages(np.zeros((90, 8, 8, 3), "uint8"), labels)
    monkeypatch.setattr(try_sam, "MAX_IMAGES", 60)
    for given in (pixels, data.TrainingImages(pixels)):
        x, y = try_sam._arrays(model(), given, 8)
        assert x.shape == (60, *model().input_shape[1:])
        assert np.bincount(y).min() > 10


@pytest.mark.slow
@on_last_backend
def test_without_time_training_is_plain():
    made = model()
    found = kerasvit.suggest_training(made, images(80, made), try_sam=1e-6)
    assert found.rho == 0 and "give more minutes" in found.reasons["rho"]


@pytest.mark.slow
@on_last_backend
def test_each_pair_has_its_own_held_out_images(monkeypatch):
    seen = []

    def paired(hits, others):
        seen.append((hits, others))
        return 0.5, 0.4, 0.6

    clock = iter(np.arange(0, 100, 0.01))  # a hundredth of a second at each look
    ticking = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(try_sam, "time", ticking)
    monkeypatch.setattr(try_sam, "paired_difference", paired)
    made = model()
    found = try_sam.try_sam(
        *(made, images(80, made)),
        optimizer=lambda steps: keras.optimizers.SGD(0.01),
        **{"rho": 0.1, "batch_size": 8, "steps": 10, "linear_head": False},
        minutes=0.002,
    )
    assert found.trainings > 2 and found.steps == 10
    assert -1 <= found.least <= found.gain + 0.5 and found.low == 0.4
    [(hits, others)] = seen
    # An image counts once, with the mean of its pairs.
    assert 20 < len(hits) == len(others) <= 80
    assert ((hits >= 0) & (hits <= 1)).all() and found.trainings > 2


@on_last_backend
@pytest.mark.parametrize(
    ("data", "minutes", "message"),
    [
        (100, 1, "`try_sam` trains on the images: give them"),
        (None, 1, "needs 40 images or more. Received: 30"),
        (None, 0, "`try_sam` must be a finite number > 0"),
    ],
)
def test_a_wrong_call_gets_a_sentence(data, minutes, message):
    made = model()
    with pytest.raises(ValueError, match=message):
        kerasvit.suggest_training(made, data or images(30, made), try_sam=minutes)
