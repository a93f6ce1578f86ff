"""Intermediate features, against the layers called one after the other."""

import keras
import numpy as np
import pytest
from keras import ops

import kerasvit
from kerasvit.inspection import Activations
from tests.models.tiny import tiny
from tests.once import mainly_on_last, on_last_backend

X = np.random.default_rng(0).normal(size=(3, 16, 16, 3)).astype("float32")


def array(tensor):
    return np.array(ops.convert_to_numpy(tensor))


def whole(activations, x=X, batch_size=2):
    """Features of all images, one array per name."""
    return [np.concatenate(parts) for parts in zip(*activations.batches(x, batch_size))]


def close(found, expected):
    np.testing.assert_allclose(found, array(expected), rtol=1e-4, atol=1e-4)


def test_blocks_are_chosen_by_default_and_their_outputs_returned():
    model = tiny("VisionTransformer", depth=2)
    activations = Activations(model)
    assert activations.names == ["encoder_block_0", "encoder_block_1"]
    x = X
    for name in ("embedding", "class_token", "position_embedding", "encoder_block_0"):
        x = model.get_layer(name)(x)
    first, second = whole(activations)
    close(first, x)
    close(second, model.get_layer("encoder_block_1")(x))


def test_layers_inside_a_block_are_in_the_order_of_their_calls():
    model = tiny("VisionTransformer")
    activations = Activations(model, r"(attention|attention_norm|dense_0|block_0)$")
    block = "encoder_block_0"
    assert activations.names == [
        *(f"{block}/attention_norm", f"{block}/attention", f"{block}/mlp/dense_0"),
        block,
    ]
    x = whole(Activations(model, "position_embedding"))[0]
    layer = model.get_layer(block)
    norm, attention, hidden, output = whole(activations)
    close(norm, layer.attention_norm(x))
    close(attention, layer.attention(norm))
    middle = array(layer.mlp_norm(x + attention))
    close(hidden.reshape(3, 17, -1), layer.mlp.dense_0(middle))
    close(output, x + attention + array(layer.mlp(middle)))


@pytest.mark.slow
@pytest.mark.parametrize("at", ["inputs", "outputs"])
def test_blocks_may_have_positions_as_a_second_input(at):
    model = tiny("RotaryVisionTransformer", depth=2)
    places = model.get_layer("rotary_positions")(X)
    block = model.get_layer("encoder_block_1")
    before = whole(Activations(model, "encoder_block_0$"))[0]
    after, inner = whole(Activations(model, "block_1(/mlp/dense_1)?$", at=at))[::-1]
    if at == "inputs":
        after, inner = inner, after
        close(after, before)
    else:
        close(after, block(before, places))
    x = before + array(block.attention(block.attention_norm(before), places))
    hidden = block.mlp.dense_0(block.mlp_norm(x))
    expected = block.mlp(block.mlp_norm(x))
    if at == "inputs":
        expected = keras.activations.gelu(hidden, approximate=False)
    close(inner.reshape(expected.shape), expected)


def test_inputs_of_normalisations_are_the_residual_stream():
    model = tiny("VisionTransformer")
    stream = Activations(model, "_norm$", at="inputs")
    assert [name.split("/")[-1] for name in stream.names] == [
        *("attention_norm", "mlp_norm", "encoder_norm"),
    ]
    before, middle, after = whole(stream)
    attention, block = whole(Activations(model, "(attention|block_0)$"))
    close(middle, before + attention)
    close(after, block)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes", "prefix"),
    mainly_on_last(
        [
            ("VisionTransformer", {"image_size": (16, 8)}, 1),
            ("VisionTransformer", {"register_tokens": 2, "positions": "patches"}, 3),
            ("VisionTransformer", {"pool": "average", "positions": "sincos2d"}, 0),
            ("DistilledVisionTransformer", {}, 2),
            ("HybridVisionTransformer", {}, 1),
            ("MLPMixer", {}, 0),
            ("VisionTransformerAblation", {"pool": "average"}, 0),
        ]
    ),
)
def test_prefix_tokens_are_not_in_the_map(name, changes, prefix):
    model = tiny(name, **changes)
    activations = Activations(model, "(encoder|mixer)_block_0$")
    x = X[:, : model.input_shape[1], : model.input_shape[2]]
    ((tokens,),) = activations.batches(x)
    ((maps,),) = activations.maps(x)
    rows, columns = maps.shape[1:3]
    if name != "HybridVisionTransformer":
        assert (rows, columns) == (x.shape[1] // 4, x.shape[2] // 4)
    assert tokens.shape[1] == prefix + rows * columns
    np.testing.assert_array_equal(maps[:, 1, 0], tokens[:, prefix + columns])


@on_last_backend
@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("SwinTransformer", [4, 4, 2]),
        ("AlterNet", [16, 8, 8]),
        ("PreActResNet", [16, 8]),
        ("ResNeXt", [16, 8]),
        ("BigTransfer", [4, 2]),
    ],
)
def test_maps_stay_maps(name, sides):
    (maps,) = Activations(tiny(name)).maps(X)
    assert [each.shape[1:3] for each in maps] == [(side, side) for side in sides]


def test_features_are_computed_in_the_dtype_of_the_variables():
    model = tiny("VisionTransformer")
    keras.config.set_dtype_policy("mixed_bfloat16")
    mixed = tiny("VisionTransformer")
    close(whole(Activations(mixed, "mlp$"))[0], whole(Activations(model, "mlp$"))[0])
    assert mixed.get_layer("encoder_block_0").compute_dtype == "bfloat16"


