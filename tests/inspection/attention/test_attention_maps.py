"""Where models look, against longhand NumPy."""

import keras
import numpy as np
import pytest
from keras import layers

import kerasvit
from kerasvit.inspection import attention_maps, rollout
from kerasvit.layers import LocalAttention, WindowAttention
from tests.contract import call, to_numpy
from tests.models.tiny import tiny
from tests.once import mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

WIDE = {"image_size": (8, 12)}  # 2 × 3 patches
PATH = "encoder_block_0/attention"


def images(count=3, size=(8, 12), channels=3):
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, *size, channels)).astype("float32")


def softmax(scores):
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def weights_of(model, name):
    return [to_numpy(w).astype("float64") for w in model.get_layer(name).weights]


def longhand(model, x, patch=4):
    """Attention weights of the first block of a ViT with a class token."""
    kernel, bias = weights_of(model, "embedding")
    (token,), (table,) = (
        weights_of(model, name) for name in ("class_token", "position_embedding")
    )
    rows, columns = x.shape[1] // patch, x.shape[2] // patch
    tokens = [np.repeat(token[0], len(x), 0)]
    for r in range(rows):
        for c in range(columns):
            pixels = x[:, patch * r : patch * r + patch, patch * c : patch * c + patch]
            tokens.append(np.einsum("byxc,yxcd->bd", pixels, kernel) + bias)
    tokens = np.stack(tokens, 1) + table
    block = model.get_layer("encoder_block_0")
    gamma, beta = (to_numpy(w) for w in block.attention_norm.weights)
    mean, var = tokens.mean(-1, keepdims=True), tokens.var(-1, keepdims=True)
    tokens = (tokens - mean) / np.sqrt(var + 1e-6) * gamma + beta
    query, key = (
        tokens @ to_numpy(part.kernel) + to_numpy(part.bias)
        for part in (block.attention.query, block.attention.key)
    )
    size = query.shape[-1] // 2
    heads = [slice(h * size, (h + 1) * size) for h in range(2)]
    scores = [
        np.einsum("bnd,bmd->bnm", query[..., h], key[..., h]) / np.sqrt(size)
        for h in heads
    ]
    return softmax(np.stack(scores, 1))


def pixels_between(grid, pitch):
    """Distances between all patches, in pixels."""
    cells = [(r, c) for r in range(grid[0]) for c in range(grid[1])]
    return np.array(
        [[pitch * np.hypot(r - y, c - x) for y, x in cells] for r, c in cells]
    )


def test_a_small_vit_against_a_numpy_softmax():
    model, x = tiny("VisionTransformer", **WIDE), images()
    before = model.get_weights()
    maps = attention_maps(model, x, batch_size=2)
    expected = longhand(model, x)
    found = maps.layers[PATH]
    np.testing.assert_allclose(found.weights, expected, atol=1e-4)
    heat = expected[:, :, 0, 1:].reshape(3, 2, 2, 3)
    np.testing.assert_allclose(found.heat, heat, atol=1e-4)
    np.testing.assert_allclose(maps.heat, heat.mean(1), atol=1e-4)
    distance = (expected[:, :, 1:, 1:] * pixels_between((2, 3), 4)).sum(-1).mean(-1)
    np.testing.assert_allclose(found.distance, distance, rtol=1e-4)
    step = (expected.mean(1) + np.eye(7)) / 2
    np.testing.assert_allclose(maps.rollout, step[:, 0, 1:].reshape(3, 2, 3), atol=1e-4)
    cell = expected[:, :, 1 + 5, 1:].reshape(3, 2, 2, 3)
    np.testing.assert_allclose(found.of_cell(1, 2), cell, atol=1e-4)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert not any("call" in vars(each) for each in model._flatten_layers())


