"""Risk at each coverage, and scores of unlike images, against scikit-learn."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from sklearn.covariance import EmpiricalCovariance
from sklearn.metrics import roc_curve
from sklearn.neighbors import NearestNeighbors

from kerasvit import evaluation
from kerasvit.evaluation import out_of_distribution
from tests.once import on_last_backend

pytestmark = on_last_backend
random = np.random.default_rng(0)


def test_risk_by_hand():
    found = evaluation.risk_coverage([0.9, 0.5, 0.8, 0.1], [1, 0, 0, 1])
    np.testing.assert_allclose(found.coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(found.risk, [0, 1 / 2, 2 / 3, 2 / 4])
    means = (0 + 1 / 2) / 2, (1 / 2 + 2 / 3) / 2, (2 / 3 + 2 / 4) / 2
    assert found.area == pytest.approx(sum(means) / 3)
    assert found.coverage_at(0.5) == 1
    assert found.coverage_at(0.4) == 0.25
    assert evaluation.risk_coverage([1.0, 2], [0, 0]).coverage_at(0.9) == 0


def test_equal_confidences_have_the_mean_of_all_orders():
    confidences, hits = np.array([0.5, 0.9, 0.5, 0.5, 0.1]), np.array([1, 0, 0, 1, 1])
    risks = []
    for order in itertools.permutations(range(5)):
        ordered = np.array(sorted(order, key=lambda i: -confidences[i]))
        risks.append((1 - hits[ordered]).cumsum() / np.arange(1, 6))
    found = evaluation.risk_coverage(confidences, hits)
    np.testing.assert_allclose(found.risk, np.mean(risks, axis=0))


def test_scores_of_logits():
    logits = random.normal(size=(30, 6)) * 5
    np.testing.assert_allclose(
        evaluation.softmax_score(logits), 1 - softmax(logits, axis=1).max(axis=1)
    )
    np.testing.assert_allclose(
        evaluation.energy_score(logits, 2.0), -2 * logsumexp(logits / 2, axis=1)
    )
    np.testing.assert_allclose(
        evaluation.joint_energy_score(logits), -np.log1p(np.exp(logits)).sum(axis=1)
    )
    assert evaluation.softmax_score([[800.0, 0]]) == 0
    assert evaluation.energy_score([[800.0, 0]]) == -800


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_distance_to_neighbours(rows, monkeypatch):
    monkeypatch.setattr(out_of_distribution, "_SIMILARITIES", rows * 40)
    train, test = random.normal(size=(40, 8)), random.normal(size=(30, 8))

    def normalized(x):
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    neighbors = NearestNeighbors(n_neighbors=5).fit(normalized(train))
    expected = neighbors.kneighbors(normalized(test))[0][:, -1]
    found = evaluation.neighbor_score(train, test, k=5)
    np.testing.assert_allclose(found, expected)
    assert evaluation.neighbor_score(train, train[:3], k=1).max() < 1e-6


def test_mahalanobis_distance():
    labels = random.integers(3, size=90)
    train = random.normal(size=(90, 4)) @ random.normal(size=(4, 4)) + labels[:, None]
    test = random.normal(size=(20, 4))
    means = [train[labels == i].mean(axis=0) for i in range(3)]
    covariance = EmpiricalCovariance(assume_centered=True)
    covariance.fit(train - np.array(means)[labels])
    expected = [covariance.mahalanobis(test - mean) for mean in means]
    found = evaluation.mahalanobis_score(train, labels, test, 5)
    np.testing.assert_allclose(found, np.min(expected, axis=0))
    # A feature that is always 0 changes nothing.
    wide = [np.pad(each, ((0, 0), (0, 1))) for each in (train, test)]
    again = evaluation.mahalanobis_score(wide[0], labels, wide[1], 5)
    np.testing.assert_allclose(again, found)


def test_detection():
    inside, outside = random.normal(size=200), random.normal(size=100) + 1
    unlike = np.repeat([0, 1], [200, 100])
    false, true, thresholds = roc_curve(
        1 - unlike, -np.concatenate([inside, outside]), drop_intermediate=False
    )
    expected = np.trapezoid(true, false)
    assert evaluation.detection_auroc(inside, outside) == pytest.approx(expected)
    for recall in (0.5, 0.95, 1.0):
        found = evaluation.detection_fpr(inside, outside, recall)
        assert found == pytest.approx(false[np.argmax(true >= recall - 1e-12)])
    assert evaluation.detection_auroc([1.0], [1.0]) == 0.5
    assert evaluation.detection_fpr([1.0] * 20, [2.0]) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: evaluation.risk_coverage([0.5], [1, 0]), "one entry for each image"),
        (lambda: evaluation.risk_coverage([np.nan], [1]), "must be finite"),
        (lambda: evaluation.energy_score([[1.0]], 0), "`temperature` must be"),
        (lambda: evaluation.neighbor_score([[1.0]], [[1.0]], 2), "at most the number"),
        (lambda: evaluation.neighbor_score([[1.0]], [[1.0, 2]], 1), "same width"),
        (lambda: evaluation.detection_auroc([], [1.0]), "one for each image"),
        (lambda: evaluation.detection_fpr([1.0], [1.0], 95), "must be a share"),
    ],
)
def test_a_wrong_call_gets_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
