"""Second derivatives of whole models, against longhand and central differences."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import kerasvit
from kerasvit.inspection import Hessian, hessian_vector_product, largest_eigenvalue
from tests.once import rest_long_elsewhere

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def array(variable):
    return np.array(ops.convert_to_numpy(variable))


def samples(shape, classes, count=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, *shape)).astype("float32")
    return x, rng.integers(0, classes, count)


def with_noise(model, size=0.1):
    """Adds noise to the weights: zeros and ones can hide errors."""
    rng = np.random.default_rng(1)
    for v in model.trainable_variables:
        v.assign(array(v) + size * rng.standard_normal(v.shape))
    return model


def dense_net(**options):
    image = keras.Input((4,))
    x = layers.Dense(5, activation="tanh", name="hidden", **options)(image)
    return with_noise(keras.Model(image, layers.Dense(3, name="head")(x)), 0.5)


def dense_matrix(hessian):
    return np.stack([hessian @ unit for unit in np.eye(hessian.shape[0])])


def test_softmax_regression_against_its_formula():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, use_bias=False)])
    x, y = samples((4,), 3, count=7)
    logits = x @ array(model.weights[0])
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)  # (7, 3)
    within = p[:, :, None] * np.eye(3) - p[:, :, None] * p[:, None]
    expected = np.einsum("nkl,ni,nj->ikjl", within, x, x).reshape(12, 12) / 7
    hessian = Hessian(model, x, y, CROSS_ENTROPY, batch_size=3)
    np.testing.assert_allclose(dense_matrix(hessian), expected, atol=1e-6)
    largest = np.linalg.eigvalsh(expected)[-1]
    found = largest_eigenvalue(model, x, y, CROSS_ENTROPY, tolerance=1e-5)
    assert type(found) is float
    np.testing.assert_allclose(found, largest, rtol=1e-5)
    loss, gradient = hessian.loss_and_gradient()
    np.testing.assert_allclose(loss, -np.log(p[np.arange(7), y]).mean(), rtol=1e-5)
    np.testing.assert_allclose(
        gradient, (x.T @ (p - np.eye(3)[y]) / 7).ravel(), atol=1e-6
    )


def vit():
    return kerasvit.VisionTransformer(
        image_size=8, patch_size=4, width=8, depth=1, num_heads=2, mlp_dim=12,
        num_classes=5,
    )  # fmt: skip


def mixer():
    return kerasvit.MLPMixer(
        image_size=8, patch_size=4, width=8, depth=1, tokens_mlp_dim=6,
        channels_mlp_dim=12, num_classes=5,
    )  # fmt: skip


def bit_without_kinks():
    """BiT's layers with smooth activations."""
    image = keras.Input((6, 6, 3))
    x = kerasvit.layers.StandardizedConv(8, 3)(image)
    x = ops.tanh(kerasvit.layers.GroupNorm(2)(x))
    x = kerasvit.layers.StandardizedConv(8, 3)(x)
    x = ops.tanh(kerasvit.layers.GroupNorm(2)(x))
    return keras.Model(image, layers.Dense(5)(ops.mean(x, axis=(1, 2))))


def stock_norms():
    """Keras's normalisations, batch statistics, attention and an embedding."""
    image = keras.Input((8, 8, 3))
    x = layers.Conv2D(8, 3, strides=2)(image)
    x = layers.GroupNormalization(2)(x)
    x = layers.Conv2D(8, 2, activation="tanh")(x)
    x = layers.BatchNormalization()(x, training=True)
    x = layers.Reshape((4, 8))(x)
    x = x + layers.Embedding(4, 8)(np.arange(4)[None])
    x = x + layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.LayerNormalization()(x)
    x = layers.BatchNormalization()(ops.mean(ops.square(x), axis=1))
    return keras.Model(image, layers.Dense(5)(x))


