"""Means over corruptions, against their definitions written out."""

import numpy as np
import pytest

from kerasvit import evaluation
from tests.once import on_last_backend

pytestmark = on_last_backend
TOY = evaluation.Reference("toy", 0.25, {"fog": 0.5, "snow": 0.8})
FOUND = {"fog": [0.9, 0.8, 0.7, 0.6, 0.5], "snow": [0.6, 0.6, 0.5, 0.4, 0.4]}


def test_mean_accuracy_is_over_corruptions_and_severities():
    assert evaluation.mean_accuracy(FOUND) == pytest.approx((0.7 + 0.5) / 2)
    assert evaluation.mean_accuracy({"fog": [0.5]}) == 0.5


def test_corruption_error_longhand():
    expected = (0.3 / 0.5 + 0.5 / 0.8) / 2
    assert evaluation.mean_corruption_error(FOUND, TOY) == pytest.approx(expected)


def test_relative_corruption_error_longhand():
    expected = ((0.3 - 0.1) / (0.5 - 0.25) + (0.5 - 0.1) / (0.8 - 0.25)) / 2
    found = evaluation.relative_mean_corruption_error(FOUND, 0.9, TOY)
    assert found == pytest.approx(expected)


def test_errors_of_the_reference_are_one():
    reference = evaluation.ALEXNET
    same = {name: [1 - error] * 5 for name, error in reference.errors.items()}
    assert len(same) == 15
    assert evaluation.mean_corruption_error(same, reference) == pytest.approx(1)
    relative = evaluation.relative_mean_corruption_error(
        same, 1 - reference.clean, reference
    )
    assert relative == pytest.approx(1)


@pytest.mark.parametrize(
    ("accuracies", "message"),
    [
        ({}, "same severities"),
        ({"fog": []}, "same severities"),
        ({"fog": [0.1] * 5, "snow": [0.1] * 4}, "'snow': 4"),
        ({"fog": [90.0] * 5}, r"in \[0, 1\].*90.0 for fog"),
        ({"fog": [np.nan] * 5}, "nan"),
        ({"fog": [0.1] * 4}, "4 of fog"),
        ({"frost": [0.1] * 5}, r"'fog', 'snow'.*\['frost'\]"),
    ],
)
def test_bad_input_is_explained(accuracies, message):
    with pytest.raises(ValueError, match=message):
        evaluation.mean_corruption_error(accuracies, TOY)


def test_a_reference_that_loses_nothing_is_refused():
    easy = evaluation.Reference("toy", 0.5, {"fog": 0.5})
    with pytest.raises(ValueError, match="beyond 0.5"):
        evaluation.relative_mean_corruption_error({"fog": [0.1] * 5}, 0.9, easy)
    with pytest.raises(ValueError, match="`clean`"):
        evaluation.relative_mean_corruption_error(FOUND, 90.0, TOY)
