"""Models that are built with zeros, before a checkpoint's tensors are assigned."""

import keras
import numpy as np
import pytest

from kerasvit.backend.keras_private import TooLargeError, built_with_zeros, layers_in
from tests.tiny_vit import TinyViT


def build():
    return TinyViT(image_size=8, num_classes=3, dropout=0.1)


def test_weights_are_zeros_and_the_model_is_whole():
    model, fresh = built_with_zeros(build), build()
    assert [v.path for v in model.weights] == [v.path for v in fresh.weights]
    assert len(model.variables) == len(fresh.variables)
    assert not any(weight.any() for weight in model.get_weights())
    model.set_weights(fresh.get_weights())
    images = np.random.default_rng(0).random((2, 8, 8, 3), "float32")
    np.testing.assert_array_equal(model.predict(images), fresh.predict(images))
    model.compile("sgd", "mse")
    model.fit(images, np.ones((2, 3), "float32"), verbose=0)
    assert any(
        (new != old).any()
        for new, old in zip(model.get_weights(), fresh.get_weights(), strict=True)
    )


@pytest.mark.only_on("torch", reason="is of PyTorch")
def test_pytorch_sees_the_parameters():
    model, fresh = built_with_zeros(build), build()
    for layer, other in zip(layers_in(model), layers_in(fresh), strict=True):
        one, two = layer.state_dict(), other.state_dict()
        assert [value.shape for value in one.values()] == [
            value.shape for value in two.values()
        ]


def seeds(model):
    weights = {id(variable) for variable in model.weights}
    return [
        keras.ops.convert_to_numpy(v).tolist()
        for v in model.variables
        if id(v) not in weights
    ]


def test_seed_generators_begin_as_in_a_plain_build():
    keras.utils.set_random_seed(3)
    plain = seeds(build())
    keras.utils.set_random_seed(3)
    assert seeds(built_with_zeros(build)) == plain
    assert len({tuple(seed) for seed in plain}) == len(plain) > 1


@pytest.mark.parametrize("what", ["weights", "variables"])
def test_the_first_variable_beyond_the_limit_ends_the_building(what):
    model = build()
    count = {"weights": model.count_params(), "variables": len(model.variables)}
    count["weights"] += sum(v.shape[0] for v in model.variables) - sum(
        v.shape[0] for v in model.weights
    )
    exact = {f"max_{what}": count[what]}
    assert built_with_zeros(build, **exact).count_params() == model.count_params()
    with pytest.raises(TooLargeError, match=f"more {what}"):
        built_with_zeros(build, **{f"max_{what}": count[what] - 1})
    fresh = build()  # the limit is gone
    assert all(np.isfinite(weight).all() for weight in fresh.get_weights())


def test_an_error_restores_the_state():
    with pytest.raises(ZeroDivisionError):
        built_with_zeros(lambda: keras.layers.Dense(2).build((None, 3)) or 1 / 0)
    assert any(weight.any() for weight in build().get_weights())
