import math

import keras
import numpy as np
import pytest

from kerasvit.arguments import (
    ArgumentError,
    check_built,
    integer,
    number,
    number_of_each,
    one_of,
)
from tests.once import on_last_backend

pytestmark = on_last_backend


@pytest.mark.parametrize("value", [3, np.int64(3), np.array(3)])
def test_a_whole_number(value):
    checked = integer("k", value, 1, 3)
    assert checked == 3 and type(checked) is int


@pytest.mark.parametrize("value", [0, 4, 2.0, True, "3", None, [3]])
def test_no_whole_number_in_range(value):
    with pytest.raises(ArgumentError) as raised:
        integer("k", value, 1, 3, meaning="the steps of a look")
    expected = "`k` must be a whole number in [1, 3], the steps of a look. Received: k="
    assert str(raised.value) == f"{expected}{value!r}."
    assert raised.value.arguments == ("k",)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("value", [0, 0.5, np.float32(0.5)])
def test_a_number(value):
    checked = number("rate", value, 0, 1)
    assert checked == value and type(checked) is float


@pytest.mark.parametrize("value", [1, -0.1, math.nan, math.inf, True, "0.5", None])
def test_no_number_in_range(value):
    with pytest.raises(ArgumentError, match=r"`rate` must be a finite number in \[0, "):
        number("rate", value, 0, 1)


def test_ranges_of_numbers_in_messages():
    for options, message in (
        ({}, "a finite number. R"),
        ({"low": 0}, "a finite number ≥ 0. R"),
        ({"positive": True}, "a finite number > 0. R"),
    ):
        with pytest.raises(ArgumentError, match=message):
            number("x", None, **options)
    with pytest.raises(ArgumentError, match="must be a finite number > 0"):
        number("x", 0, positive=True)


def test_a_number_of_each():
    assert number_of_each("mean", 0.5, 3, 0, 1) == (0.5, 0.5, 0.5)
    assert number_of_each("mean", np.array([0, 1]), 2, 0, 1) == (0.0, 1.0)
    for value in ([0, 2], [0], "ab", None, [0, math.nan]):
        with pytest.raises(ArgumentError, match="`mean` must be a number or 2 numbers"):
            number_of_each("mean", value, 2, 0, 1)


@pytest.mark.parametrize(
    ("value", "known", "chosen"),
    [
        ("gelu", ("relu", "gelu"), "gelu"),
        (np.str_("gelu"), ("relu", "gelu"), "gelu"),
        (1, (True, False), True),
        (np.False_, (True, False), False),
        (None, (True, None), None),
    ],
)
def test_one_of_several(value, known, chosen):
    assert one_of("x", value, known) is chosen


@pytest.mark.parametrize("value", ["1", 2, None, [], np.ones(2), {"a": 1}])
def test_none_of_several(value):
    with pytest.raises(ArgumentError, match="`x` must be one of True, 'a'. Received"):
        one_of("x", value, (True, "a"))


def test_true_is_not_the_number_1():
    with pytest.raises(ArgumentError, match="must be one of 0, 1"):
        one_of("resample", True, (0, 1))


def test_a_model_without_weights():
    check_built(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    for model in ("model", keras.Sequential([keras.layers.Dense(1)])):
        with pytest.raises(ArgumentError, match="`model` .*eceived: model=") as raised:
            check_built(model)
        assert raised.value.arguments == ("model",)
