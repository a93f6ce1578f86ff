"""Accuracy, likelihood, calibration and intervals, compared with longhand NumPy."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest
from scipy.stats import t as student

from kerasvit import evaluation
from tests.once import on_last_backend

pytestmark = on_last_backend

random = np.random.default_rng(0)
LOGITS = random.normal(size=(200, 7)).astype("float32") * 2
LABELS = random.integers(7, size=200)


def test_hits_are_those_of_the_most_probable_classes():
    for k in (1, 2, 5, 9):
        found = evaluation.top_k_hits(LOGITS, LABELS, k)
        for row, label, hit in zip(LOGITS, LABELS, found):
            assert hit == (label in sorted(range(7), key=lambda i: -row[i])[:k])


def test_of_equal_logits_the_first_class_is_predicted():
    logits = np.zeros((3, 4))
    assert evaluation.top_k_hits(logits, [0, 1, 3]).tolist() == [True, False, False]
    assert evaluation.top_k_hits(logits, [0, 1, 3], 2).tolist() == [True, True, False]


def test_one_logit_has_no_accuracy():
    for function in (evaluation.scores, evaluation.top_k_hits):
        with pytest.raises(ValueError, match="with two classes or more"):
            function(np.zeros((3, 1)), [0, 0, 0])


def test_one_of_several_labels_suffices():
    logits = np.array([[0.0, 2, 1], [0, 2, 1], [0, 2, 1]])
    labels = [np.array([0, 1]), np.array([0, 2]), np.array([], int)]
    assert evaluation.top_k_hits(logits, labels).tolist() == [True, False, False]
    assert evaluation.top_k_hits(logits, labels, 2).tolist() == [True, True, False]


def test_likelihood_is_that_of_the_softmax():
    found = evaluation.negative_log_likelihood(LOGITS, LABELS)
    for row, label, value in zip(LOGITS.astype("float64"), LABELS, found):
        exponentials = [math.exp(x) for x in row]
        expected = -math.log(exponentials[label] / sum(exponentials))
        assert value == pytest.approx(expected, abs=1e-12)


def test_likelihood_of_large_logits_is_finite():
    found = evaluation.negative_log_likelihood([[1e4, 0.0], [0.0, 1e4]], [1, 1])
    assert found.tolist() == [1e4, 0.0]


def test_calibration_error_is_the_mean_gap_of_the_bins():
    confidences = random.uniform(0.01, 1, size=300)
    confidences[:3] = 1.0, 1 / 15, 2 / 15  # ends belong to the bin below them
    hits = random.uniform(size=300) < confidences**2
    expected = 0.0
    for i in range(15):
        inside = (confidences > i / 15) & (confidences <= (i + 1) / 15)
        if inside.any():
            gap = abs(hits[inside].mean() - confidences[inside].mean())
            expected += gap * inside.mean()
    found = evaluation.expected_calibration_error(confidences, hits)
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("right", "count"), [(0, 10), (10, 10), (3, 7), (799, 1000)])
def test_interval_of_a_share_is_wilsons(right, count):
    expected = binomtest(right, count).proportion_ci(method="wilson")
    found = evaluation.binomial_interval(right, count)
    np.testing.assert_allclose(found, (expected.low, expected.high), atol=1e-9)


def test_bootstrapped_interval_of_a_mean_is_that_of_its_standard_error():
    values = random.normal(size=2_000)
    found = evaluation.bootstrap_interval(
        lambda i: values[i].mean(), len(values), resamples=10_000
    )
    error = values.std() / math.sqrt(len(values))
    expected = values.mean() - 1.96 * error, values.mean() + 1.96 * error
    np.testing.assert_allclose(found, expected, atol=0.2 * error)


def test_interval_of_the_calibration_error_makes_up_for_its_bias():
    draw = np.random.default_rng(0)
    labels = draw.integers(4, size=4_000)
    share = draw.uniform(0.3, 1, size=4_000)  # right as often as the model is confident
    right = draw.random(4_000) < share
    predicted = np.where(right, labels, (labels + 1) % 4)
    probabilities = np.repeat(((1 - share) / 3)[:, None], 4, 1)
    probabilities[np.arange(4_000), predicted] = share
    found = evaluation.scores(np.log(probabilities), labels)["ece"]
    # The true value is 0.
    assert 0 <= found.low < found.value / 2
    assert found.value <= found.high < found.value * 1.5


def test_difference_of_models_that_are_wrong_on_the_same_images():
    hits = random.uniform(size=1_000) < 0.7
    others = hits.copy()
    others[np.flatnonzero(~hits)[:20]] = True  # 2 % more, all others equal
    value, low, high = evaluation.paired_difference(hits, others)
    assert value == pytest.approx(0.02)
    # Twenty independent images that differ.
    assert 0.01 < low < 0.013 and 0.027 < high < 0.03
    assert evaluation.paired_difference(hits, hits) == (0, 0, 0)


def test_an_unpaired_difference_is_newcombes():
    # Newcombe 1998, Table II, cases (a), (d) and (h) of method 10, to 4 places.
    for counts, ends in (
        ((48, 80, 56, 70), (0.0524, 0.3339)),
        ((0, 29, 5, 56), (-0.0381, 0.1926)),
        ((0, 10, 10, 10), (0.6075, 1.0)),
    ):
        right, count, other, other_count = counts
        value, *found = evaluation.unpaired_difference(right, count, other, other_count)
        assert value == pytest.approx(other / other_count - right / count)
        np.testing.assert_allclose(found, ends, atol=1e-4)


def test_a_paired_difference_of_shares():
    random = np.random.default_rng(0)
    shares, others = random.integers(6, size=(2, 500)) / 5
    value, *ends = evaluation.paired_difference(shares, others)
    assert value == pytest.approx((others - shares).mean())
    normal = 1.96 * (others - shares).std() / np.sqrt(500)
    np.testing.assert_allclose(ends, [value - normal, value + normal], atol=3e-3)


def test_scores_are_the_numbers_and_their_intervals():
    found = evaluation.scores(LOGITS, LABELS)
    hits = evaluation.top_k_hits(LOGITS, LABELS)
    assert found["top1"] == (
        hits.mean(),
        *evaluation.binomial_interval(hits.sum(), 200),
    )
    assert found["top5"].value == evaluation.top_k_hits(LOGITS, LABELS, 5).mean()
    losses = evaluation.negative_log_likelihood(LOGITS, LABELS)
    assert found["nll"].value == losses.mean()
    assert found["ece"].low <= found["ece"].value <= found["ece"].high
    several = evaluation.scores(LOGITS, [[label, (label + 1) % 7] for label in LABELS])
    assert "nll" not in several and several["top1"].value > found["top1"].value


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.zeros(3), [0, 1, 2], "shape \\(count, classes\\)"),
        (np.zeros((3, 2)), [0, 1], "one entry for each image"),
        (np.zeros((2, 2)), [0, 2], "from 0 to 1. Received: from 0 to 2"),
        (np.zeros((2, 2)), [-1, 0], "Received: from -1 to 0"),
        ([[0, 1], [0, np.nan]], [0, 1], "of 1 of 2 images are not finite.*image 1"),
        (np.zeros((2, 2)), [[0], []], "1 of 2 have none"),
        (np.zeros((0, 2)), [], "a class for each image"),
    ],
)
def test_wrong_arguments(logits, labels, message):
    with pytest.raises(ValueError, match=message):
        evaluation.scores(logits, labels)


def test_the_interval_over_seeds_has_the_variance_of_both():
    values = random.uniform(size=(3, 50)) < np.array([[0.5], [0.6], [0.8]])
    images = np.var(values.mean(0), ddof=1) / 50
    seeds = np.var(values.mean(1), ddof=1) / 3
    total = images + seeds
    freedom = total**2 / (images**2 / 49 + seeds**2 / 2)
    half = student.ppf(0.975, freedom) * math.sqrt(total)
    found = evaluation.seeds_interval(values)
    assert found == pytest.approx((values.mean() - half, values.mean() + half))
    one = evaluation.seeds_interval(values[:1])
    half = student.ppf(0.975, 49) * math.sqrt(np.var(values[0], ddof=1) / 50)
    assert one == pytest.approx((values[0].mean() - half, values[0].mean() + half))
    assert evaluation.seeds_interval(np.ones((3, 4))) == (1, 1)
    with pytest.raises(ValueError, match=r"\(seeds, images\).*Received: shape \(3,\)"):
        evaluation.seeds_interval(np.ones(3))


def test_a_difference_over_seeds_is_paired():
    hits, others = random.uniform(size=(2, 3, 40)) < 0.6
    value, *interval = evaluation.paired_difference(hits, others)
    differences = others.astype(int) - hits
    assert value == pytest.approx(differences.mean())
    assert tuple(interval) == evaluation.seeds_interval(differences)
