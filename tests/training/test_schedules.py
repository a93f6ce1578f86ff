"""The learning rate against its formula."""

import math

import keras
import numpy as np
import pytest

from kerasvit.training import warmup_cosine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peak", "steps", "warmup", "final"),
    [(0.03, 100, 10, 0.0), (0.5, 20, 0, 0.1), (1.0, 7, 6, 1.0), (2, 1, 0, 0)],
)
def test_linear_then_cosine(peak, steps, warmup, final):
    schedule = warmup_cosine(peak, steps=steps, warmup_steps=warmup, final=final)
    again = keras.optimizers.schedules.deserialize(
        keras.optimizers.schedules.serialize(schedule)
    )
    for step in {0, 1, warmup - 1, warmup, (warmup + steps) // 2, steps, 10 * steps}:
        step = max(step, 0)
        if step < warmup:
            expected = peak * step / warmup
        else:
            done = min(1, (step - warmup) / (steps - warmup))
            expected = final + (peak - final) * 0.5 * (1 + math.cos(math.pi * done))
        for each in (schedule, again):
            np.testing.assert_allclose(float(each(step)), expected, atol=1e-6 * peak)


def test_an_optimizer_follows_it():
    schedule = warmup_cosine(1.0, steps=4, warmup_steps=2)
    optimizer = keras.optimizers.SGD(schedule)
    weight = keras.Variable(0.0)
    seen = []
    for _ in range(5):
        before = float(weight)
        optimizer.apply([keras.ops.ones(())], [weight])
        seen.append(before - float(weight))
    np.testing.assert_allclose(seen, [0, 0.5, 1, 0.5, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("peak", 0),
        ("peak", -1.0),
        ("peak", math.nan),
        ("peak", "0.1"),
        ("steps", 0),
        ("steps", 10.5),
        ("steps", None),
        ("steps", True),
        ("warmup_steps", -1),
        ("warmup_steps", 10),
        ("warmup_steps", 0.1),
        ("final", -0.1),
        ("final", 0.6),
        ("final", math.inf),
    ],
)
def test_arguments_are_checked(name, value):
    arguments = {"peak": 0.5, "steps": 10, "warmup_steps": 2, "final": 0.0, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must be .*Received: {name}="):
        warmup_cosine(arguments.pop("peak"), **arguments)
