"""Rescaling, whatever Keras's image format."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.layers import Rescaling
from tests.contract import check_layer, to_numpy
from tests.random_weights import randomised

SCALE, OFFSET = [0.5, 1.0, 2.0], [-1.0, 0.0, 3.0]
NORMALIZATION = {"mean": [0.1, 0.2, 0.3], "std": [0.2, 0.3, 0.4]}


@pytest.fixture(params=["channels_last", "channels_first"])
def image_format(request):
    before = keras.config.image_data_format()
    yield lambda: keras.config.set_image_data_format(request.param)
    keras.config.set_image_data_format(before)


@pytest.mark.parametrize("sides", [(4, 5), (3, 3)])
def test_the_last_axis_is_scaled(image_format, sides):
    image_format()
    x = np.random.default_rng(0).normal(size=(2, *sides, 3)).astype("float32")
    right = x * np.array(SCALE) + OFFSET
    np.testing.assert_allclose(to_numpy(Rescaling(SCALE, OFFSET)(x)), right, 1e-6, 1e-6)


def test_contract():
    layer = Rescaling(SCALE, OFFSET)
    shape = (2, 3, 5, 3)
    check_layer(layer, input_shape=shape, output_shape=shape, parameters=0)


@pytest.mark.slow
@pytest.mark.parametrize("size", [6, 3])  # pixels; 3 are also as many as channels
def test_models_with_the_normalisation_inside(
    image_format, size, tmp_path, monkeypatch
):
    def build(**kwargs):
        sizes = {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 16}
        sizes |= {"patch_size": 3, "image_size": size, "num_classes": 2, **kwargs}
        return randomised(kerasvit.VisionTransformer(**sizes))

    x = np.random.default_rng(0).uniform(0, 255, (2, size, size, 3)).astype("float32")
    mean, std = (np.array(NORMALIZATION[name]) for name in ("mean", "std"))
    plain = build()
    right = to_numpy(plain(((x / 255 - mean) / std).astype("float32")))
    model = build(normalization=NORMALIZATION)
    monkeypatch.setattr("kerasvit.models.image_model.Rescaling", keras.layers.Rescaling)
    older = build(normalization=NORMALIZATION)  # as version 0.1 built and saved it
    for each in (model, older):
        each.set_weights(plain.get_weights())
        each.save(tmp_path / f"{len(list(tmp_path.iterdir()))}.keras")
    kerasvit.features(older).save(tmp_path / "features.keras")
    features = to_numpy(kerasvit.features(model)(x)[-1])
    image_format()
    files = sorted(tmp_path.glob("[01].keras"))
    for each in (model, *map(keras.models.load_model, files)):
        np.testing.assert_allclose(to_numpy(each(x)), right, 1e-4, 1e-5)
    found = keras.models.load_model(tmp_path / "features.keras")(x)[-1]
    np.testing.assert_allclose(to_numpy(found), features, 1e-4, 1e-5)
