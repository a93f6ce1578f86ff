"""Attention of keras-hub's ViT, where keras-hub is installed."""

import numpy as np
import pytest

from kerasvit.inspection import Activations, attention_maps, embeddings
from tests.contract import to_numpy

keras_hub = pytest.importorskip("keras_hub")


@pytest.fixture(scope="module")
def model():
    size = {"patch_size": 4, "num_layers": 2, "num_heads": 3}
    backbone = keras_hub.models.ViTBackbone(
        image_shape=(16, 24, 3), hidden_dim=12, mlp_dim=20, **size
    )
    model = keras_hub.models.ViTImageClassifier(backbone, 3, preprocessor=None)
    rng = np.random.default_rng(2)
    for variable in model.weights:
        if "float" in variable.dtype:
            variable.assign(rng.normal(size=variable.shape, scale=0.3))
    return model


def test_attention_against_a_numpy_softmax(model):
    x = np.random.default_rng(0).normal(size=(5, 16, 24, 3)).astype("float32")
    found = attention_maps(model, x, batch_size=2)
    assert [each.grid for each in found.layers.values()] == [(4, 6), (4, 6)]
    [tokens] = Activations(model, "transformer_block_1/ln_1$")(x)
    attention = model.backbone.get_layer("vit_encoder").encoder_layers[0].mha
    q, k = (
        np.einsum("bnd,dhe->bhne", tokens, to_numpy(dense.kernel))
        + to_numpy(dense.bias)[:, None]
        for dense in (attention.query_dense, attention.key_dense)
    )
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    exact = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(
        next(iter(found.layers.values())).weights, exact, atol=1e-6
    )


def test_patches_have_filters_and_positions(model):
    found = embeddings(model, 3)
    assert found.filters.shape == (3, 4, 4, 3)
    assert found.similarity.shape == (4, 6, 4, 6)
