"""The loss around a model's weights, and the directions."""

import re

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.inspection import (
    direction_between,
    landscape,
    norm_landscape,
    normalized_direction,
    random_direction,
)
from kerasvit.inspection.curvature import mean_loss
from tests.models.tiny import tiny
from tests.once import on_last_backend

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((7, 4)).astype("float32"), RNG.integers(0, 3, 7)


def network(seed=0, **options):
    rng = np.random.default_rng(seed)
    image = keras.Input((4,))
    x = layers.Dense(5, name="hidden", **options)(image)
    x = ops.tanh(layers.BatchNormalization(name="norm")(x))
    model = keras.Model(image, layers.Dense(3, name="head")(x))
    for v in model.weights:
        value = rng.standard_normal(v.shape)
        v.assign(np.abs(value) + 0.5 if "variance" in v.path else value)
    return model


def arrays(model):
    return {v.path: np.array(ops.convert_to_numpy(v), "float64") for v in model.weights}


def loss_of(w):
    x = X @ w["hidden/kernel"] + w["hidden/bias"]
    x = (x - w["norm/moving_mean"]) / np.sqrt(w["norm/moving_variance"] + 1e-3)
    x = np.tanh(x * w["norm/gamma"] + w["norm/beta"])
    p = np.exp(x @ w["head/kernel"] + w["head/bias"])
    return -np.log(p[np.arange(7), Y] / p.sum(1)).mean()


def moved(w, *terms):
    return {
        path: value + sum(a * d.get(path, 0) for a, d in terms)
        for path, value in w.items()
    }


def test_a_plane_against_its_formula():
    model = network()
    w = arrays(model)
    d0, d1 = (random_direction(model, seed=seed) for seed in (0, 1))
    a, b = [-1, 0, 0.5], [-0.3, 0.7]
    found = landscape(
        model, X, Y, CROSS_ENTROPY, directions=[d0, d1], grid=[a, b], batch_size=3
    )
    expected = [[loss_of(moved(w, (i, d0), (j, d1))) for j in b] for i in a]
    np.testing.assert_allclose(found.loss, expected, rtol=1e-5)
    assert [list(axis) for axis in found.grid] == [a, b]
    for path, value in arrays(model).items():
        np.testing.assert_array_equal(value, w[path])


def test_a_line_between_two_models_has_their_losses_at_its_ends():
    model, other = network(), network(1)
    line = direction_between(model, other)
    found = landscape(
        model, X, Y, CROSS_ENTROPY, directions=[line], grid=[[0, 0.25, 1]]
    )
    w = arrays(model)
    expected = [loss_of(moved(w, (a, line))) for a in (0, 0.25, 1)]
    np.testing.assert_allclose(found.loss, expected, rtol=1e-5)
    np.testing.assert_allclose(found.loss[-1], loss_of(arrays(other)), rtol=1e-5)


@on_last_backend
def test_the_norms_of_the_weights_on_a_plane():
    model = network()
    w = {v.path: arrays(model)[v.path] for v in model.trainable_variables}
    d0, d1 = (random_direction(model, seed=seed) for seed in (0, 1))
    a, b = [-1, 0.5], [-0.3, 0, 0.7]
    found = norm_landscape(model, [d0, d1], [a, b])
    expected = [
        [sum(map(np.linalg.norm, moved(w, (i, d0), (j, d1)).values())) for j in b]
        for i in a
    ]
    np.testing.assert_allclose(found.loss, expected, rtol=1e-6)
    found = norm_landscape(model, [d0], [a])
    expected = [sum(map(np.linalg.norm, moved(w, (i, d0)).values())) for i in a]
    np.testing.assert_allclose(found.loss, expected, rtol=1e-6)


@on_last_backend
def test_a_half_precision_model_has_the_losses_of_float32():
    x = RNG.standard_normal((2, 16, 16, 3)).astype("float32")
    expected, found = (
        landscape(
            tiny("MLPMixer", dtype=dtype), x, np.array([0, 2]),
            CROSS_ENTROPY, grid=[[0, 0.5]] * 2,
        ).loss
        for dtype in ("float32", "mixed_bfloat16")
    )  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.fixture
def passes(monkeypatch):
    """Counts forward passes."""
    calls = []
    original = mean_loss.value_at

    def value_at(variables, function):
        value = original(variables, function)
        return lambda *args: (calls.append(1), value(*args))[1]

    monkeypatch.setattr(mean_loss, "value_at", value_at)
    return calls


