"""Few-shot least squares, against the definition written out."""

import numpy as np
import pytest

from kerasvit import evaluation
from tests.once import on_last_backend

pytestmark = on_last_backend


def some(count, width, classes=3, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    centers = np.random.default_rng(9).normal(size=(classes, width))
    features = centers[labels] + random.normal(size=(count, width)) * 2 + 5
    return features, labels


def longhand(features, labels, test, classes, dual):
    mean, std = features.mean(0), features.std(0) + 1e-5
    x, new = (
        np.concatenate([(f - mean) / std, np.full((len(f), 1), 100.0)], 1)
        for f in (features, test)
    )
    y = np.full((len(x), classes), -1.0)
    y[np.arange(len(x)), labels] = 1
    if dual:
        weights = x.T @ np.linalg.inv(x @ x.T + 1024 * np.eye(len(x))) @ y
    else:
        weights = np.linalg.inv(x.T @ x + 1024 * np.eye(x.shape[1])) @ x.T @ y
    return new @ weights


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize(("count", "width"), [(12, 40), (40, 40), (41, 40), (200, 10)])
def test_scores_are_those_of_both_forms_of_the_definition(count, width, dual):
    features, labels = some(count, width)
    test, _ = some(30, width, seed=1)
    kernel, bias = evaluation.least_squares(features, labels, 3)
    assert kernel.shape == (width, 3) and bias.shape == (3,)
    expected = longhand(features, labels, test, 3, dual)
    np.testing.assert_allclose(test @ kernel + bias, expected, atol=1e-9)


def test_a_constant_feature_does_no_harm():
    features, labels = some(30, 4)
    features[:, 1] = 3
    kernel, bias = evaluation.least_squares(features, labels, 3)
    assert np.isfinite(kernel).all() and np.isfinite(bias).all()


def test_shots_are_chosen_class_by_class_with_one_generator():
    labels = np.random.default_rng(0).permutation(np.arange(40) % 4)
    random = np.random.default_rng(7)
    expected = [random.permutation(np.where(labels == c)[0])[:3] for c in range(4)]
    found = evaluation.shots_of_classes(labels, 4, 3, seed=7)
    assert found.tolist() == np.concatenate(expected).tolist()
    assert labels[found].tolist() == np.repeat(np.arange(4), 3).tolist()
    fewer = evaluation.shots_of_classes(labels, 4, 1, seed=7)
    assert fewer.tolist() == found[::3].tolist()


def test_accuracy_is_that_of_the_fit_to_the_chosen_shots():
    train, labels = some(90, 12)
    test, test_labels = some(60, 12, seed=1)
    found = evaluation.few_shot_accuracy(
        train, labels, test, test_labels, 3, shots=(1, 5, 25)
    )
    assert list(found) == [1, 5, 25]
    for shots, accuracies in found.items():
        expected = []
        for seed in range(3):
            chosen = evaluation.shots_of_classes(labels, 3, shots, seed)
            logits = longhand(train[chosen], labels[chosen], test, 3, shots == 1)
            expected.append(np.mean(logits.argmax(1) == test_labels))
        assert accuracies == expected
    assert np.mean(found[25]) > np.mean(found[1])


def test_bad_input_is_explained():
    train, labels = some(30, 4)
    with pytest.raises(ValueError, match="25 images.*10 of class 0; 3 of 3"):
        evaluation.few_shot_accuracy(train, labels, train, labels, 3)
    with pytest.raises(ValueError, match="0 of class 3; 1 of 4"):
        evaluation.few_shot_accuracy(train, labels, train, labels, 4, shots=[1])
    with pytest.raises(ValueError, match="width.*4 and 3"):
        evaluation.few_shot_accuracy(train, labels, train[:, :3], labels, 3, shots=[1])
    with pytest.raises(ValueError, match=r"`test_labels`.*in \[0, 2\].*3 for image 2"):
        wrong = np.where(np.arange(30) == 2, 3, labels)
        evaluation.few_shot_accuracy(train, labels, train, wrong, 3, shots=[1])
    train[4, 1] = np.nan
    with pytest.raises(ValueError, match="image 4"):
        evaluation.least_squares(train, labels, 3)
    with pytest.raises(ValueError, match="`l2`"):
        evaluation.least_squares(train[:4], labels[:4], 3, l2=0)
