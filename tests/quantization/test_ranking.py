"""Similarity-aware scales, the order of scores and mixed bits, against longhand."""

import itertools

import numpy as np
import pytest

from kerasvit.quantization import Uniform, ranking, simulate
from tests.contract import to_numpy
from tests.models.tiny import tiny
from tests.once import on_last_backend

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 16, 16, 3)).astype("float32")

pytestmark = on_last_backend


def test_the_correlation_is_that_of_numpy():
    x, y = RNG.normal(size=(2, 30, 3))
    y = y + x
    expected = np.corrcoef(x.ravel(), y.ravel())[0, 1]
    assert ranking.similarity(x, y) == pytest.approx(expected)
    columns = [np.corrcoef(x[:, i], y[:, i])[0, 1] for i in range(3)]
    np.testing.assert_allclose(ranking.similarity(x, y, (0,)), columns)
    assert ranking.similarity(x, np.ones_like(x)) == 0


def test_the_order_loss_counts_pairs_that_are_close_or_exchanged():
    exact = np.array([[0.0, 1.0, 3.0, 2.0]])
    found = np.array([[0.0, 1.0, 2.0, 2.1]])
    losses = []
    for distance in (1, 2):
        for i in range(4):
            j = (i - distance) % 4
            sign = np.sign(exact[0, i] - exact[0, j])
            losses.append(max(0.2 - (found[0, i] - found[0, j]) * sign, 0))
    assert ranking.order_loss(exact, found) == pytest.approx(np.mean(losses))
    assert ranking.order_loss(exact, exact) == 0
    assert ranking.order_loss(exact[:, :1], found[:, :1]) == 0


def test_bits_go_to_the_layers_that_need_them():
    costs = {"a": [80, 20, 5, 1, 0], "b": [8, 2, 0.5, 0.1, 0], "c": [1, 1, 1, 1, 1]}
    sizes = dict.fromkeys(costs, 10)
    found = ranking.allocated(costs, sizes)
    assert sum(found.values()) == 6

    def total(steps):
        return sum(cost[step] for cost, step in zip(costs.values(), steps, strict=True))

    possible = itertools.product(range(5), repeat=3)
    best = min(total(steps) for steps in possible if sum(steps) <= 6)
    assert total(found.values()) == best
    assert ranking.allocated({}, {}) == {}
    large = ranking.allocated(costs, {"a": 1000, "b": 1, "c": 1})
    assert large == {"a": 2, "b": 4, "c": 0} or large["a"] <= 2


def test_the_search_finds_scales_with_a_higher_correlation():
    x = RNG.laplace(size=(200, 12)).astype("float32")
    kernel = RNG.laplace(size=(12, 5)).astype("float32")
    starts = {
        "inputs": Uniform.of_range(x.min(), x.max(), 4),
        "kernel": Uniform.symmetric(np.abs(kernel).max(0, keepdims=True), 4),
    }

    def correlation(quantizers):
        rounded = (
            quantizers["inputs"].rounded(x)[0] @ quantizers["kernel"].rounded(kernel)[0]
        )
        return np.corrcoef(rounded.ravel(), (x @ kernel).ravel())[0, 1]

    search = ranking._Search(starts)
    found = search(lambda a, b: a @ b, {"inputs": x, "kernel": kernel})
    np.testing.assert_allclose(to_numpy(found), x @ kernel, rtol=1e-5)
    assert correlation(search.quantizers) > correlation(starts)
    parts = search.quantizers["kernel"].scale / starts["kernel"].scale
    assert parts.shape == (1, 5) and 0.5 <= parts.min() < parts.max() <= 1.2


def test_costs_are_the_relative_squared_errors_of_results():
    x, kernel = RNG.normal(size=(2, 9, 9)).astype("float32")
    coarse, fine = (
        {
            "inputs": Uniform.of_range(x.min(), x.max(), bits),
            "kernel": Uniform.symmetric(np.abs(kernel).max(0, keepdims=True), bits),
        }
        for bits in (3, 6)
    )
    cost = ranking._Cost([coarse, fine])
    cost(lambda a, b: 100 * (a @ b), {"inputs": x, "kernel": kernel})
    rounded = coarse["inputs"].rounded(x)[0] @ coarse["kernel"].rounded(kernel)[0]
    exact = x @ kernel
    expected = np.sum((rounded - exact) ** 2) / np.sum(exact**2)
    assert cost.costs[0] == pytest.approx(expected, rel=1e-4)
    assert cost.costs[1] < cost.costs[0] / 10


@pytest.mark.slow
def test_all_bits_are_equal_where_none_can_be_taken_away():
    model = simulate(tiny("VisionTransformer"), X, "ranking", 2)
    dense = model.get_layer("encoder_block_0").mlp.dense_0
    assert dense.rounding.quantizers["kernel"].highest == 1
