"""Logistic regression with a validated penalty, against scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from kerasvit import evaluation
from kerasvit.evaluation.linear_probe import STRENGTHS, _best_strength, _fitted, probes
from tests.once import on_last_backend

pytestmark = on_last_backend


def some(count, classes, seed):
    random = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    features = random.normal(size=(count, 6)) * 2 + 3
    features[np.arange(count), labels] += 2
    return features * [1, 10, 0.1, 1, 1, 1], labels


@pytest.mark.parametrize("classes", [2, 4])
def test_probe_is_the_best_of_scikit_learns_fits(classes):
    train, labels = some(60, classes, 0)
    held, held_labels = some(30, classes, 1)
    test, _ = some(40, classes, 2)
    every = np.concatenate([train, held])
    every_label = np.concatenate([labels, held_labels])
    mean, std = every.mean(0), every.std(0)

    def fit(strength, features, labels):
        regression = LogisticRegression(C=strength, max_iter=10_000, tol=1e-8)
        return regression.fit((features - mean) / std, labels)

    losses = [
        log_loss(
            held_labels,
            fit(strength, train, labels).predict_proba((held - mean) / std),
        )
        for strength in STRENGTHS
    ]
    best = STRENGTHS[np.argmin(losses)]
    assert STRENGTHS[0] < best < STRENGTHS[-1]
    expected = fit(best, every, every_label).predict_proba((test - mean) / std)

    kernel, bias = evaluation.linear_probe(train, labels, held, held_labels, classes)
    odds = np.exp(test @ kernel + bias)
    found = odds / odds.sum(1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=5e-3)


def test_a_class_without_an_image_is_never_the_answer():
    train, labels = some(20, 2, 0)
    held, held_labels = some(8, 2, 1)
    kernel, bias = evaluation.linear_probe(train, labels + 1, held, held_labels + 1, 4)
    far = np.random.default_rng(0).normal(size=(500, 6)) * 1e4
    assert set((far @ kernel + bias).argmax(1)) == {1, 2}


def test_classes_of_validation_images_alone_are_left_out_of_the_choice():
    train, labels = some(30, 3, 0)
    held, held_labels = some(20, 4, 1)
    train, held = train / train.std(0), held / train.std(0)
    known = held_labels < 3
    fitted = train, labels, None
    expected, _ = _best_strength(fitted, (held[known], held_labels[known], None))
    assert _best_strength(fitted, (held, held_labels, None))[0] == expected
    unknown = held[~known], held_labels[~known], None
    assert _best_strength(fitted, unknown)[0] == 1


@pytest.mark.slow
def test_a_weight_of_two_is_the_image_twice():
    train, labels = some(30, 3, 0)
    held, held_labels = some(12, 3, 1)
    weights, ones = np.where(np.arange(30) < 10, 2.0, 1.0), np.ones(12)
    # Whole features are standardised without weights.
    twice = [np.concatenate([a, a[:10]]) for a in (train, labels)]
    weighted = _best_strength((train, labels, weights), (held, held_labels, ones))[1]
    expected = _best_strength((*twice, None), (held, held_labels, None))[1]
    np.testing.assert_allclose(weighted.coef_, expected.coef_, atol=5e-3)


def test_the_fit_to_the_training_images_alone_has_not_seen_the_others():
    train, labels = some(60, 3, 0)
    held, held_labels = some(30, 3, 1)
    whole, alone = probes((train, labels, None), (held, held_labels, None), 3)
    for found, same in (
        (whole, evaluation.linear_probe(train, labels, held, held_labels, 3)),
        (
            alone,
            probes((train, labels, None), (held[::-1], held_labels[::-1], None), 3)[1],
        ),
    ):
        np.testing.assert_allclose(found[0], same[0], rtol=1e-4, atol=1e-5)
    one_class = train, np.zeros(60, int), None
    assert probes(one_class, (held, held_labels, None), 3)[1] is None


def test_a_fit_that_does_not_converge_prints_nothing(recwarn):
    random = np.random.default_rng(0)
    features = random.normal(size=(100, 8)) * 10.0 ** np.arange(-4, 4)
    fitted = _fitted(1e9, features, random.integers(4, size=100))
    assert fitted.n_iter_ == 300
    assert not recwarn.list


def test_bad_input_is_explained():
    train, labels = some(20, 2, 0)
    zeros = np.zeros(20, int)
    with pytest.raises(ValueError, match="two classes"):
        evaluation.linear_probe(train, zeros, train, zeros, 2)
    with pytest.raises(ValueError, match="6 and 5"):
        evaluation.linear_probe(train, labels, train[:, :5], labels, 2)
    with pytest.raises(ValueError, match=r"`validation_labels`.*in \[0, 1\]"):
        evaluation.linear_probe(train, labels, train, labels + 1, 2)
