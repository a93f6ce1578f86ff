"""Files saved on one backend load on the others with the same logits."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy

pytestmark = pytest.mark.slow

INSTALLED = [
    name for name in ("jax", "tensorflow", "torch") if importlib.util.find_spec(name)
]
THIS = INSTALLED.index(keras.backend.backend())
OTHERS = INSTALLED[THIS + 1 :] + INSTALLED[:THIS]
KWARGS = {
    "patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 24,
    "image_size": (8, 12), "num_classes": 3, "register_tokens": 2, "dropout": 0.1,
    "layer_scale": 0.1, "stochastic_depth": 0.1, "representation_size": 5,
}  # fmt: skip
LOAD = """
import sys, keras, numpy as np, kerasvit
folder = sys.argv[1]
x = np.load(folder + "/x.npy")
whole = keras.saving.load_model(folder + "/model.keras")
filled = kerasvit.VisionTransformer(**whole.record["kwargs"])
filled.load_weights(folder + "/model.weights.h5")
named = kerasvit.from_pretrained(folder)
trainer = keras.saving.load_model(folder + "/trainer.keras")
logits = [m.predict(x, verbose=0) for m in (whole, filled, named, trainer)]
np.save(folder + "/logits.npy", logits)
small = keras.saving.load_model(folder + "/small.keras")
small = (small, kerasvit.from_pretrained(folder + "/small"))
np.save(folder + "/small.npy", [m.predict(x, verbose=0) for m in small])
kerasvit.load_adapters(named, folder + "/adapters.safetensors")
np.save(folder + "/adapted.npy", named.predict(x, verbose=0))
"""


# Every backend writes for the next, and reads what one wrote.
@pytest.mark.parametrize(
    "other",
    [*OTHERS[:1], *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS[1:])],
)
@pytest.mark.parametrize(
    "size", [{}, pytest.param({"image_size": (None, None)}, marks=pytest.mark.long)]
)
def test_saved_models_load_on_other_backends(other, size, tmp_path):
    model = kerasvit.Variant(None, kerasvit.VisionTransformer)(**KWARGS | size)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    x = rng.normal(size=(2, 8, 12, 3)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    kerasvit.save_pretrained(model, tmp_path)
    trainer = kerasvit.SAM(model, rho=0.1)
    trainer.compile("adam", "mse")
    trainer.save(tmp_path / "trainer.keras")
    small = keras.models.clone_model(model)
    small.set_weights(model.get_weights())
    small.quantize("int8")
    small.save(tmp_path / "small.keras")
    kerasvit.save_pretrained(small, tmp_path / "small")
    adapted = kerasvit.from_pretrained(tmp_path)
    kerasvit.add_lora(adapted, 2)
    for variable in adapted.trainable_weights:
        variable.assign(rng.normal(size=variable.shape, scale=0.3))
    kerasvit.save_adapters(adapted, tmp_path / "adapters.safetensors")
    subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path)],
        env={**os.environ, "KERAS_BACKEND": other, "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd=Path(__file__).parents[1],
        check=True,
        capture_output=True,
    )
    for logits in np.load(tmp_path / "logits.npy"):
        np.testing.assert_allclose(logits, to_numpy(model(x)), atol=1e-5)
    for logits in np.load(tmp_path / "small.npy"):
        # A layer's inputs are rounded to 1/127 of the largest: a difference of 1e-7
        # between the backends may become one step.
        expected = to_numpy(small(x))
        assert np.abs(logits - expected).max() < 0.01 * np.abs(expected).max()
    found = np.load(tmp_path / "adapted.npy")
    np.testing.assert_allclose(found, to_numpy(adapted(x)), atol=1e-5)
