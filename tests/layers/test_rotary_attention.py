import keras
import numpy as np
import pytest

from kerasvit.layers import (
    MLP,
    EncoderBlock,
    LayerScaleBlock,
    ResPostNormBlock,
    RotaryAttention,
    RotaryPositions,
    Rotation,
    SwiGLU,
)
from tests.contract import check_layer, to_numpy

WIDTH, HEADS, SIZE = 16, 2, 8
PROJECTIONS = 4 * WIDTH * WIDTH
ROTATIONS = {
    "DINOv3": {},
    "EVA-02": {
        "temperature": 10_000.0,
        "coordinates": "index",
        "reference": (16, 16),
        "pairs": "neighbours",
    },
    "PE": {
        "temperature": 10_000.0,
        "coordinates": "index",
        "reference": (4, 6),
        "offset": 1.0,
        "order": "xy",
        "pairs": "neighbours",
    },
    "ROPE-ViT": {"coordinates": "index", "order": "xy", "pairs": "neighbours"},
    "mixed": {"coordinates": "index", "pairs": "neighbours", "mixed": True},
}


def places(height, width, prefix=1):
    layer = RotaryPositions(1, prefix=prefix)
    return to_numpy(layer(np.zeros((1, height, width, 3), "float32")))


def attention(name="DINOv3", **options):
    rotation = Rotation(**ROTATIONS[name], name="rotation")
    return RotaryAttention(HEADS, rotation, **options)


def filled(layer, positions):
    layer.build((2, len(positions), WIDTH))
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.weights])
    x = rng.normal(size=(2, len(positions), WIDTH)).astype("float32")
    return x, to_numpy(layer(x, positions))


def dense(layer, x):
    kernel, *bias = (w.astype("float64") for w in layer.get_weights())
    return x @ kernel + (bias[0] if bias else 0)


def angles_of(rotation, place, head):
    """The angles (d/2,) of a token in a head, one number at a time."""
    if not place[2]:  # of the prefix
        return np.zeros(SIZE // 2)
    coordinates = []
    for index, side, axis in zip(place[:2], place[2:], (0, 1), strict=True):
        where = index + rotation.offset
        if rotation.coordinates == "centered":
            where = (where + 0.5) / side * 2 - 1
        elif rotation.reference:
            where = where / side * rotation.reference[axis]
        coordinates.append(where)
    coordinates = coordinates if rotation.order == "yx" else coordinates[::-1]
    if rotation.mixed:
        return coordinates @ to_numpy(rotation.frequencies)[:, head]
    steps = [rotation.temperature ** (-4 * i / SIZE) for i in range(SIZE // 4)]
    factor = 2 * np.pi if rotation.coordinates == "centered" else 1
    return np.concatenate([where * factor * np.array(steps) for where in coordinates])


def rotated(angles, pairs, vector):
    matrix, half = np.zeros((SIZE, SIZE)), SIZE // 2
    for i, theta in enumerate(angles):
        a, b = (i, i + half) if pairs == "halves" else (2 * i, 2 * i + 1)
        matrix[a, a] = matrix[b, b] = np.cos(theta)
        matrix[a, b], matrix[b, a] = -np.sin(theta), np.sin(theta)
    return matrix @ vector


def longhand(layer, x, positions):
    result, rotation = np.zeros(x.shape), layer.rotation
    for b in range(len(x)):
        heads = []
        for h in range(HEADS):
            part = slice(h * SIZE, (h + 1) * SIZE)
            angles = [angles_of(rotation, place, h) for place in positions]
            q, k = (
                np.stack([rotated(*pair) for pair in zip(angles, pairs, rows)])
                for pairs in [[rotation.pairs] * len(angles)]
                for rows in (
                    dense(layer.query, x[b])[:, part],
                    dense(layer.key, x[b])[:, part],
                )
            )
            score = np.exp(q @ k.T / np.sqrt(SIZE))
            value = dense(layer.value, x[b])[:, part]
            heads.append(score / score.sum(-1, keepdims=True) @ value)
        joined = np.concatenate(heads, -1)
        if layer.inner_norm:
            joined = joined - joined.mean(-1, keepdims=True)
            joined /= np.sqrt(joined.var(-1, keepdims=True) + layer.epsilon)
            joined = joined * to_numpy(layer.norm.gamma) + to_numpy(layer.norm.beta)
        result[b] = dense(layer.output_dense, joined)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("grid", [(3, 3), (2, 5)])
@pytest.mark.parametrize(
    "options",
    [{}, {"use_bias": False}, {"key_bias": False, "inner_norm": True, "epsilon": 1e-3}],
)
def test_rotates_queries_and_keys(name, grid, options):
    layer, positions = attention(name, **options), places(*grid)
    x, found = filled(layer, positions)
    expected = longhand(layer, x, positions)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, atol=5e-6)
    weights = to_numpy(layer.attention_weights(x, positions))
    assert weights.shape == (2, HEADS, len(positions), len(positions))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ROPE-ViT", "mixed"])
def test_only_differences_of_places_matter(name):
    layer, positions = attention(name), places(2, 3, prefix=0)
    x, found = filled(layer, positions)
    moved = positions + np.array([5, 3, 0, 0], "int32")
    np.testing.assert_allclose(to_numpy(layer(x, moved)), found, rtol=1e-3, atol=1e-3)
    assert np.abs(to_numpy(layer(x)) - found).max() > 0.1


def test_angles_are_exact_in_mixed_precision():
    """As bfloat16, 41 and 42 would be one place."""
    layer = attention("ROPE-ViT", dtype="mixed_bfloat16")
    positions = places(1, 300, prefix=0)
    x, _ = filled(layer, positions)
    sine, cosine = layer.rotation.turns(positions, SIZE)
    assert keras.backend.standardize_dtype(sine.dtype) == "float32"
    np.testing.assert_allclose(
        to_numpy(sine)[:, 0, 0], np.sin(np.arange(300)), atol=1e-4
    )
    result = layer(x, positions)
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({}, PROJECTIONS + 4 * WIDTH),
        ({"key_bias": False}, PROJECTIONS + 3 * WIDTH),
        ({"use_bias": False, "inner_norm": True}, PROJECTIONS + 3 * WIDTH),
    ],
)
def test_contract(options, parameters):
    shape = (2, 5, WIDTH)
    layer = attention(**options)
    check_layer(layer, input_shape=shape, output_shape=shape, parameters=parameters)