def windows_longhand(query, key, bias, window, shift):
    """Attention of all cells to all cells with a mask, (B, heads, N, N)."""
    batch, height, width, heads, size = query.shape
    cells = [(r, c) for r in range(height) for c in range(width)]
    flat = (batch, len(cells), heads, size)
    query, key = query.reshape(flat), key.reshape(flat)
    scores = np.einsum("bnhd,bmhd->bhnm", query, key) / np.sqrt(size)
    mask = np.zeros((len(cells), len(cells)), bool)
    for i, (r, c) in enumerate(cells):
        for j, (y, x) in enumerate(cells):
            # Windows are cut at the edges of the map: no attention across an edge.
            mask[i, j] = all(
                (a - s) // w == (b - s) // w
                for a, b, w, s in zip((r, c), (y, x), window, shift, strict=True)
            )
            if mask[i, j]:
                scores[:, :, i, j] += bias(r - y, c - x)
    return softmax(np.where(mask, scores, -np.inf))


def check_windows(model, layer, dense, grid, x):
    """Compares the maps of a model with one layer with weights (B, heads, N, N)."""
    maps = attention_maps(model, x, batch_size=2)
    (found,) = maps.layers.values()
    for cell in range(grid[0] * grid[1]):
        seen = found.of_cell(*divmod(cell, grid[1]))
        expected = dense[:, :, cell].reshape(seen.shape)
        np.testing.assert_allclose(seen, expected, atol=1e-4)
    heat = dense.mean(2).reshape(found.heat.shape)
    np.testing.assert_allclose(found.heat, heat, atol=1e-4)
    distance = (dense * pixels_between(grid, 1)).sum(-1).mean(-1)
    np.testing.assert_allclose(found.distance, distance, rtol=1e-3)
    assert maps.rollout is None and maps.normalized_rollout is None


@pytest.mark.parametrize("shifted", mainly_on_last([True, False]))
def test_windows_of_swin_against_attention_with_a_mask(shifted):
    image, x = keras.Input((4, 6, 8)), images(3, (4, 6), 8)
    layer = WindowAttention(2, window_size=2, shifted=shifted, name="attention")
    model = keras.Model(image, layer(image))
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape, scale=0.5) for w in layer.weights])
    query, key = (
        (x @ to_numpy(part.kernel) + to_numpy(part.bias)).reshape(3, 4, 6, 2, 4)
        for part in (layer.query, layer.key)
    )
    table = to_numpy(layer.position_bias).reshape(3, 3, 2)
    shift = (1, 1) if shifted else (0, 0)
    dense = windows_longhand(
        query, key, lambda down, right: table[down + 1, right + 1], (2, 2), shift
    )
    check_windows(model, layer, dense, (4, 6), x)


def test_windows_of_alternet_against_attention_with_a_mask():
    image, x = keras.Input((4, 6, 8)), images(3, (4, 6), 8)
    layer = LocalAttention(8, num_heads=2, window_size=2, head_width=4)
    model = keras.Model(image, layer(image))
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape, scale=0.5) for w in layer.weights])
    query, key = (
        (x @ to_numpy(part.kernel)).reshape(3, 4, 6, 2, 4)
        for part in (layer.query, layer.key)
    )
    table = to_numpy(layer.position_bias)
    dense = windows_longhand(
        query, key, lambda down, right: table[1 - down, 1 - right], (2, 2), (0, 0)
    )
    check_windows(model, layer, dense, (4, 6), x)


@on_last_backend
def test_a_whole_swin_has_its_maps_in_order():
    maps = attention_maps(tiny("SwinTransformer"), images(2, (16, 16)))
    assert {path: each.grid for path, each in maps.layers.items()} == {
        "stage_0_block_0/attention": (4, 4),
        "stage_0_block_1/attention": (4, 4),
        "stage_1_block_0/attention": (2, 2),
    }
    for each in maps.layers.values():
        np.testing.assert_allclose(each.heat.sum((-2, -1)), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    mainly_on_last(
        [
            # Mean of |i - j| over n places is (n² - 1) / 3n: 5/4 patches of 4 pixels.
            ("DistilledVisionTransformer", {"image_size": (4, 16)}, 5 * 4 / 6),
            ("VisionTransformer", {"image_size": (16, 4)}, 5 * 4 / 5),
            ("VisionTransformer", {"image_size": (16, 4), "pool": "average"}, 5),
            # Each patch sees its neighbours, itself and the class token.
            (
                "VisionTransformerAblation",
                {"image_size": (16, 4)},
                4 * (1 / 3 + 2 / 4 + 2 / 4 + 1 / 3) / 4,
            ),
        ]
    ),
)
def test_distance_of_uniform_attention_is_its_closed_form(name, changes, expected):
    model = tiny(name, **changes)
    query = model.get_layer("encoder_block_0").attention.query
    for variable in query.weights:
        variable.assign(np.zeros(variable.shape))
    maps = attention_maps(model, images(2, changes["image_size"]))
    np.testing.assert_allclose(maps.layers[PATH].distance, expected, rtol=1e-5)