def slope(hessian, direction, step):
    """The change of the gradient along a direction, to the fourth order in the step."""
    start = [array(v) for v in hessian.variables]

    def gradient(step):
        parts = hessian.split(step * direction).values()
        for v, value, part in zip(hessian.variables, start, parts, strict=True):
            v.assign(value + part)
        return hessian.loss_and_gradient()[1].astype("float64")

    near, far = (gradient(h) - gradient(-h) for h in (step, 2 * step))
    gradient(0)
    return (8 * near - far) / (12 * step)


def random_direction(hessian):
    # Of length 1 in each variable, or large ones would hide those with few weights.
    parts = hessian.split(np.random.default_rng(2).standard_normal(hessian.shape[0]))
    return np.concatenate([p.ravel() / np.linalg.norm(p) for p in parts.values()])


@pytest.mark.slow
@pytest.mark.parametrize(
    "build", rest_long_elsewhere([vit, bit_without_kinks, mixer, stock_norms], 2)
)
def test_a_product_is_the_slope_of_the_gradient(build):
    model = with_noise(build())
    before = [array(v) for v in model.non_trainable_variables]
    x, y = samples(model.input_shape[1:], 5)
    hessian = Hessian(model, x, y, CROSS_ENTROPY)
    direction = random_direction(hessian)
    expected = slope(hessian, direction, 5e-3)  # float32 has few digits
    product = hessian @ direction
    assert np.linalg.norm(product - expected) < 1e-3 * np.linalg.norm(expected)
    # The moving statistics of a normalisation that takes those of the batch.
    for v, value in zip(model.non_trainable_variables, before, strict=True):
        np.testing.assert_array_equal(array(v), value)


@pytest.mark.long
@pytest.mark.only_on(
    "tensorflow",
    reason="between the kinks of ReLU there is no room in float32",
)
def test_a_product_of_bit_in_float64():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        bit = kerasvit.BigTransfer(
            image_size=32, depths=[1, 1], width_factor=0.5, stage_widths=[128, 128],
            num_classes=5,
        )  # fmt: skip
        x, y = samples((32, 32, 3), 5, count=2)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        hessian = Hessian(with_noise(bit), x, y, loss)
        direction = random_direction(hessian)
        expected, product = slope(hessian, direction, 1e-8), hessian @ direction
    finally:
        keras.config.set_floatx("float32")
    assert np.linalg.norm(product - expected) < 1e-5 * np.linalg.norm(expected)


def diagonal(values):
    """A model and a loss with this diagonal Hessian."""
    model = keras.Sequential([keras.Input((1,)), layers.Dense(len(values))])
    model.layers[0].bias.trainable = False
    values = ops.convert_to_tensor(np.asarray(values, "float32"))

    def loss(y, y_pred):
        return ops.sum(values * ops.square(y_pred), axis=-1) / 2

    return model, np.ones((2, 1), "float32"), np.zeros((2, 1)), loss


def test_largest_is_the_most_positive_and_not_the_largest_magnitude():
    problem = diagonal([-10, -4, -1, 0.5, 1, 3])
    np.testing.assert_allclose(largest_eigenvalue(*problem), 3, rtol=1e-5)
    hessian = Hessian(*problem)
    for which, expected in (
        ("largest", [3, 1]),
        ("smallest", [-10, -4]),
        ("magnitude", [-10, -4]),
    ):
        found = hessian.eigenpairs(2, which=which)
        np.testing.assert_allclose(found.values, expected, rtol=1e-5)


def test_a_search_that_did_not_end_warns():
    hessian = Hessian(*diagonal(np.linspace(-1, 1, 30)))
    with pytest.warns(UserWarning, match="residuals .* after 3 products.*max_products"):
        found = hessian.eigenpairs(max_products=3, tolerance=1e-6)
    assert not found.converged and found.values[0] < 1