def parts():
    rotation = Rotation(name="rotation")
    return RotaryAttention(HEADS, rotation, name="attention"), MLP(8, name="mlp")


def test_contract_of_a_block_with_normalised_branches():
    check_layer(
        ResPostNormBlock(*parts()),
        input_shape=(2, 5, WIDTH),
        output_shape=(2, 5, WIDTH),
        parameters=PROJECTIONS + 4 * WIDTH + 2 * WIDTH * 8 + 8 + WIDTH + 4 * WIDTH,
    )


@pytest.mark.slow
@pytest.mark.parametrize("block", [EncoderBlock, LayerScaleBlock, ResPostNormBlock])
def test_blocks_hand_places_on(block):
    layer, positions = block(parts()[0], MLP(8, name="mlp")), places(2, 2)
    x, found = filled(layer, positions)
    assert np.abs(to_numpy(layer(x)) - found).max() > 1e-3
    norms = layer.attention_norm, layer.mlp_norm
    scales = (getattr(layer, f"{name}_scale", 1.0) for name in ("attention", "mlp"))
    branches = (lambda z: layer.attention(z, positions)), layer.mlp
    for norm, scale, branch in zip(norms, scales, branches, strict=True):
        if block is ResPostNormBlock:
            x = x + to_numpy(norm(branch(x)))
        else:
            x = x + to_numpy(branch(norm(x)) * scale)
    np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coordinates": "pixel"}, "`coordinates` must be one of"),
        ({"order": "zx"}, "`order` must be one of"),
        ({"pairs": "all"}, "`pairs` must be one of"),
    ],
)
def test_wrong_arguments_of_a_rotation(options, message):
    with pytest.raises(ValueError, match=message):
        Rotation(**options)


def test_heads_of_a_wrong_size():
    with pytest.raises(ValueError, match="multiple of 4.*Received: 6"):
        attention().build((None, 5, 12))


def test_swiglu_with_a_normalised_hidden_layer():
    check_layer(
        SwiGLU(6, inner_norm=True),
        input_shape=(2, 5, WIDTH),
        output_shape=(2, 5, WIDTH),
        parameters=3 * WIDTH * 6 + 12 + WIDTH + 12,
    )
    layer = SwiGLU(6, inner_norm=True, epsilon=1e-3)
    x = np.random.default_rng(0).normal(size=(2, 5, WIDTH)).astype("float32")
    layer.build(x.shape)
    gate = dense(layer.gate, x)
    hidden = gate / (1 + np.exp(-gate)) * dense(layer.dense_0, x)
    hidden = hidden - hidden.mean(-1, keepdims=True)
    hidden /= np.sqrt(hidden.var(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(
        to_numpy(layer(x)), dense(layer.dense_1, hidden), atol=1e-5
    )