@on_last_backend
@pytest.mark.parametrize("heads", ["mean", "max"])
def test_rollout_against_its_formula(heads):
    weights = softmax(np.random.default_rng(0).normal(size=(3, 2, 4, 5, 5)))
    expected = np.stack([np.eye(5)] * 2)
    for layer in weights:
        for i in range(2):
            fused = getattr(layer[i], heads)(0) + np.eye(5)
            expected[i] = fused / fused.sum(-1)[:, None] @ expected[i]
    found = rollout(weights, heads)
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(found.sum(-1), 1)


@on_last_backend
def test_rollout_of_a_model_is_that_of_its_weights():
    maps = attention_maps(
        tiny("VisionTransformer", depth=3, **WIDE), images(), rollout_heads="max"
    )
    total = rollout([each.weights for each in maps.layers.values()], "max")
    np.testing.assert_allclose(
        maps.rollout, total[:, 0, 1:].reshape(3, 2, 3), atol=1e-6
    )
    largest = maps.rollout.max((1, 2))[:, None, None]
    np.testing.assert_allclose(maps.normalized_rollout, maps.rollout / largest)


@pytest.mark.parametrize(
    ("options", "prefix", "of_token"),
    [
        ({"register_tokens": 2}, 3, True),
        ({"register_tokens": 2, "pool": "average"}, 2, False),
        ({"class_token": True, "pool": "average_then_norm"}, 1, False),
        ({"register_tokens": 1, "pool": "token_and_average"}, 2, True),
        ({"positions": "sincos2d"}, 1, True),
        ({"positions": "patches"}, 1, True),
        ({"image_size": (9, 14), "partial_patches": True}, 1, True),
    ],
)
@on_last_backend
def test_the_heat_is_of_what_the_model_pools(options, prefix, of_token):
    model = tiny("VisionTransformer", **{**WIDE, **options})
    size = options.get("image_size", (8, 12))
    found = attention_maps(model, images(size=size)).layers[PATH]
    assert (found.prefix, found.grid, found.of_token) == (prefix, (2, 3), of_token)
    patches = found.weights[:, :, prefix:, prefix:]
    heat = found.weights[:, :, 0, prefix:] if of_token else patches.mean(2)
    np.testing.assert_allclose(found.heat, heat.reshape(3, 2, 2, 3), atol=1e-6)


def test_attention_pooling_ends_the_rollout():
    model = tiny("VisionTransformer", pool="attention", register_tokens=2, **WIDE)
    maps = attention_maps(model, images())
    block, pool = maps.layers.values()
    assert (pool.distance, pool.weights.shape) == (None, (3, 2, 1, 6))
    np.testing.assert_allclose(pool.heat, pool.weights[:, :, 0].reshape(3, 2, 2, 3))
    step = (block.weights.mean(1) + np.eye(8)) / 2
    row = pool.weights.mean(1) @ step[:, 2:]
    np.testing.assert_allclose(maps.rollout, row[..., 2:].reshape(3, 2, 3), atol=1e-6)


def model_of_keras(**options):
    """A ViT in the form of keras-hub, without kerasvit's layers."""
    image = keras.Input((8, 12, 3))
    x = layers.Conv2D(8, 4, 4, name="patches")(image)
    x = layers.Reshape((6, 8))(x)
    for i in range(2):
        y = layers.LayerNormalization(name=f"norm_{i}")(x)
        x = x + layers.MultiHeadAttention(2, 4, name=f"mha_{i}", **options)(y, y)
    return keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