def test_batches_of_any_size_give_the_mean_over_all_samples():
    model, (x, y) = dense_net(), samples((4,), 3, count=7)
    whole = Hessian(model, x, y, CROSS_ENTROPY, batch_size=7)
    vector = np.random.default_rng(0).standard_normal(whole.shape[0])
    pairs = [(x[:4], y[:4]), (x[4:5], y[4:5]), (x[5:], y[5:])]
    for other in (
        Hessian(model, x, y, CROSS_ENTROPY, batch_size=3),
        Hessian(model, x, y, CROSS_ENTROPY, batch_size=100),
        Hessian(model, pairs, loss=CROSS_ENTROPY),
        Hessian(model, x.astype("float64"), y[:, None], CROSS_ENTROPY),
    ):
        np.testing.assert_allclose(other @ vector, whole @ vector, atol=1e-6)
        np.testing.assert_allclose(
            other.loss_and_gradient()[0], whole.loss_and_gradient()[0], rtol=1e-6
        )
    product = hessian_vector_product(model, x, y, vector, CROSS_ENTROPY, batch_size=2)
    np.testing.assert_allclose(product, whole @ vector, atol=1e-6)


def test_a_loss_by_name_by_function_and_by_compilation():
    model, (x, y) = dense_net(), samples((4,), 3)
    target = np.eye(3)[y]
    expected = largest_eigenvalue(model, x, target, keras.losses.MeanSquaredError())
    model.compile(loss="mse")
    for loss in (
        None,
        "mse",
        lambda y, y_pred: ops.mean(ops.square(y - y_pred)),
        lambda y, y_pred: ops.square(y - y_pred),
        keras.losses.MeanSquaredError(reduction=None),
    ):
        found = largest_eigenvalue(model, x, target, loss)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    trainer = kerasvit.SAM(model)
    trainer.compile("sgd", "mse")
    found = largest_eigenvalue(trainer, x, target)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_several_inputs_and_outputs_with_one_loss_of_all():
    inputs = {name: keras.Input((2,), name=name) for name in ("a", "b")}
    outputs = [layers.Dense(1)(inputs["a"]), layers.Dense(2)(inputs["b"])]
    model = keras.Model(inputs, outputs)
    x = {name: samples((2,), 2, seed=i)[0] for i, name in enumerate(("a", "b"))}
    y = [np.zeros((6, 1)), np.zeros((6, 2))]

    def loss(y, y_pred):
        return sum(ops.mean(ops.square(a - b)) for a, b in zip(y, y_pred, strict=True))

    matrix = dense_matrix(Hessian(model, x, y, loss, batch_size=4))
    ones = np.ones((6, 1))
    design = np.concatenate([x["a"], ones], axis=1)
    np.testing.assert_allclose(matrix[:3, :3], 2 * design.T @ design / 6, atol=1e-6)
    assert not matrix[:3, 3:].any()


@pytest.mark.slow
def test_regularisers_count_only_when_asked():
    net = dense_net(kernel_regularizer=keras.regularizers.L2(0.5))
    x, y = samples((4,), 3)
    without = dense_matrix(Hessian(net, x, y, CROSS_ENTROPY))
    with_them = Hessian(net, x, y, CROSS_ENTROPY, add_losses=True, batch_size=4)
    added = np.zeros(len(without))
    added[: 4 * 5] = 2 * 0.5
    np.testing.assert_allclose(
        dense_matrix(with_them) - without, np.diag(added), atol=1e-5
    )


@pytest.mark.slow
def test_a_pattern_gives_a_block_of_the_matrix():
    model, (x, y) = dense_net(), samples((4,), 3)
    whole = Hessian(model, x, y, CROSS_ENTROPY)
    matrix, paths = dense_matrix(whole), [*whole.split(np.zeros(whole.shape[0]))]
    sizes = [20, 5, 15, 3]
    for pattern, chosen in (("hidden/", [0, 1]), ("kernel$", [0, 2]), ("head/b", [3])):
        block = Hessian(model, x, y, CROSS_ENTROPY, variables=pattern)
        assert [v.path for v in block.variables] == [paths[i] for i in chosen]
        inside = np.repeat(np.isin(range(4), chosen), sizes)
        expected = matrix[inside][:, inside]
        np.testing.assert_allclose(dense_matrix(block), expected, atol=1e-6)
        found = largest_eigenvalue(model, x, y, CROSS_ENTROPY, variables=pattern)
        np.testing.assert_allclose(found, np.linalg.eigvalsh(expected)[-1], rtol=1e-3)


