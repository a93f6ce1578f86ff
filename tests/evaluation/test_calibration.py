"""Temperatures, vector scaling and the Brier score, against closed forms."""

import numpy as np
import pytest
from scipy import optimize, special

from kerasvit import evaluation
from tests.once import on_last_backend

pytestmark = on_last_backend


def outputs(count, seed, temperature=1.0, classes=5):
    """Logits, and labels drawn with the probabilities of logits / temperature."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(count, classes)) * 3
    draws = random.gumbel(size=logits.shape)
    return logits, (logits / temperature + draws).argmax(axis=1)


def nll(logits, labels):
    return evaluation.negative_log_likelihood(logits, labels).mean()


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_the_temperature_is_found(temperature):
    logits, labels = outputs(20_000, 0, temperature)
    found = evaluation.fit_temperature(logits, labels)
    assert found == pytest.approx(temperature, rel=0.05)
    best = optimize.minimize_scalar(
        lambda t: nll(logits / t, labels), bounds=(0.1, 10), options={"xatol": 1e-9}
    )
    assert found == pytest.approx(best.x, rel=1e-5)


def test_calibration_improves_the_likelihood_of_other_images():
    logits, labels = outputs(2000, 1, 2.0)
    held, held_labels = outputs(2000, 2, 2.0)
    before = nll(held, held_labels)
    t = evaluation.fit_temperature(logits, labels)
    assert nll(held / t, held_labels) < before - 0.1
    scaling = evaluation.fit_vector_scaling(logits, labels)
    assert nll(scaling(held), held_labels) < before - 0.1
    hits = evaluation.top_k_hits(held, held_labels)
    errors = [
        evaluation.expected_calibration_error(
            special.softmax(each, axis=1).max(axis=1), hits
        )
        for each in (held, held / t)
    ]
    assert errors[1] < errors[0] / 3


def test_vector_scaling_finds_the_factors_and_offsets():
    logits, _ = outputs(40_000, 3)
    scale, offset = np.array([0.5, 1, 2, 1, 1]), np.array([1.0, 0, 0, -1, 0])
    draws = np.random.default_rng(4).gumbel(size=logits.shape)
    labels = (scale * logits + offset + draws).argmax(axis=1)
    found = evaluation.fit_vector_scaling(logits, labels)
    np.testing.assert_allclose(found.scale, scale, rtol=0.1)
    # Equal offsets of all classes change nothing.
    np.testing.assert_allclose(
        found.offset - found.offset.mean(), offset - offset.mean(), atol=0.1
    )


def test_a_temperature_of_each_label():
    random = np.random.default_rng(5)
    logits = random.normal(size=(20_000, 4)) * 3
    temperatures = np.array([0.5, 1.0, 3.0, 1.0])
    labels = random.random(logits.shape) < special.expit(logits / temperatures)
    labels[:, 3] = False
    found = evaluation.fit_label_temperatures(logits, labels)
    np.testing.assert_allclose(found[:3], temperatures[:3], rtol=0.1)
    assert found[3] == 1
    best = optimize.minimize_scalar(
        lambda t: np.logaddexp(
            0, np.where(labels[:, 2], -1, 1) * logits[:, 2] / t
        ).mean(),
        bounds=(0.1, 10),
        options={"xatol": 1e-9},
    )
    assert found[2] == pytest.approx(best.x, rel=1e-5)


def test_a_model_without_errors_and_one_without_knowledge():
    logits = np.eye(4)
    assert evaluation.fit_temperature(logits, np.arange(4)) == 0.01
    assert evaluation.fit_temperature(logits, [1, 2, 3, 0]) == 100
    assert (evaluation.fit_label_temperatures(logits, np.eye(4)) == 0.01).all()
    assert (evaluation.fit_label_temperatures(logits, 1 - np.eye(4)) == 100).all()


def test_brier_scores():
    probabilities = np.array([[0.7, 0.2, 0.1], [0.0, 0.0, 1.0]])
    found = evaluation.brier_score(probabilities, [0, 1])
    np.testing.assert_allclose(found, [0.09 + 0.04 + 0.01, 2.0])
    several = evaluation.brier_score(probabilities, [[1, 0, 1], [0, 0, 1]])
    np.testing.assert_allclose(several, [(0.09 + 0.04 + 0.81) / 3, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: evaluation.fit_temperature([[1.0], [2]], [0, 0]), "two classes"),
        (lambda: evaluation.fit_temperature([[1.0, np.nan]], [0]), "must be finite"),
        (lambda: evaluation.fit_temperature([[1.0, 2]], [2]), r"must be in \[0, 1\]"),
        (
            lambda: evaluation.fit_label_temperatures([[1.0, 2]], [1]),
            r"shape \(1, 2\). Received: \(1,\)",
        ),
        (
            lambda: evaluation.fit_label_temperatures([[1.0, 2]], [[0, 2]]),
            "must be 0 or 1",
        ),
        (lambda: evaluation.brier_score([[1.0, 2]], [0]), "from 1 to 2"),
    ],
)
def test_a_wrong_call_gets_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
