"""Filters and positions, against longhand NumPy."""

import keras
import numpy as np
import pytest
from keras import layers
from sklearn.decomposition import PCA

import kerasvit
from kerasvit.inspection import embeddings
from tests.contract import to_numpy
from tests.models.tiny import tiny
from tests.once import on_last_backend

pytestmark = on_last_backend

WIDE = {"image_size": (8, 12)}  # 2 × 3 patches


def cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


def check_similarity(similarity, table, grid):
    assert similarity.shape == (*grid, *grid)
    for i, j in np.ndindex(len(table), len(table)):
        found = similarity[(*divmod(i, grid[1]), *divmod(j, grid[1]))]
        np.testing.assert_allclose(found, cosine(table[i], table[j]), atol=1e-5)


def test_filters_are_principal_components():
    model = tiny("VisionTransformer", width=32)
    result = embeddings(model, count=5)
    kernel = to_numpy(model.get_layer("embedding").kernel)
    pca = PCA(5).fit(kernel.reshape(-1, 32).T)
    found = result.filters.reshape(5, -1)
    signs = np.sign(np.sum(found * pca.components_, axis=1))
    np.testing.assert_allclose(found, signs[:, None] * pca.components_, atol=1e-4)
    np.testing.assert_allclose(
        result.variance, pca.explained_variance_ratio_, rtol=1e-4
    )
    assert all(each.flat[np.abs(each).argmax()] > 0 for each in found)


@pytest.mark.parametrize(
    ("name", "changes", "prefix"),
    [
        ("VisionTransformer", {"register_tokens": 2}, 3),
        ("VisionTransformer", {"positions": "patches"}, 0),
        ("VisionTransformer", {"positions": "sincos2d"}, 0),
        ("DistilledVisionTransformer", {}, 2),
        ("VisionTransformerAblation", {}, 1),
    ],
)
def test_similarity_of_positions_without_other_tokens(name, changes, prefix):
    model = tiny(name, **WIDE, **changes)
    table = to_numpy(model.get_layer("position_embedding").table)[0, prefix:]
    result = embeddings(kerasvit.SAM(model))
    check_similarity(result.similarity, table, (2, 3))
    assert result.filters.shape == (15, 4, 4, 3)  # 16 filters in 15 dimensions


def test_models_with_one_of_both():
    swin, mixer = embeddings(tiny("SwinTransformer")), embeddings(tiny("MLPMixer"))
    assert swin.filters is not None and mixer.filters is not None
    assert swin.similarity is None and mixer.similarity is None
    hybrid = embeddings(tiny("HybridVisionTransformer"))
    assert hybrid.filters is None and hybrid.variance is None
    assert hybrid.similarity.shape == (2, 2, 2, 2)


class HubEmbedding(layers.Layer):
    """Patches and positions as in keras-hub, which has a class token."""

    def build(self, input_shape):
        self.patches = layers.Conv2D(8, 4, 4)
        self.patches.build(input_shape)
        self.position_embedding = layers.Embedding(7, 8, name="position_embedding")
        self.position_embedding.build((1, 7))

    def call(self, x):
        x = keras.ops.reshape(self.patches(x), (-1, 6, 8))
        x = keras.ops.pad(x, ((0, 0), (1, 0), (0, 0)))
        return x + self.position_embedding(np.arange(7)[None])


def test_a_model_of_layers_of_keras():
    image = keras.Input((8, 12, 3))
    layer = HubEmbedding()
    result = embeddings(keras.Model(image, layer(image)))
    table = to_numpy(layer.position_embedding.embeddings)[1:]
    check_similarity(result.similarity, table, (2, 3))
    assert result.filters.shape == (7, 4, 4, 3)


def with_value(path, value):
    model = tiny("VisionTransformer")
    (variable,) = (v for v in model.variables if v.path == path)
    variable.assign(np.full(variable.shape, value))
    return model


@pytest.mark.parametrize(
    ("build", "options", "expected"),
    [
        (lambda: tiny("BigTransfer"), {}, "must embed patches .*BigTransfer.*neither"),
        (lambda: tiny("AlterNet"), {}, "must embed patches .*AlterNet.*neither"),
        (
            lambda: with_value("embedding/kernel", 0),
            {},
            "must differ. Received: 16 equal filters",
        ),
        (
            lambda: with_value("embedding/kernel", np.nan),
            {},
            "'embedding' must be finite",
        ),
        (
            lambda: with_value("position_embedding/table", 0),
            {},
            r"must not be zero.*zeros at \[0, 0\]",
        ),
        (lambda: tiny("VisionTransformer"), {"count": 0}, "`count` .*count=0"),
        (lambda: layers.Dense(2), {}, "must be a keras.Model"),
    ],
)
def test_models_without_embeddings(build, options, expected):
    with pytest.raises(ValueError, match=expected):
        embeddings(build(), **options)
