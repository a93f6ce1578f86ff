"""Votes of neighbours, against scikit-learn."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from kerasvit import evaluation
from kerasvit.evaluation import neighbors
from tests.once import on_last_backend

pytestmark = on_last_backend


def some(count, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(6, size=count)
    features = random.normal(size=(count, 16)) * 2
    features[np.arange(count), labels] += 2
    return features * random.uniform(0.1, 10, size=(count, 1)), labels


@pytest.mark.parametrize("rows", [1, 7, 1000])
@pytest.mark.parametrize("k", [1, 20, 200])
def test_votes_are_those_of_scikit_learn(k, rows, monkeypatch):
    monkeypatch.setattr(neighbors, "_SIMILARITIES", rows * 200)
    (train, labels), (test, _) = some(200, 0), some(50, 1)
    found = evaluation.neighbor_votes(train, labels, test, 7, k=k)
    fitted = KNeighborsClassifier(
        k,
        weights=lambda distances: np.exp((1 - distances) / 0.07),
        metric="cosine",
        algorithm="brute",
    ).fit(train, labels)
    shares = found[:, :6] / found.sum(1, keepdims=True)
    np.testing.assert_allclose(shares, fitted.predict_proba(test), atol=1e-9)
    assert not found[:, 6].any()  # a class without a training image


def test_weight_is_the_exponential_of_the_cosine():
    train = np.array([[2.0, 0], [0, 3], [-1, 0]])
    votes = evaluation.neighbor_votes(train, [0, 1, 1], [[5, 0]], 2, k=2)
    np.testing.assert_allclose(votes, [[np.exp(1 / 0.07), 1]])


def test_a_feature_of_zeros_is_as_far_from_all():
    votes = evaluation.neighbor_votes(np.eye(3), [0, 1, 1], np.zeros((1, 3)), 2, k=3)
    np.testing.assert_allclose(votes, [[1, 2]])


def test_bad_input_is_explained():
    train, labels = some(30, 0)
    for changed, message in (
        ({"k": 31}, "`k` must be .*30"),
        ({"temperature": 0.001}, "`temperature`"),
        ({"classes": 3}, r"in \[0, 2\]"),
        ({"test_features": train[:, :3]}, "16 and 3"),
        ({"train_features": train * np.inf}, "image 0"),
    ):
        given = {
            "train_features": train,
            "train_labels": labels,
            "test_features": train,
            "classes": 6,
        }
        with pytest.raises(ValueError, match=message):
            evaluation.neighbor_votes(**{**given, **changed})
