"""Errors for models and images without attention to look at."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.inspection import attention_maps, rollout
from tests.models.tiny import tiny
from tests.once import on_last_backend

X = np.zeros((2, 16, 16, 3), "float32")


def vit(**changes):
    return tiny("VisionTransformer", **changes)


def cross_attention():
    image = keras.Input((4, 4, 3))
    x = keras.layers.Reshape((16, 3))(image)
    return keras.Model(image, keras.layers.MultiHeadAttention(1, 2)(x[:, :5], x))


def along_rows():
    image = keras.Input((4, 4, 3))
    attention = keras.layers.MultiHeadAttention(1, 2, attention_axes=(2,))
    return keras.Model(image, attention(image, image))


def tokens():
    image = keras.Input((4, 4, 3))
    x = keras.layers.Reshape((4, 12))(image)
    return keras.Model(image, kerasvit.layers.Attention(2)(x[:, :3]))


def two_inputs():
    images = [keras.Input((4, 4, 3)) for _ in range(2)]
    x = [keras.layers.Reshape((16, 3))(image) for image in images]
    return keras.Model(images, keras.layers.MultiHeadAttention(1, 2)(*x))


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    ("build", "images", "options", "expected"),
    [
        (lambda: tiny("BigTransfer"), X, {}, "attention layers.*BigTransfer.*Hessian"),
        (lambda: tiny("MLPMixer"), X, {}, "attention layers.*MLPMixer.*`embeddings`"),
        (vit, X[:, :12], {}, "16 × 16 pixels and 3 channels. Received: 12 × 16 pixels"),
        (vit, X[..., :1], {}, "16 × 16 pixels and 3 channels. .* 16 pixels and 1 ch"),
        (lambda: kerasvit.SAM(vit()), X[:, :12], {}, "16 × 16 .*Received: 12 × 16"),
        (vit, X[0], {}, r"at least one image.*Received: shape \(16, 16, 3\)"),
        (vit, X[:0], {}, r"at least one image.*Received: shape \(0, 16, 16, 3\)"),
        (vit, X.astype(str), {}, "must be numbers .*dtype <U"),
        (vit, X, {"batch_size": 0}, "`batch_size` .*Received: batch_size=0"),
        (vit, X, {"pool": "max"}, "`pool` must be one of 'token', 'average'"),
        (vit, X, {"rollout_heads": "min"}, "`rollout_heads` must be .*'max'"),
        (vit, X, {"layers": "blok"}, "'blok'.*encoder_block_0/attention"),
        (vit, X, {"layers": "a("}, "`layers` must be a regular expression.*'a\\('"),
        (vit, X, {"grid": (5, 5)}, r"17 tokens.*grid=\(5, 5\), for images of 16 × 16"),
        (vit, X, {"grid": 0}, "`grid` must be a whole number"),
        (
            lambda: vit(pool="average"),
            X,
            {"pool": "token"},
            "needs a token before the patches. Received: none before 4 × 4 patches",
        ),
        (tokens, X[:, :4, :4], {}, "3 tokens.*grid=None, for images of 4 × 4 pixels"),
        (cross_attention, X[:, :4, :4], {}, r"queries as keys.*\(2, 1, 5, 16\)"),
        (along_rows, X[:, :4, :4], {}, r"queries as keys.*\(2, 4, 1, 4, 4\)"),
        (two_inputs, X[:, :4, :4], {}, "must have one input"),
        (lambda: keras.layers.Dense(2), X, {}, "must be a keras.Model"),
        (lambda: keras.Sequential([keras.layers.Dense(2)]), X, {}, "no variables yet"),
    ],
)  # fmt: skip
def test_attention_that_cannot_be_looked_at(build, images, options, expected):
    with pytest.raises(ValueError, match=expected):
        attention_maps(build(), images, **options)


def test_weights_that_are_not_finite_are_named_and_the_model_is_as_before():
    model = vit()
    with pytest.raises(ValueError, match="'encoder_block_0/attention' must be finite"):
        attention_maps(model, X * np.nan)
    assert not any("call" in vars(each) for each in model._flatten_layers())


def test_the_model_is_as_before_after_an_error_of_its_own():
    model = vit()
    attention = model.get_layer("encoder_block_0").attention

    def broken(*arguments, **options):
        raise RuntimeError("broken")

    vars(attention)["call"] = broken
    with pytest.raises(RuntimeError, match="broken"):
        attention_maps(model, X)
    assert vars(attention)["call"] is broken


@on_last_backend
def test_a_model_that_does_not_call_its_attention():
    class Idle(keras.Model):
        def __init__(self):
            super().__init__()
            self.attention = kerasvit.layers.Attention(2, name="idle")
            self.attention.build((None, 4, 8))
            self.built = True

        def call(self, x):
            return x

    with pytest.raises(ValueError, match="calls none of .*'idle'"):
        attention_maps(Idle(), X)


@on_last_backend
def test_cells_that_cannot_be_read():
    model = vit(pool="attention")
    block, pool = attention_maps(model, X).layers.values()
    with pytest.raises(ValueError, match="`row` .*in \\[0, 3\\].*row=4"):
        block.of_cell(4, 0)
    with pytest.raises(ValueError, match="Received: a layer that pools"):
        pool.of_cell(0, 0)
    (block, _) = attention_maps(model, X, keep_weights=False).layers.values()
    with pytest.raises(ValueError, match="Received: no weights"):
        block.of_cell(0, 0)


@on_last_backend
def test_rollouts_of_other_shapes():
    with pytest.raises(ValueError, match=r"the same N.*\[\(1, 2, 2\), \(1, 3, 3\)\]"):
        rollout([np.ones((1, 2, n, n)) for n in (2, 3)])
    with pytest.raises(ValueError, match=r"one for each layer.*Received: shapes \[\]"):
        rollout([])


@on_last_backend
def test_a_list_of_batches():
    batches = [np.zeros((2, 16, 16, 3)), np.zeros((1, 16, 16, 3))]
    with pytest.raises(ValueError, match="Join batches with numpy.concatenate"):
        attention_maps(tiny("VisionTransformer"), batches)