@pytest.mark.slow
@on_last_backend
def test_the_default_grid_costs_441_forward_passes(passes):
    found = landscape(network(), X, Y, CROSS_ENTROPY)
    assert found.loss.shape == (21, 21) and len(passes) == 441
    np.testing.assert_allclose(
        found.loss[10, 10], loss_of(arrays(network())), rtol=1e-5
    )


@on_last_backend
def test_a_stopped_landscape_goes_on(passes, tmp_path):
    model, file = network(), tmp_path / "plane.npz"
    d = [random_direction(model, seed=seed) for seed in (0, 1)]
    options = {"loss": CROSS_ENTROPY, "directions": d, "path": file}
    grid = [np.linspace(-1, 1, 4), np.linspace(-1, 1, 3)]
    whole = landscape(model, X, Y, CROSS_ENTROPY, directions=d, grid=grid)

    class Stop(Exception):
        pass

    class Stopping(list):
        def __iter__(self):
            if len(passes) == 12 + 5:
                raise Stop
            return super().__iter__()

    with pytest.raises(Stop):
        landscape(model, Stopping([(X, Y)]), grid=grid, **options)
    found = landscape(model, [(X, Y)], grid=grid, **options)
    np.testing.assert_array_equal(found.loss, whole.loss)
    assert len(passes) == 2 * 12
    again = landscape(model, [(X, Y)], grid=grid, **options)
    np.testing.assert_array_equal(again.loss, whole.loss)
    assert len(passes) == 2 * 12 and [p.name for p in tmp_path.iterdir()] == [file.name]
    others = [
        (network(1), X, grid, d),
        (model, X + 1, grid, d),
        (model, X, [grid[0] * 2, grid[1]], d),
        (model, X, grid, d[::-1]),
    ]
    for model, x, grid, d in others:
        options["directions"] = d
        with pytest.raises(
            ValueError, match="`path` must be a file of the same .*plane"
        ):
            landscape(model, [(x, Y)], grid=grid, **options)


@on_last_backend
def test_a_file_is_of_one_loss_and_of_all_samples_and_weights(tmp_path):
    def square():  # another object in each process
        def of_outputs(y, y_pred):
            return ops.mean(ops.square(y_pred), axis=-1)

        return of_outputs

    def found(loss=None, x=X, model=None, name="line"):
        model = model or network()
        kernel = random_direction(model)["head/kernel"]
        return landscape(
            model, x, targets, loss or square(), directions=[{"head/kernel": kernel}],
            grid=[[0, 1]], path=tmp_path / f"{name}.npz", batch_size=3,
        ).loss  # fmt: skip

    targets, smooth = np.eye(3)[Y], keras.losses.CategoricalCrossentropy
    np.testing.assert_array_equal(found(), found())
    assert np.isfinite(found(smooth(from_logits=True), name="plain")).all()
    later, other = X.copy(), network()
    later[5] += 1
    other.get_layer("hidden").kernel.assign(np.ones((4, 5)))
    for changes in (
        {"x": later},
        {"model": other},
        {"loss": "mse"},
        {"loss": smooth(from_logits=True, label_smoothing=0.1), "name": "plain"},
    ):
        with pytest.raises(ValueError, match="`path` must be a file of the same"):
            found(**changes)


@on_last_backend
@pytest.mark.parametrize(
    ("name", "expected"),
    [("none/line.npz", "folder that exists"), ("text", "path` must be a file of")],
)
def test_a_file_that_is_none_of_a_landscape(name, expected, tmp_path, passes):
    (tmp_path / "text").write_text("")
    np.savez(tmp_path / "other.npz", a=1)
    for file in {name, name.replace("text", "other.npz")}:
        with pytest.raises(ValueError, match=expected):
            landscape(network(), X, Y, CROSS_ENTROPY, path=tmp_path / file)
    assert not passes


def norms(array, axes):
    return np.sqrt((np.asarray(array, "float64") ** 2).sum(axes, keepdims=True))


def einsum(output, equation, bias):
    return layers.EinsumDense(equation, output, bias_axes=bias)


