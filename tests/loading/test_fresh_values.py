"""Loading initialises only the weights that the checkpoint does not contain."""

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

import kerasvit
from kerasvit import CheckpointError
from kerasvit.checkpoints.reader import Reader
from tests.contract import to_numpy
from tests.random_weights import randomised
from tests.tiny_vit import TinyViT

pytestmark = pytest.mark.slow

RANDOM = ("VarianceScaling", "RandomNormal", "RandomUniform", "TruncatedNormal")


@pytest.fixture
def drawn(monkeypatch):
    """Shapes of all random initial values."""
    shapes = []
    for name in RANDOM:
        kind = getattr(keras.initializers, name)

        def draw(self, shape, dtype=None, own=kind.__call__, **same):
            shapes.append(tuple(shape))
            return own(self, shape, dtype, **same)

        monkeypatch.setattr(kind, "__call__", draw)
    return shapes


@pytest.fixture
def folder(tmp_path):
    model = TinyViT(image_size=8, num_classes=3, representation_size=5)
    randomised(model, scale=1.0)
    return kerasvit.save_pretrained(model, tmp_path / "vit")


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_loading_draws_nothing(folder, drawn, policy):
    keras.config.set_dtype_policy(policy)
    model = kerasvit.from_pretrained(folder)
    assert not drawn
    tensors = load_file(folder / "model.safetensors")
    assert len(tensors) == len(model.weights)
    for variable in model.weights:
        assert variable.dtype == "float32"
        np.testing.assert_array_equal(to_numpy(variable), tensors[variable.path])


def test_a_fresh_head_contains_zeros_after_loading(folder, drawn):
    model = kerasvit.from_pretrained(folder, num_classes=4)
    assert not drawn
    tensors = load_file(folder / "model.safetensors")
    for variable in model.weights:
        value, new = to_numpy(variable), variable.path.startswith("head/")
        assert not value.any() if new else (value == tensors[variable.path]).all()


def test_another_size_draws_nothing(folder, drawn):
    model = kerasvit.from_pretrained(folder)
    kerasvit.resize(model, 12)
    assert not drawn


def test_fresh_models_are_drawn_as_before(folder, drawn):
    keras.utils.set_random_seed(1)
    before = TinyViT(image_size=8).get_weights()
    count = len(drawn)
    kerasvit.from_pretrained(folder)
    with pytest.raises(CheckpointError):
        TinyViT(folder, width=12)
    keras.utils.set_random_seed(1)
    after = TinyViT(image_size=8).get_weights()
    assert len(drawn) == 2 * count > 0
    for one, other in zip(before, after):
        np.testing.assert_array_equal(one, other)


def test_every_tensor_is_read_once(folder, monkeypatch):
    read, get = [], Reader.__getitem__
    monkeypatch.setattr(
        Reader, "__getitem__", lambda self, name: read.append(name) or get(self, name)
    )
    kerasvit.from_pretrained(folder)
    assert sorted(read) == sorted(load_file(folder / "model.safetensors"))
