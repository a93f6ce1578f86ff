import inspect

import keras
import numpy as np
import pytest

import kerasvit
from tests.models.tiny import tiny

X, Y = np.ones((2, 16, 16, 3), "float32"), np.zeros(2, "int32")
SMALL = np.ones((2, 2, 2, 3), "float32")  # less than a patch, found in tracing
CALLS = {
    "predict": lambda model, x: model.predict(x, verbose=0),
    "evaluate": lambda model, x: model.evaluate(x, Y, verbose=0),
    "fit": lambda model, x: model.fit(x, Y, verbose=0),
}


@pytest.mark.slow
@pytest.mark.parametrize("sam", [False, True], ids=["model", "SAM"])
def test_a_call_that_fails_changes_no_value(sam):
    model = tiny("VisionTransformer", image_size=(None, None))
    if sam:
        model = kerasvit.SAM(model, rho=0.1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    before = model.predict(X, verbose=0)
    for call in CALLS.values():
        # In a graph of TensorFlow with unknown sides it is an InvalidArgumentError.
        with pytest.raises(Exception, match="whole number of patches"):
            call(model, SMALL)
        np.testing.assert_array_equal(model.predict(X, verbose=0), before)
    model.fit(X, Y, verbose=0)
    assert np.abs(model.predict(X, verbose=0) - before).max() > 0


def test_a_model_without_an_optimizer_is_evaluated():
    model = tiny("MLPMixer")
    model.compile(optimizer=None, loss="sparse_categorical_crossentropy")
    assert model.evaluate(X, Y, verbose=0) > 0


def test_methods_have_the_signatures_of_keras():
    for name in CALLS:
        for owner in (kerasvit.SAM, type(tiny("MLPMixer"))):
            found = inspect.signature(getattr(owner, name))
            assert found == inspect.signature(getattr(keras.Model, name))
