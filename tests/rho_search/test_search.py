"""`suggest_rho`: its measurements, its report, and the unchanged model."""

import random

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit import SAM, LookSAM, suggest_rho
from kerasvit.rho_search.data import divide
from kerasvit.rho_search.report import Advice, Seen, Trial, compare
from kerasvit.rho_search.search import _grid, _probes
from tests.once import on_last_backend


def line(n=192, noise=1.0):
    """Samples of y = x + noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 1)).astype("float32")
    return x, x + noise * rng.normal(size=(n, 1)).astype("float32")


def product(first=4.0, **compiled):
    """x → first · second · x: equal products are flatter if the factors are equal."""
    model = keras.Sequential(
        [
            keras.Input((1,)),
            layers.Dense(1, use_bias=False, name="first"),
            layers.Dense(1, use_bias=False, name="second"),
        ]
    )
    model.set_weights([np.array([[first]]), np.array([[1 / first]])])
    compiled = {"optimizer": keras.optimizers.SGD(0.02), "loss": "mse", **compiled}
    model.compile(**compiled)
    return model


@pytest.mark.slow
def test_sam_flattens():
    model = product(optimizer=keras.optimizers.SGD(0.05))
    advice = suggest_rho(
        model, line(320, 2.0), rhos=[0.5], steps=60, runs=2, batch_size=16
    )
    plain, sam = advice.trials
    assert (plain.rho, sam.rho, advice.radius) == (0.0, 0.5, 0.5)
    assert sam.seen.sharpness < 0.5 * plain.seen.sharpness
    assert sam.seen.gradient_norm < plain.seen.gradient_norm
    text = str(advice)
    assert repr(advice) == text and "sharpness within 0.5" in text
    assert len(text.splitlines()) == 8  # title, header, three rows, advice


@on_last_backend
def test_the_default_radii_suit_the_gradients():
    def grid(loss, length):
        return _grid(Seen(loss, {}, length, 0.0))

    papers = [0.0, 0.02, 0.05, 0.1, 0.2, 0.5]
    assert grid(2.3, 1.0) == grid(0.1, 0.3) == papers
    assert grid(0.8, 160.0) == [0.0, 0.002, 0.005, 0.01, 0.02, 0.05]
    assert grid(0.1, 200.0) == [0.0, 0.0002, 0.0005, 0.001, 0.002, 0.005]
    for odd in ((-1.0, 9e9), (0.0, 1.0), (1.0, 0.0), (np.nan, 1.0), (1.0, np.inf)):
        assert grid(*odd) == papers


@pytest.mark.slow
def test_without_radii_those_of_the_model_are_tried():
    model = product(1000.0, optimizer=keras.optimizers.SGD(1e-9))
    advice = suggest_rho(model, line(), steps=2, runs=2, batch_size=32)
    radii = [trial.rho for trial in advice.trials]
    assert radii == [0.0, 0.002, 0.005, 0.01, 0.02, 0.05] and advice.radius == 0.01


@pytest.mark.slow
@pytest.mark.only_on("torch", reason="nothing differs, but for compiling")
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision(policy):
    options = {"rhos": [0.1], "steps": 4, "runs": 2, "batch_size": 32}
    whole = suggest_rho(product(), line(), **options)
    keras.config.set_dtype_policy(policy)
    half = suggest_rho(product(), line(), **options)
    for name in ("loss", "gradient_norm", "sharpness"):
        expected = getattr(whole.before, name)
        np.testing.assert_allclose(getattr(half.before, name), expected, rtol=0.1)
        # Where the loss scale is too large at first, steps are left out.
        assert all(np.isfinite(getattr(trial.seen, name)) for trial in half.trials)


@pytest.mark.slow
def test_the_report_states_if_no_radius_helps():
    def largest(y, y_pred):  # known here only, so that no copy could be made by name
        return ops.max(ops.abs(ops.subtract(y, y_pred)), axis=-1)

    model = product(1.0, metrics=["mae", largest])  # as flat as it gets
    advice = suggest_rho(model, line(), rhos=(0, 1e-3), steps=10, runs=2, batch_size=16)
    assert advice.rho == 0 and "No benefit seen" in str(advice)
    assert "mae" in str(advice) and "largest" in str(advice)


def test_measures_are_those_of_the_formulas():
    x, y = line(32)
    model = product()
    advice = suggest_rho(
        model, (x, y), validation=(x, y), rhos=[0.3], steps=1, runs=2, batch_size=16
    )
    order = np.random.default_rng(0).permutation(32)
    a, b = 4.0, 0.25
    losses, norms, rises = [], [], []
    for part in (order[:16], order[16:]):
        u, v = x[part].astype("float64"), y[part]
        slope = np.mean(2 * (a * b * u - v) * u)
        g = np.array([slope * b, slope * a])
        top = np.array([a, b]) + 0.3 * g / np.linalg.norm(g)
        losses.append(np.mean((a * b * u - v) ** 2))
        norms.append(np.linalg.norm(g))
        rises.append(np.mean((top.prod() * u - v) ** 2) - losses[-1])
    before = advice.before
    np.testing.assert_allclose(before.loss, np.mean(losses), rtol=1e-5)
    np.testing.assert_allclose(before.gradient_norm, np.mean(norms), rtol=1e-5)
    np.testing.assert_allclose(before.sharpness, np.mean(rises), rtol=1e-4)


def test_a_row_equals_a_step_of_sam():
    x, y = line(64)
    train, held = (x[:32], y[:32]), (x[32:], y[32:])
    advice = suggest_rho(
        product(), [train], validation=[held, held], rhos=[0.3], steps=3, runs=2
    )
    for trial in advice.trials:
        model = product()
        trainer = SAM(model, trial.rho)
        trainer.compile(keras.optimizers.SGD(0.02), "mse")
        for _ in range(3):
            trainer.train_on_batch(*train)
        expected = model.evaluate(*held, batch_size=32, verbose=0)
        np.testing.assert_allclose(trial.seen.loss, expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.not_on("jax", reason="compiles for long, as on TensorFlow")
def test_the_model_is_left_as_it_was():
    model = keras.Sequential(
        [
            keras.Input((1,)),
            layers.Dense(4),
            layers.Dropout(0.5),
            layers.BatchNormalization(),
            layers.Dense(1),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        "mse",
        metrics=[keras.metrics.MeanAbsoluteError(name="mae")],
    )
    x, y = line(96)
    model.fit(x, y, verbose=0)
    optimizer, function = model.optimizer, model.train_function

    def state():
        variables = [*model.variables, *optimizer.variables, *model.metrics_variables]
        return [ops.convert_to_numpy(v) for v in variables]

    def drawn():
        numbers = [random.getstate(), np.random.get_state()[1].tolist()]
        if keras.backend.backend() == "torch":
            import torch

            numbers.append(torch.get_rng_state().tolist())
        return numbers

    before = state()
    keras.utils.set_random_seed(5)
    expected = np.asarray(ops.convert_to_numpy(keras.random.uniform((3,))))
    keras.utils.set_random_seed(5)
    seeds = drawn()
    suggest_rho(model, (x, y), rhos=[0.1], steps=3, runs=2, batch_size=16)
    assert drawn() == seeds
    found = np.asarray(ops.convert_to_numpy(keras.random.uniform((3,))))
    np.testing.assert_array_equal(found, expected)
    for a, b in zip(state(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert model.optimizer is optimizer and model.train_function is function
    assert model.evaluate(x, y, verbose=0, return_dict=True).keys() == {"loss", "mae"}


def as_dataset(x, y):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(16)


def as_loader(x, y):
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
    return torch.utils.data.DataLoader(data, batch_size=16)


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.data = x, y

    def __len__(self):
        return 4

    def __getitem__(self, i):
        x, y = self.data
        return x[16 * i : 16 * i + 16], y[16 * i : 16 * i + 16]


def as_generator(x, y):
    return iter(list(as_dataset(x, y)))


@pytest.mark.parametrize("form", [as_dataset, as_loader, Batches, as_generator])
def test_forms_of_data(form):
    x, y = line(64)
    train, held = divide(form(x, y), 0.5, steps=9, batch_size=3, seed=0)
    found = [*held, *train]
    assert (len(held), len(train)) == (2, 2)
    for i, (inputs, targets, weights) in enumerate(found):
        assert type(inputs) is type(targets) is np.ndarray and weights is None
        np.testing.assert_array_equal(inputs, x[16 * i : 16 * i + 16])
        np.testing.assert_array_equal(targets, y[16 * i : 16 * i + 16])


def test_no_sample_is_trained_on_and_measured_on():
    x = {"a": np.arange(100), "b": np.arange(200).reshape(100, 2)}
    train, held = divide((x, np.arange(100)), 0.2, steps=9, batch_size=8, seed=0)
    assert (len(held), len(train)) == (2, 9)
    seen = [y for _, y, _ in [*train, *held]]
    assert len(set(np.concatenate(seen))) == 8 * 11
    for inputs, y, _ in train:
        np.testing.assert_array_equal(inputs["a"], y)
        np.testing.assert_array_equal(inputs["b"][:, 0], 2 * y)
    everything = (x, np.arange(100))
    train, held = divide(everything, everything, steps=2, batch_size=8, seed=0)
    assert (len(held), len(train)) == (12, 2)  # all held-out samples are used


@pytest.mark.slow
def test_trainers_and_options_are_accepted():
    x, y = line(64)
    model = product()
    trainer = SAM(model, 0.1)
    trainer.compile(keras.optimizers.SGD(0.02), "mse")
    options = {"rhos": [0.1], "steps": 2, "runs": 2, "batch_size": 8}
    first = suggest_rho(trainer, (x, y), **options)
    assert first == suggest_rho(model, (x, y), **options)
    plain = keras.Sequential([keras.Input((1,)), *model.layers])
    assert not plain.compiled
    sgd = keras.optimizers.SGD(0.02)
    assert first == suggest_rho(plain, (x, y), optimizer=sgd, loss="mse", **options)
    other = suggest_rho(model, (x, y, np.full(64, 2.0)), loss="mae", **options)
    assert other.before.loss != first.before.loss and sgd.iterations == 0


def test_noise_is_the_larger_of_that_of_runs_and_that_of_batches():
    rng = np.random.default_rng(0)
    losses = rng.normal(size=(3, 4, 5))
    gains, noises = compare(losses)
    for i in range(3):
        gain = losses[0] - losses[i]
        runs = [gain[run].mean() for run in range(4)]
        batches = [gain[:, batch].mean() for batch in range(5)]
        errors = [np.std(v, ddof=1) / np.sqrt(len(v)) for v in (runs, batches)]
        np.testing.assert_allclose(gains[i], gain.mean())
        np.testing.assert_allclose(noises[i], 3 * max(errors))
    assert gains[0] == noises[0] == 0


def test_a_diverged_radius_is_no_benefit():
    nan, seen = float("nan"), Seen(1.0, {}, 1.0, 1.0)
    lost = Seen(nan, {}, nan, nan)
    plain, good, bad = (
        Trial(0.0, 0.0, 0.0, seen),
        Trial(0.1, 0.2, 0.1, seen),
        Trial(0.5, nan, nan, lost),
    )
    advice = Advice(seen, (plain, good, bad), 0.1, 3, 300)
    assert advice.rho == 0.1 and "nan" in str(advice)
    assert "rho=0.1 lowers the loss by 0.2" in str(advice)
    all_lost = (Trial(0.0, nan, nan, lost), bad)
    assert "diverged" in str(Advice(seen, all_lost, 0.1, 3, 300))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rhos": []}, "must have a radius above 0"),
        ({"rhos": [0]}, "must have a radius above 0"),
        ({"rhos": [0.1, -1]}, "`rhos` must be a finite number"),
        ({"steps": 0}, "`steps` must be a whole number"),
        ({"runs": 1}, "`runs` must be a whole number ≥ 2"),
        ({"batch_size": 0}, "`batch_size` must be"),
        ({"batch_size": 40}, "whole batch to train on"),
        ({"validation": 1.5}, "a share of it between 0 and 1"),
        ({"validation": np.zeros((4, 1))}, "must be a tuple of arrays"),
        ({"data": np.zeros((64, 1))}, "Received: ndarray of 64"),
        ({"data": (np.zeros((64, 1)), None)}, "Targets y"),
        ({"data": [np.zeros((64, 1))]}, "Targets y"),
        ({"data": [np.zeros((64, 1))] * 2}, r"list of 2 with arrays.* \(x, y\)"),
        ({"data": ([[1.0]] * 64, [[1.0]] * 64)}, "single numbers in it: numpy.asarray"),
        ({"data": [([[1.0]] * 9, [[1.0]] * 9)]}, "single numbers in it: numpy.asarray"),
        ({"data": (np.zeros((64, 1)), np.zeros((63, 1)))}, "as many targets"),
        ({"data": 3}, "Received: int"),
        ({"model": "model"}, "must be a keras.Model"),
        ({"model": LookSAM(product())}, "Pass `trainer.model`.*a LookSAM"),
    ],
)
def test_bad_arguments(options, message):
    options = {"model": product(), "data": line(64), **options}
    with pytest.raises(ValueError, match=message):
        suggest_rho(**options)


def test_radii_are_tried_in_the_trainers_parts():
    trainer = SAM(product(), micro_batches=4, perturbation="global")
    trainer.compile("sgd", "mse")
    for probe in _probes(trainer):
        assert (probe.micro_batches, probe.perturbation) == (4, "global")


def test_a_model_that_is_not_compiled_needs_a_loss():
    model = keras.Sequential([keras.Input((1,)), layers.Dense(1)])
    for options in ({}, {"optimizer": "sgd"}):
        with pytest.raises(ValueError, match="`model` must be compiled, or"):
            suggest_rho(model, line(128), **options)
    few = {"rhos": [0.1], "steps": 2, "runs": 2}
    text = str(suggest_rho(model, line(128), loss="mse", **few))
    assert "AdamW" in text and "cross-entropy" not in text


def labelled(last=None, classes=3):
    x = np.random.default_rng(0).normal(size=(128, 2)).astype("float32")
    y = (x[:, 0] > 0).astype("int64") + (x[:, 1] > 0)
    return keras.Sequential([keras.Input((2,)), layers.Dense(classes, last)]), (x, y)


@pytest.mark.slow
@pytest.mark.parametrize("last", [None, "softmax"])
def test_a_model_that_is_not_compiled_learns_labels(last, capsys):
    model, data = labelled(last)
    before = model.get_weights()
    advice = suggest_rho(model, data, rhos=[0.1], steps=2, runs=2)
    print(advice)  # as in the README
    text = capsys.readouterr().out
    assert "accuracy" in text and "trained with the cross-entropy of labels and" in text
    logits = keras.ops.convert_to_numpy(model(data[0]))
    logits = np.log(logits) if last else logits
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(128), data[1]]
    # Held out are 32 batches at most, of 20 %: some of these samples.
    assert losses.min() < advice.before.loss < losses.max()
    assert not model.compiled
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def with_two_outputs():
    model, (x, y) = labelled()
    outputs = [*model.outputs, layers.Dense(4)(model.outputs[0])]
    return keras.Model(model.inputs, outputs), (x, (y, y))


@on_last_backend
@pytest.mark.parametrize(
    "model_and_data",
    [
        labelled(classes=2),  # three labels
        labelled(classes=1),
        (labelled()[0], (labelled()[1][0], np.eye(3)[labelled()[1][1]])),
        with_two_outputs(),
    ],
    ids=["too few classes", "one class", "one-hot", "two outputs"],
)
def test_no_loss_is_guessed_for_other_targets(model_and_data):
    with pytest.raises(ValueError, match="Pass a loss"):
        suggest_rho(*model_and_data)
