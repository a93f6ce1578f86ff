import numpy as np
import pytest
import tensorflow as tf

from kerasvit.data import Rows, mixing
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]  # all of it is tf.data
# Image i has the value i everywhere, and the label i.
COUNT, CLASSES = 6, 6
IMAGES = np.tile(np.arange(COUNT, dtype="float32")[:, None, None, None], (1, 8, 10, 3))
LABELS = np.eye(CLASSES, dtype="float32")


def mixed(mixings, rows, key=0, images=IMAGES, labels=LABELS):
    seed = tf.constant([0, key], "int64")
    found = mixing.mix_one_of(mixings, images[rows.read], labels[rows.read], rows, seed)
    return [np.asarray(each) for each in found]


@pytest.mark.parametrize("mix", [mixing.mix_up, mixing.cut_mix])
@pytest.mark.parametrize("key", range(4))
def test_labels_have_the_shares_of_the_images(mix, key):
    images, labels = mixed((mix(1.0),), Rows.of(COUNT, (0, 1), pairs=True), key)
    means = images.mean(axis=(1, 2, 3))
    np.testing.assert_allclose(means, labels @ np.arange(CLASSES), atol=1e-5)
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-6)
    for row, label in enumerate(labels):
        assert set(np.flatnonzero(label)) <= {row, row ^ 1}


def test_mix_up_adds_and_cut_mix_pastes():
    rows = Rows.of(COUNT, (0, 1), pairs=True)
    added, _ = mixed((mixing.mix_up(1.0),), rows)
    pasted, labels = mixed((mixing.cut_mix(1.0),), rows)
    assert all(np.ptp(image) < 1e-5 for image in added)
    assert np.all(np.isin(pasted, np.arange(COUNT)))
    assert np.any(np.ptp(pasted, axis=(1, 2, 3)) > 0)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0])
def test_shares_have_the_beta_distribution(alpha):
    count = 4000
    images = np.tile(np.float32([[[[0]]], [[[1]]]]), (count // 2, 1, 1, 3))
    labels = np.eye(2, dtype="float32")[np.arange(count) % 2]
    rows = Rows.of(count, (0, 1), pairs=True)
    _, found = mixed((mixing.mix_up(alpha),), rows, images=images, labels=labels)
    shares = found[np.arange(count), np.arange(count) % 2]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.03)
    assert np.var(shares) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.06)


def test_one_of_the_functions_is_drawn_for_a_batch():
    rows = Rows.of(COUNT, (0, 1), pairs=True)
    both = mixing.mix_up(1.0), mixing.cut_mix(1.0)
    found = [mixed(both, rows, key)[0] for key in range(12)]
    whole = [np.all(np.isin(images, np.arange(COUNT))) for images in found]
    assert 0 < sum(whole) < 12


@pytest.mark.parametrize("mix", [mixing.mix_up, mixing.cut_mix])
def test_the_last_row_of_an_odd_batch_stays(mix):
    rows = Rows.of(5, (0, 1), pairs=True)
    images, labels = mixed((mix(1.0),), rows)
    assert images.shape[0] == 5
    np.testing.assert_allclose(images[4], 4, atol=1e-6)
    np.testing.assert_allclose(labels[4], LABELS[4], atol=1e-6)


@pytest.mark.parametrize("mix", [mixing.mix_up, mixing.cut_mix])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_processes_mix_the_rows_of_one(mix, n):
    whole = mixed((mix(0.7),), Rows.of(COUNT, (0, 1), pairs=True))
    parts = [mixed((mix(0.7),), Rows.of(COUNT, (i, n), pairs=True)) for i in range(n)]
    for expected, found in zip(whole, zip(*parts)):
        assert np.array_equal(expected, np.concatenate(found))
