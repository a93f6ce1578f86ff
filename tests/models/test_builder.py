"""The decorator of the builders."""

import inspect

import keras
import pytest

import kerasvit
from kerasvit.models import image_model
from tests.models.tiny import TINY, tiny
from tests.once import on_last_backend

pytestmark = pytest.mark.slow


@on_last_backend
@pytest.mark.parametrize("name", TINY)
def test_check_returns_the_arguments_of_the_record_and_builds_nothing(
    name, monkeypatch
):
    builder = getattr(kerasvit, name)
    with monkeypatch.context() as patch:
        patch.setattr(keras.layers.Layer, "add_weight", lambda *_, **__: 1 / 0)
        checked = builder.check(**TINY[name], dtype="bfloat16", name="other")
    assert checked == builder(**TINY[name]).record["kwargs"]
    arguments = inspect.signature(builder).parameters
    assert [*checked, "dtype", "name"] == [*arguments]


@on_last_backend
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"num_classes": -1}, "`num_classes` must be a whole number"),
        ({"dtype": "int8"}, "`dtype` must be one of float32"),
        ({"classes": 3}, "write num_classes=3"),
    ],
)
def test_check_raises_as_the_builder(name, wrong, message):
    builder = getattr(kerasvit, name)
    for function in (builder, builder.check):
        with pytest.raises(ValueError, match=message):
            function(**{**TINY[name], **wrong})


@on_last_backend
@pytest.mark.parametrize("name", TINY)
def test_arguments_are_named_and_complete(name):
    builder = getattr(kerasvit, name)
    with pytest.raises(TypeError, match="positional"):
        builder(16)
    for function in (builder, builder.check):
        with pytest.raises(TypeError, match=f"^{name}: missing a required .*argument"):
            function()


@pytest.mark.only_on("torch", reason="others write them")
def test_a_saved_model_of_pytorch_names_other_backends(tmp_path, monkeypatch):
    monkeypatch.setattr(image_model, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow or jax"):
        tiny("VisionTransformer").export(tmp_path / "model")
