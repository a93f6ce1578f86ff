"""`trainer.export` exports the model."""

import importlib.util

import keras
import numpy as np
import pytest

from tests.trainers import NAMES, TRAINERS, batch, compiled, small

pytestmark = pytest.mark.slow

backend = keras.backend.backend()


@pytest.mark.not_on("torch", reason="Keras exports no plain model like this there")
@pytest.mark.skipif(
    not importlib.util.find_spec("tensorflow"), reason="TensorFlow is not installed"
)
@pytest.mark.parametrize("name", NAMES)
def test_a_trained_model_as_a_saved_model(name, tmp_path):
    import tensorflow as tf

    x, y = batch()
    trainer = compiled(TRAINERS[name](small()), run_eagerly=False)
    trainer.fit(x, y, verbose=0)
    trainer.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")
    expected = trainer.predict(x, verbose=0)
    np.testing.assert_allclose(loaded.serve(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.only_on("torch", reason="a format of PyTorch's")
def test_a_trained_model_as_a_program_of_pytorch(tmp_path):
    import torch

    x, y = batch()
    trainer = compiled(TRAINERS["looksam"](small()))
    trainer.fit(x, y, verbose=0)
    path = tmp_path / "model.pt2"
    signature = [keras.InputSpec(shape=(6, 5), dtype="float32")]
    trainer.export(path, "torch", input_signature=signature, verbose=False)
    found = torch.export.load(path).module()(torch.tensor(x))
    expected = trainer.predict(x, verbose=0)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-5, atol=1e-6)
