"""Conformal sets: their coverage in simulation, and their scores by hand."""

import dataclasses
import json

import numpy as np
import pytest

from kerasvit import evaluation
from tests.evaluation.test_calibration import outputs
from tests.once import on_last_backend

pytestmark = on_last_backend
METHODS = ("threshold", "aps", "raps")


@pytest.mark.slow
@pytest.mark.parametrize("coverage", [0.8, 0.95])
@pytest.mark.parametrize("method", METHODS)
def test_the_coverage_is_the_stated_one(method, coverage):
    rates = []
    for seed in range(200):
        logits, labels = outputs(500, seed, temperature=2.0)
        rule = evaluation.fit_conformal(logits[:100], labels[:100], coverage, method)
        sets = rule(logits[100:])
        rates.append(sets[np.arange(400), labels[100:]].mean())
    error = np.std(rates) / np.sqrt(len(rates))
    assert coverage - 3 * error < np.mean(rates)
    if method == "threshold":  # at most 1 / (count + 1) more, without ties
        assert np.mean(rates) < coverage + 1 / 101 + 3 * error


def test_scores_by_hand():
    logits = np.log([[0.5, 0.2, 0.3]] * 3)
    labels = [0, 1, 2]
    # In descending order: class 0, 2, 1.
    expected = {
        "threshold": [0.5, 0.8, 0.7],
        "aps": [0.5, 1.0, 0.8],
        "raps": [0.5, 1.0 + 2 * 0.1, 0.8 + 0.1],
    }
    for method, scores in expected.items():
        for coverage, place in ((0.2, 0), (0.5, 1), (0.66, 2)):
            rule = evaluation.fit_conformal(logits, labels, coverage, method)
            assert rule.quantile == pytest.approx(sorted(scores)[place])
            found = rule(logits[:1])[0]
            smaller = np.array(scores) <= sorted(scores)[place] + 1e-9
            assert found.tolist() == smaller.tolist()


def test_a_set_has_the_most_probable_class():
    logits = np.log([[0.5, 0.2, 0.3]] * 3)
    rule = evaluation.fit_conformal(logits, [0, 0, 0], 0.2, "aps")
    assert rule.quantile == pytest.approx(0.5)
    assert rule(np.log([[0.05, 0.9, 0.05]])).tolist() == [[False, True, False]]


def test_raps_makes_smaller_sets_of_many_classes():
    logits, labels = outputs(4000, 0, classes=100)
    sizes = {
        method: evaluation.fit_conformal(logits[:2000], labels[:2000], 0.9, method)(
            logits[2000:]
        )
        .sum(axis=1)
        .mean()
        for method in METHODS
    }
    assert sizes["threshold"] <= sizes["raps"] < sizes["aps"]


def test_the_rule_is_plain_numbers():
    logits, labels = outputs(50, 0)
    rule = evaluation.fit_conformal(logits, labels, 0.9)
    kept = json.loads(json.dumps(dataclasses.asdict(rule)))
    assert evaluation.ConformalSets(**kept) == rule
    with_penalty = evaluation.fit_conformal(logits, labels, 0.9, penalty=0.5, rank=2)
    assert (with_penalty.penalty, with_penalty.rank) == (0.5, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coverage": 0.99}, "at least 100 images. Received: 40"),
        ({"coverage": 90}, "must be a share between 0 and 1"),
        ({"coverage": 1.0}, "must be a share between 0 and 1"),
        ({"method": "lac"}, "`method` must be"),
        ({"penalty": -1}, "`penalty` must be"),
        ({"labels": [7] * 40}, r"must be in \[0, 4\]"),
    ],
)
def test_a_wrong_call_gets_a_sentence(changes, message):
    logits, labels = outputs(40, 0)
    with pytest.raises(ValueError, match=message):
        evaluation.fit_conformal(**{"logits": logits, "labels": labels, **changes})


def test_ten_images_suffice_for_90_percent():
    logits, labels = outputs(10, 0)
    evaluation.fit_conformal(logits, labels, 0.9)
    with pytest.raises(ValueError, match="at least 10 images. Received: 9"):
        evaluation.fit_conformal(logits[:9], labels[:9], 0.9)
