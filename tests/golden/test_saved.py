"""Files of version 0.1 load and continue on every backend."""

import keras
import numpy as np
import pytest

import kerasvit
from tests.models.tiny import TINY
from tests.once import mainly_on_last, on_last_backend, rest_long_elsewhere

from . import saved

EXPECTED = np.load(saved.SAVED / "expected.npz")
MODELS = [name for name in EXPECTED if (saved.SAVED / name).is_dir()]
IN_TURN = ["SAM", "LookSAM", "ASAM", "GSAM", "SAMON", "MSAM"]
IN_TURN += ["FriendlySAM", "DistillationTrainer", "MaskedPatches"]
FAR = {"rtol": 1e-3, "atol": 1e-4}  # float32 on another backend


@on_last_backend
def test_no_builder_and_no_trainer_is_missing():
    assert set(MODELS) == set(TINY)
    public = {name: getattr(kerasvit, name) for name in dir(kerasvit)}
    trainers = [
        name
        for name, each in public.items()
        if isinstance(each, type) and issubclass(each, kerasvit.SAM)
    ]
    assert set(IN_TURN) == set(trainers)


@pytest.mark.parametrize("name", mainly_on_last(MODELS, 4))
def test_a_file_and_a_folder_of_a_model(name):
    for model in (
        keras.saving.load_model(saved.SAVED / f"{name}.keras"),
        kerasvit.from_pretrained(saved.SAVED / name),
    ):
        np.testing.assert_allclose(saved.outputs(model), EXPECTED[name], **FAR)
        assert model.record["label_names"] == saved.LABELS
        assert model.record["builder"] == name


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_long_elsewhere(IN_TURN, 2))
def test_a_trainer_continues(name):
    trainer = keras.saving.load_model(saved.SAVED / f"{name}.keras")
    assert type(trainer).__name__ == name
    first = saved.outputs(trainer.model)
    np.testing.assert_allclose(first, EXPECTED[f"{name} saved"], **FAR)
    assert int(trainer.optimizer.iterations) == saved.STEPS
    after = saved.trained(trainer)
    assert int(trainer.optimizer.iterations) == saved.STEPS + 1
    if name == "MaskedPatches":  # whose masks are by chance
        return
    np.testing.assert_allclose(after, EXPECTED[f"{name} trained"], **FAR)


@on_last_backend
def test_features():
    model = keras.saving.load_model(saved.SAVED / "FeatureModel.keras")
    expected = EXPECTED["FeatureModel"]
    np.testing.assert_allclose(saved.outputs(model), expected, **FAR)


@on_last_backend
def test_adapters():
    model = saved.adapted()
    kerasvit.load_adapters(model, saved.SAVED / "adapters.safetensors")
    np.testing.assert_allclose(saved.outputs(model), EXPECTED["adapters"], **FAR)