@on_last_backend
@pytest.mark.parametrize(
    ("layer", "shape", "axes"),
    [
        (layers.Dense(3), (4,), (0,)),
        (layers.Conv2D(3, (2, 1)), (4, 4, 2), (0, 1, 2)),
        (layers.DepthwiseConv2D(2), (4, 4, 2), (0, 1)),
        (layers.Conv2DTranspose(3, 2), (4, 4, 2), (0, 1, 3)),
        (einsum((None, 2, 3), "abc,cde->abde", "de"), (5, 4), (0,)),
        (einsum((None, 6), "abde,dec->abc", "c"), (5, 2, 3), (0, 1)),
        (layers.Embedding(7, 3), (5,), (1,)),
    ],
)
def test_filters_of_a_layer(layer, shape, axes):
    """`axes` are those of one filter; the others count filters."""
    model = keras.Sequential([keras.Input(shape), layer])
    rng = np.random.default_rng(1)
    kernel, *rest = model.trainable_variables
    raw = {v.path: rng.standard_normal(v.shape) for v in model.trainable_variables}
    d, w = raw[kernel.path], ops.convert_to_numpy(kernel)
    found = normalized_direction(model, raw)
    expected = d / norms(d, axes) * norms(w, axes)
    np.testing.assert_allclose(found[kernel.path], expected, rtol=1e-6)
    assert not any(found[v.path].any() for v in rest if len(v.shape) == 1)
    found = normalized_direction(model, raw, "how-do-vits-work")
    across = tuple(axis for axis in range(d.ndim) if axis not in axes)
    expected = d / (norms(d, across) + 1e-7) * norms(w, across)
    np.testing.assert_allclose(found[kernel.path], expected, rtol=1e-6)
    found = normalized_direction(model, raw, "layer")
    expected = d * np.linalg.norm(w) / np.linalg.norm(d)
    np.testing.assert_allclose(found[kernel.path], expected, rtol=1e-6)


@on_last_backend
def test_directions_of_a_vision_transformer():
    model = tiny("VisionTransformer")
    found = random_direction(model, "how-do-vits-work")
    still = [path for path, value in found.items() if not value.any()]
    assert set(still) == {
        v.path
        for v in model.trainable_variables
        if len(v.shape) == 1 or v.path == "position_embedding/table"
    }
    token = ops.convert_to_numpy(model.get_layer("class_token").weights[0])
    # One row, so that its norm over the rows is the magnitude of each entry.
    np.testing.assert_allclose(
        np.abs(found["class_token/tokens"]), np.abs(token), rtol=1e-4
    )
    by_filter = random_direction(model)
    table = by_filter["position_embedding/table"]
    weights = ops.convert_to_numpy(model.get_layer("position_embedding").weights[0])
    np.testing.assert_allclose(
        np.linalg.norm(table), np.linalg.norm(weights), rtol=1e-6
    )


@on_last_backend
def test_a_seed_determines_a_direction():
    model, other = network(), network(1)
    first, same, second = (random_direction(model, seed=i) for i in (0, 0, 1))
    np.testing.assert_array_equal(first["head/kernel"], same["head/kernel"])
    assert (first["head/kernel"] != second["head/kernel"]).all()
    ratio = first["head/kernel"] / random_direction(other)["head/kernel"]
    np.testing.assert_allclose(ratio, ratio[:1].repeat(5, 0), rtol=1e-9)


@on_last_backend
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"directions": []}, "`directions` must be a list of one or two .*list of 0"),
        ({"directions": {"head/bias": [1, 1, 1]}}, "one or two directions.*dict"),
        (
            {"directions": [{"head/bias": np.ones(4)}]},
            r"'head/bias' with shape \(4,\), for \(3,\)",
        ),
        ({"directions": [{"neck/bias": np.ones(4)}]}, "for no such variable"),
        ({"grid": [[0, 1]]}, "`grid` must be a list of 2 arrays"),
        ({"grid": [[0, np.nan]] * 2}, "`grid` must be a list of 2 arrays of finite"),
        ({"grid": [[1, 0]] * 2}, "`grid` must be ascending"),
        ({"x": X * np.nan}, re.escape("finite. Received: nan at the multiples [-1.0")),
        ({"y": None}, "iterable of batches"),
        ({"x": X[:, :3]}, "incompatible"),
    ],
)
def test_arguments(change, expected):
    with pytest.raises(ValueError, match=expected):
        landscape(network(), **{"x": X, "y": Y, "loss": CROSS_ENTROPY, **change})


@on_last_backend
def test_models_without_directions():
    frozen = network()
    frozen.trainable = False
    with pytest.raises(ValueError, match="must have trainable variables"):
        landscape(frozen, X, Y, CROSS_ENTROPY)
    with pytest.raises(ValueError, match="of the same shapes.*'kernel', .5, 3"):
        image = keras.Input((4,))
        other = keras.Model(image, layers.Dense(3)(layers.Dense(5)(image)))
        direction_between(other, network())
    with pytest.raises(ValueError, match="`normalization` must be one of 'filter'"):
        random_direction(network(), "filters")
