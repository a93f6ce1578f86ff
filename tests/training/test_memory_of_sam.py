import weakref

import keras
import pytest

import kerasvit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("every", [1, 5])
def test_clean_gradients_are_free_before_the_second_pass(every):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    trainer = kerasvit.SAM(model, every=every)
    known = []

    def loss_and_gradients(values):
        assert all(gradient() is None for gradient in known)
        gradients = [2.0 * value for value in values]
        known.extend(weakref.ref(gradient) for gradient in gradients)
        return None, gradients

    weights = [keras.ops.ones((2, 1)), keras.ops.ones((1,))]
    trainer.step_gradients(loss_and_gradients, weights, [])
    assert len(known) == 4