def test_multi_head_attention_of_keras_against_a_numpy_softmax():
    model, x = model_of_keras(), images()
    maps = attention_maps(model, x, batch_size=2)
    assert list(maps.layers) == ["mha_0", "mha_1"]
    norm, layer = model.get_layer("norm_0"), model.get_layer("mha_0")
    tokens = to_numpy(call(keras.Model(model.input, norm.output), x))
    query, key = (
        np.einsum("bnd,dhe->bhne", tokens, to_numpy(part.kernel))
        + to_numpy(part.bias)[:, None]
        for part in (layer.query_dense, layer.key_dense)
    )
    expected = softmax(query @ np.swapaxes(key, -1, -2) / 2)
    found = maps.layers["mha_0"]
    np.testing.assert_allclose(found.weights, expected, atol=1e-4)
    np.testing.assert_allclose(
        found.heat, expected.mean(2).reshape(3, 2, 2, 3), atol=1e-4
    )
    np.testing.assert_allclose(maps.rollout.sum((1, 2)), 1, atol=1e-5)


def test_flash_attention_is_off_only_while_looking():
    model, x = model_of_keras(flash_attention=True), images()
    same = model_of_keras()
    same.set_weights(model.get_weights())
    found, expected = (attention_maps(each, x).heat for each in (model, same))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert model.get_layer("mha_0")._flash_attention


def test_the_model_in_a_trainer_is_the_one_that_is_read():
    model, x = tiny("VisionTransformer", **WIDE), images()
    model(x)
    expected = attention_maps(model, x)
    teacher = tiny("VisionTransformer", pool="average", depth=2, **WIDE)
    for trainer in (kerasvit.SAM(model), kerasvit.DistillationTrainer(model, teacher)):
        maps = attention_maps(trainer, x)
        assert list(maps.layers) == [PATH]
        np.testing.assert_allclose(maps.heat, expected.heat, atol=1e-6)
        np.testing.assert_allclose(maps.rollout, expected.rollout, atol=1e-6)


def test_rematerialised_blocks():
    expected = attention_maps(tiny("VisionTransformer", **WIDE), images()).heat
    with keras.RematScope("list_of_layers", layer_names=["encoder_block_0"]):
        model = tiny("VisionTransformer", **WIDE)
    np.testing.assert_allclose(
        attention_maps(model, images()).heat, expected, atol=1e-6
    )


@pytest.mark.parametrize(
    "build", [model_of_keras, lambda: tiny("VisionTransformer", **WIDE)]
)
def test_mixed_precision(build):
    exact = build()
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = build()
    half.set_weights(exact.get_weights())
    dtypes = [each.compute_dtype for each in half.layers]
    expected, found = (attention_maps(each, images()) for each in (exact, half))
    assert found.heat.dtype == found.rollout.dtype == "float32"
    np.testing.assert_allclose(found.heat, expected.heat, atol=1e-5)
    np.testing.assert_allclose(found.rollout, expected.rollout, atol=1e-5)
    assert [each.compute_dtype for each in half.layers] == dtypes


@on_last_backend
def test_a_layer_that_is_called_twice_has_two_entries():
    image = keras.Input((8, 12, 3))
    x = layers.Reshape((6, 8))(layers.Conv2D(8, 4, 4)(image))
    shared = kerasvit.layers.Attention(2, name="shared")
    model = keras.Model(image, shared(shared(x)))
    assert list(attention_maps(model, images()).layers) == ["shared", "shared 2"]


@on_last_backend
def test_layers_that_are_chosen_and_weights_that_are_not_kept():
    model = tiny("VisionTransformer", depth=3, **WIDE)
    full = attention_maps(model, images())
    maps = attention_maps(model, images(), layers="block_[12]", keep_weights=False)
    assert list(maps.layers) == [
        "encoder_block_1/attention",
        "encoder_block_2/attention",
    ]
    assert maps.rollout is None
    assert all(each.weights is None for each in maps.layers.values())
    np.testing.assert_allclose(maps.heat, full.heat, atol=1e-6)


@on_last_backend
def test_a_given_grid_and_pool():
    image = keras.Input((8, 12, 3))
    x = layers.Reshape((8, 36))(image)  # 2 tokens and 2 × 3 patches
    model = keras.Model(image, kerasvit.layers.Attention(2)(x))
    maps = attention_maps(model, images(), grid=(2, 3), pool="average")
    (found,) = maps.layers.values()
    assert (found.prefix, found.grid, found.of_token) == (2, (2, 3), False)
