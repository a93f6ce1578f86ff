"""Numbers of several labels per image, against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from kerasvit import evaluation
from tests.once import on_last_backend

pytestmark = on_last_backend
random = np.random.default_rng(0)
LOGITS = np.round(random.normal(size=(80, 6)), 1)  # some are equal
LABELS = (random.random((80, 6)) < 0.3).astype(int)
LABELS[:, 4] = 0
LABELS[5] = 0


def test_average_precision():
    found = evaluation.average_precision(LOGITS, LABELS)
    assert np.isnan(found).tolist() == [False] * 4 + [True, False]
    kept = [0, 1, 2, 3, 5]
    expected = metrics.average_precision_score(
        LABELS[:, kept], LOGITS[:, kept], average=None
    )
    np.testing.assert_allclose(found[kept], expected)


def test_average_precision_with_weights_and_equal_logits():
    random = np.random.default_rng(3)
    for count in (1, 2, 7, 80):
        logits = np.round(random.normal(size=(count, 4)), 1)
        labels = (random.random((count, 4)) < 0.4).astype(int)
        labels[0] = 1
        weights = random.random(count) * (np.arange(count) % 3 != 1)
        found = evaluation.average_precision(logits, labels, weights)
        expected = metrics.average_precision_score(
            labels, logits, average=None, sample_weight=weights
        )
        np.testing.assert_allclose(found, expected)


def test_f1_scores():
    predictions = LOGITS > 0.5
    predictions[5] = False  # an image without labels, rightly
    found = evaluation.f1_scores(predictions, LABELS)
    kept = [0, 1, 2, 3, 5]
    for average, columns in (("micro", range(6)), ("macro", kept)):
        expected = metrics.f1_score(
            LABELS[:, columns], predictions[:, columns], average=average
        )
        assert found[average] == pytest.approx(expected)
    expected = metrics.f1_score(
        LABELS, predictions, average="samples", zero_division=1.0
    )
    assert found["samples"] == pytest.approx(expected)
    one = evaluation.f1_scores([[1], [0]], [[1], [1]])
    assert one == pytest.approx({"micro": 2 / 3, "macro": 2 / 3, "samples": 1 / 2})
    assert set(evaluation.f1_scores([[0]], [[0]]).values()) == {1.0}


def test_thresholds_have_the_largest_f1_score():
    found = evaluation.fit_thresholds(LOGITS, LABELS)
    assert np.isnan(found[4])
    for i in (0, 1, 2, 3, 5):
        scores = {
            t: metrics.f1_score(LABELS[:, i], LOGITS[:, i] >= t)
            for t in np.unique(LOGITS[:, i])
        }
        score = metrics.f1_score(LABELS[:, i], LOGITS[:, i] >= found[i])
        assert score == pytest.approx(max(scores.values()))
        assert not np.isin(found[i], LOGITS[:, i]) or found[i] == LOGITS[:, i].min()


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_thresholds_of_a_stated_precision_or_recall(share):
    by_precision = evaluation.fit_thresholds(LOGITS, LABELS, precision=share)
    by_recall = evaluation.fit_thresholds(LOGITS, LABELS, recall=share)
    for i in (0, 1, 2, 3, 5):
        has, logits = LABELS[:, i] == 1, LOGITS[:, i]
        numbers = {
            t: (has[logits >= t].mean(), (logits >= t)[has].mean())
            for t in np.unique(logits)
        }
        fits = [r for p, r in numbers.values() if p >= share]
        if fits:
            chosen = logits >= by_precision[i]
            assert has[chosen].mean() >= share
            assert chosen[has].mean() == max(fits)
        else:
            assert by_precision[i] == np.inf
        chosen = logits >= by_recall[i]
        largest = max(t for t, (_, r) in numbers.items() if r >= share)
        assert chosen.tolist() == (logits >= largest).tolist()


def test_a_threshold_between_neighbouring_numbers():
    above = 1.0
    below = float(np.nextafter(above, 0))
    found = evaluation.fit_thresholds([[above], [below]], [[1], [0]])
    assert below < found[0] <= above


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: evaluation.average_precision(LOGITS, LABELS[:, :5]), r"\(80, 6\)"),
        (lambda: evaluation.average_precision(LOGITS, LABELS * 2), "must be 0 or 1"),
        (
            lambda: evaluation.average_precision(LOGITS, LABELS, [1.0, 2.0]),
            "a number for each of 80",
        ),
        (lambda: evaluation.f1_scores(LOGITS, LABELS), "`predictions` must be 0 or 1"),
        (lambda: evaluation.f1_scores([], []), "images, classes"),
        (
            lambda: evaluation.fit_thresholds(LOGITS, LABELS, precision=0.5, recall=1),
            "not both",
        ),
        (
            lambda: evaluation.fit_thresholds(LOGITS, LABELS, recall=90),
            "must be a share",
        ),
    ],
)
def test_a_wrong_call_gets_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_conformal_thresholds_keep_the_recall_on_new_images():
    random = np.random.default_rng(0)
    reached = {True: [], False: []}
    for _ in range(200):
        labels = (random.random((230, 2)) < [0.5, 0.2]).astype(int)
        logits = random.normal(size=(230, 2)) + labels
        for conformal, found in reached.items():
            limits = evaluation.fit_thresholds(
                logits[:60], labels[:60], recall=0.8, conformal=conformal
            )
            has = labels[60:] == 1
            found.append(((logits[60:] >= limits) & has).sum(0) / has.sum(0))
    assert (np.mean(reached[True], axis=0) >= 0.8).all()
    assert (np.mean(reached[False], axis=0) < 0.8).all()
    few = np.array([[1, 1, 0]] * 8 + [[0, 1, 0]])
    logits = np.arange(27.0).reshape(9, 3)
    limits = evaluation.fit_thresholds(logits, few, recall=0.9, conformal=True)
    assert limits.tolist() == [-np.inf, 1.0, -np.inf]
    with pytest.raises(ValueError, match="`conformal` is for a `recall`"):
        evaluation.fit_thresholds(logits, few, conformal=True)