def test_the_model_is_left_as_it_was():
    model = tiny("VisionTransformer")
    before = model.get_weights()
    whole(Activations(model, "attention$|norm"))
    for value, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, old)
    assert "call" not in vars(model.get_layer("encoder_block_0").attention)


@on_last_backend
def test_layers_are_as_before_after_an_error_inside():
    model = tiny("VisionTransformer")
    block = model.get_layer("encoder_block_0")
    with pytest.raises(ValueError, match="exactly once"):
        Activations(model, "attention$|drop$")
    assert "call" not in vars(block.attention)
    assert "call" not in vars(block.drop)


@on_last_backend
def test_a_layer_of_several_calls_is_an_error():
    dense = keras.layers.Dense(3, name="twice")
    image = keras.Input((3,))
    with pytest.raises(ValueError, match=r"called once.*\['twice'\]"):
        Activations(keras.Model(image, dense(dense(image))), "twice")


@on_last_backend
def test_batches_of_a_data_set_may_have_labels():
    activations = Activations(tiny("MLPMixer"))
    pairs = [(X[:2], np.zeros(2)), (X[2:], np.zeros(1))]
    expected = whole(activations)[0]
    np.testing.assert_allclose(whole(activations, pairs)[0], expected, rtol=1e-5)
    tensors = [ops.convert_to_tensor(X)]
    np.testing.assert_allclose(whole(activations, tensors)[0], expected, rtol=1e-5)


@on_last_backend
def test_a_model_inside_a_sequential_model_is_looked_into():
    backbone = tiny("MLPMixer", num_classes=0)
    model = keras.Sequential([backbone, keras.layers.Dense(2)])
    model.build((None, 16, 16, 3))
    close(whole(Activations(model))[0], whole(Activations(backbone))[0])


@on_last_backend
def test_a_grid_is_given_for_models_that_do_not_tell_theirs():
    image = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(5, 2, 2, data_format="channels_last", name="patches")(image)
    x = keras.layers.Reshape((16, 5), name="tokens")(x)
    model = keras.Model(image, keras.layers.Dense(2, name="head")(x))
    conv, tokens = next(
        Activations(model, "patches|tokens", grid=(4, 4)).maps(X[:, :8, :8])
    )
    np.testing.assert_array_equal(conv, tokens)
    with pytest.raises(ValueError, match="do not tell their grid. Pass `grid="):
        next(Activations(model, "tokens").maps(X[:, :8, :8]))
    with pytest.raises(ValueError, match=r"tokens .* with n in \[13\].*16, 5"):
        next(Activations(model, "tokens", grid=(3, 4), prefix=1).maps(X[:, :8, :8]))


def subclassed():
    class Model(keras.Model):
        def build(self, shape):
            self.dense = keras.layers.Dense(2)
            self.dense.build(shape)

    model = Model()
    model.build((None, 3))
    return model


def channels_first():
    image = keras.Input((3, 8, 8))
    conv = keras.layers.Conv2D(2, 1, data_format="channels_first")
    return keras.Model(image, conv(image))


@on_last_backend
@pytest.mark.parametrize(
    ("build", "arguments", "expected"),
    [
        (subclassed, (), "functional or Sequential"),
        (lambda: kerasvit.SAM(tiny("MLPMixer")), (), "Pass its `.model`"),
        (channels_first, ("conv",), "channels last"),
        (lambda: tiny("MLPMixer"), ("encoder_blok_0",), "mixer_block_0.*`Activations"),
        (lambda: tiny("MLPMixer"), ("(",), "regular expression.*unterminated"),
        (lambda: tiny("MLPMixer"), ("drop$",), "exactly once.*mixer_block_0/drop"),
    ],
)
def test_models_and_layers_that_cannot_be_looked_at_are_errors(
    build, arguments, expected
):
    with pytest.raises(ValueError, match=expected):
        Activations(build(), *arguments)


@on_last_backend
@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (X[:, :8], r"images \(16, 16, 3\).*Received: shape \(2, 8, 16, 3\)"),
        (X[:0], "at least one image"),
        ([], "at least one image"),
        ("photos", "array of images .* or an iterable"),
        ([{"image": X}], "must be an array of images.*dict"),
        (X * np.nan, "features of 'encoder_block_0' must be finite"),
    ],
)
def test_images_that_do_not_fit_are_errors(x, expected):
    activations = Activations(tiny("VisionTransformer"))
    with pytest.raises(ValueError, match=expected):
        whole(activations, x)


@on_last_backend
def test_tokens_of_images_of_any_size_have_no_grid():
    model = tiny("VisionTransformer", image_size=(None, None))
    with pytest.raises(ValueError, match="'encoder_block_0' .* any size.*resize"):
        next(Activations(model).maps(X))


@on_last_backend
def test_rows_and_swapped_axes_are_no_maps():
    mixer = tiny("MLPMixer")
    for pattern in ("dense_0$", "token_mixing$"):
        with pytest.raises(ValueError, match="must be a map .*Received: shape"):
            next(Activations(mixer, pattern).maps(X))


def test_outputs_of_norms_are_those_before_the_relu_that_overwrites_them():
    model = tiny("BigTransfer")
    activations = Activations(model, "stage_0_unit_0/norm_0$")
    [found] = whole(activations)
    before = keras.Model(model.inputs, model.get_layer("stage_0_unit_0").input)
    norm = model.get_layer("stage_0_unit_0").norms[0]
    close(found, norm(before(X)))
    assert (found < 0).any()
