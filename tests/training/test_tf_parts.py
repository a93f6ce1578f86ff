"""Micro-batches on TensorFlow, under XLA and with unknown batch sizes."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import layers

from kerasvit.training import ASAM, GSAM, MSAM, SAM, SAMON, LookSAM

pytestmark = [
    pytest.mark.slow,
    pytest.mark.only_on("tensorflow", reason="how TensorFlow traces"),
]


def data(n):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 5)).astype("float32")
    return x, rng.normal(size=(n, 3)).astype("float32")


def trained(wrap, batches, optimizer=None, dropout=0.4, **options):
    """The variables of a trainer after these batches, and the losses."""
    keras.utils.set_random_seed(3)
    trainer = wrap(
        keras.Sequential(
            [
                keras.Input((5,)),
                layers.Dense(8),
                layers.Dropout(dropout),
                layers.BatchNormalization(),
                layers.Dense(3),
            ]
        )
    )
    optimizer = optimizer or keras.optimizers.SGD(0.1, momentum=0.9)
    trainer.compile(optimizer, "mse", **options)
    losses = [trainer.train_on_batch(*batch) for batch in batches]
    variables = [*trainer.variables, *trainer.optimizer.variables]
    return [v.numpy() for v in variables], losses


def assert_same(actual, expected):
    for a, e in zip(actual[0], expected[0], strict=True):
        assert np.isfinite(e).all()
        np.testing.assert_allclose(a, e, rtol=0, atol=2e-6)
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-5)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: SAM(model, 0.3, micro_batches=2, every=2),
        *(
            pytest.param(wrap, marks=pytest.mark.long)
            for wrap in (
                partial(LookSAM, rho=0.3, k=2, micro_batches=2),
                partial(GSAM, rho_max=0.3, lr_max=0.2, lr_min=0.0),
                *(partial(wrap, rho=0.3) for wrap in (ASAM, MSAM, SAMON)),
            )
        ),
    ],
    ids=["every", "looksam", "gsam", "asam", "msam", "samon"],
)
def test_xla_takes_the_same_steps(wrap):
    batches = [data(n) for n in (6, 6, 5)]
    # XLA draws other random numbers.
    assert_same(
        trained(wrap, batches, dropout=0.0, jit_compile=True),
        trained(wrap, batches, dropout=0.0),
    )


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: SAM(model, 0.3, every=2),
        lambda model: LookSAM(model, 0.3, k=2),
    ],
    ids=["every", "looksam"],
)
def test_accumulates_on_one_device(wrap):
    def accumulating():
        return keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)

    batches = [data(n) for n in (6, 6, 6, 6)]
    assert_same(
        trained(wrap, batches, accumulating()),
        trained(wrap, batches, accumulating(), run_eagerly=True),
    )


def test_batches_of_unknown_size_are_split_equally():
    def wrap(model):
        return SAM(model, 0.3, micro_batches=4)

    # The second size makes TensorFlow trace for any; the last has fewer samples than
    # parts. Eagerly every size is known.
    batches = [data(n) for n in (8, 7, 5, 3, 1)]
    assert_same(trained(wrap, batches), trained(wrap, batches, run_eagerly=True))