def test_frozen_layers_and_weights_without_effect():
    model, (x, y) = dense_net(), samples((4,), 3)
    before = dense_matrix(Hessian(model, x, y, CROSS_ENTROPY))
    model.get_layer("head").trainable = False
    after = Hessian(model, x, y, CROSS_ENTROPY)
    np.testing.assert_allclose(dense_matrix(after), before[:25, :25], atol=1e-6)

    def constant(y, y_pred):
        return ops.zeros((6,))

    def linear(y, y_pred):
        return ops.sum(y_pred, axis=-1)

    only_head = Hessian(dense_net(), x, y, linear, variables="head")
    assert not dense_matrix(only_head).any()
    assert largest_eigenvalue(model, x, y, constant) == 0


def test_runs_as_in_inference_and_writes_nothing():
    x, y = samples((4,), 3)

    def network(rate):
        net = keras.Sequential(
            [
                keras.Input((4,)),
                layers.Dense(5),
                layers.BatchNormalization(),
                layers.Dropout(rate, seed=1),
                layers.Dense(3),
            ]
        )
        return with_noise(net)

    model, plain = network(0.5), network(0.0)
    plain.set_weights(model.get_weights()[: len(plain.get_weights())])
    statistics = [v for v in model.variables if "moving" in v.path]
    for v in statistics:
        v.assign(array(v) + 0.3)
    for v, w in zip(
        [v for v in plain.variables if "moving" in v.path], statistics, strict=True
    ):
        v.assign(array(w))
    before = [array(v) for v in model.variables]
    found = Hessian(model, x, y, CROSS_ENTROPY)
    expected = Hessian(plain, x, y, CROSS_ENTROPY)
    vector = np.random.default_rng(0).standard_normal(found.shape[0])
    np.testing.assert_allclose(found @ vector, expected @ vector, atol=1e-6)
    alone = Hessian(model, x, y, CROSS_ENTROPY, batch_size=1)
    np.testing.assert_allclose(alone @ vector, expected @ vector, atol=1e-5)
    found.eigenpairs()
    for v, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(array(v), value)


def test_follows_the_weights():
    model, (x, y) = dense_net(), samples((4,), 3)
    hessian = Hessian(model, x, y, CROSS_ENTROPY, variables="head")
    vector = np.random.default_rng(0).standard_normal(hessian.shape[0])
    first = hessian @ vector
    model.get_layer("hidden").kernel.assign(np.ones((4, 5)))
    second = hessian @ vector
    assert np.abs(second - first).max() > 1e-3
    fresh = Hessian(model, x, y, CROSS_ENTROPY, variables="head")
    np.testing.assert_allclose(second, fresh @ vector, atol=1e-6)


def test_a_half_precision_model_is_inspected_in_float32():
    model = with_noise(vit())
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = vit()
    half.set_weights(model.get_weights())
    x, y = samples((8, 8, 3), 5)
    expected, found = (Hessian(each, x, y, CROSS_ENTROPY) for each in (model, half))
    direction = random_direction(expected)
    np.testing.assert_allclose(
        found @ direction, expected @ direction, rtol=1e-4, atol=1e-5
    )
    assert half.get_layer("encoder_block_0").compute_dtype == "bfloat16"


def test_seed_changes_the_start_and_not_the_result():
    model, (x, y) = dense_net(), samples((4,), 3)
    found = [largest_eigenvalue(model, x, y, CROSS_ENTROPY, seed=i) for i in (0, 0, 1)]
    assert found[0] == found[1]
    np.testing.assert_allclose(found[2], found[0], rtol=1e-4)
