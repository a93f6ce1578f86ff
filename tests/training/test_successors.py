"""The successors of SAM, against their formulas in NumPy."""

import keras
import numpy as np
import pytest
from keras import layers

from kerasvit.training import ASAM, GSAM, MSAM, SAM, SAMON, FriendlySAM, LookSAM
from tests.once import rest_long_elsewhere

pytestmark = pytest.mark.slow

RHO, RATE = 0.3, 0.1


def batch():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(6, 5)).astype("float32")
    return x, rng.normal(size=(6, 3)).astype("float32")


def linear():
    """X → X K + b, whose gradients are easily written down."""
    model = keras.Sequential([keras.Input((5,)), layers.Dense(3, name="dense")])
    rng = np.random.default_rng(2)
    model.set_weights([rng.normal(size=w.shape) for w in model.weights])
    return model


def gradients(weights, x, y):
    kernel, bias = weights
    residual = 2 * (x @ kernel + bias - y) / y.size
    return [x.T @ residual, residual.sum(0)]


def step(trainer, **compiled):
    """Trains one batch with SGD; returns the gradients that SGD received."""
    x, y = batch()
    compiled = {"optimizer": keras.optimizers.SGD(RATE), "loss": "mse", **compiled}
    trainer.compile(**compiled)
    before = [np.asarray(w, "float64") for w in trainer.model.get_weights()]
    trainer.train_on_batch(x, y)
    after = trainer.model.get_weights()
    return before, [(b - a) / RATE for b, a in zip(before, after, strict=True)]


def length(vector):
    return np.sqrt(sum(np.square(v).sum() for v in vector))


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=5e-6)


@pytest.mark.parametrize("eta", [0.01, 0.0])
@pytest.mark.parametrize("biases", [False, True])
def test_asam(eta, biases):
    x, y = batch()
    w, found = step(ASAM(linear(), RHO, eta=eta, biases=biases))
    g = gradients(w, x, y)
    t = [np.abs(w[0]) + eta, np.abs(w[1]) + eta if biases else 1]
    far = length([t[i] * g[i] for i in (0, 1)])
    above = [w[i] + RHO * t[i] ** 2 * g[i] / far for i in (0, 1)]
    assert_same(found, gradients(above, x, y))


@pytest.mark.parametrize("below", [True, False])
def test_gsam(below):
    x, y = batch()
    trainer = GSAM(
        linear(), 0.5, 0.1, 0.4, lr_max=0.3, lr_min=0.05, minimize_perturbed=below
    )
    w, found = step(trainer)
    rho = 0.1 + 0.4 * (RATE - 0.05) / 0.25
    g = gradients(w, x, y)
    above = [w[i] + rho * g[i] / length(g) for i in (0, 1)]
    p = gradients(above, x, y)
    first, second, sign = (p, g, -1) if below else (g, p, 1)
    u = [v / length(first) for v in first]
    share = sum((a * b).sum() for a, b in zip(second, u, strict=True))
    expected = [first[i] + sign * 0.4 * (second[i] - share * u[i]) for i in (0, 1)]
    assert_same(found, expected)


def test_gsam_follows_a_schedule_and_a_callback():
    x, y = batch()

    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [0, 1], [0.2, 0.1, 0.0]
    )
    plain, followed = linear(), linear()
    trainer = GSAM(followed, 0.5, 0.0, 0.0, lr_max=0.2, lr_min=0.0)
    trainer.compile(keras.optimizers.SGD(schedule), "mse")
    sam = SAM(plain, 0.5)
    sam.compile(keras.optimizers.SGD(0.2), "mse")
    for rate in (0.2, 0.1):
        sam.rho = 0.5 * rate / 0.2
        sam.optimizer.learning_rate = rate
        for each in (sam, trainer):
            each.train_on_batch(x, y)
        assert_same(followed.get_weights(), plain.get_weights())
    trainer.compile(keras.optimizers.SGD(0.2), "mse")
    trainer.optimizer.learning_rate = 0.0
    assert float(trainer.current_rho()) == 0.0


def test_gsam_at_one_rate_without_alpha_is_sam():
    trainers = [
        SAM(linear(), RHO),
        GSAM(linear(), RHO, 0.0, 0.0, lr_max=RATE, lr_min=RATE),
    ]
    first, second = (step(trainer)[1] for trainer in trainers)
    assert_same(first, second)


def test_gsam_raises_for_an_invalid_assigned_radius():
    trainer = GSAM(linear(), 0.5, 0.2, lr_max=1.0, lr_min=0.1)
    trainer.rho = 0.4
    assert (trainer.rho, trainer.rho_max) == (0.4, 0.4)
    trainer.rho_max = 0.2
    with pytest.raises(ValueError, match="must not be below `rho_min`"):
        trainer.rho = 0.1
    assert trainer.rho == trainer.get_config()["rho_max"] == 0.2


def test_sam_on_perturbs_normalisations_only():
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(4, name="dense"),
            layers.LayerNormalization(name="norm"),
            layers.Dense(3, name="out"),
        ]
    )
    trainer = SAMON(model, RHO)
    weights = [keras.ops.convert_to_tensor(w) for w in model.get_weights()]
    ones = [keras.ops.ones_like(w) for w in weights]
    moved = trainer.perturbed(weights, ones)
    share = RHO / np.sqrt(8)  # gamma and beta, 4 each
    for variable, w, m in zip(model.trainable_variables, weights, moved, strict=True):
        expected = share if "norm" in variable.path else 0
        found = keras.ops.convert_to_numpy(m - w)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    _, found = step(trainer)
    assert all(np.abs(g).max() > 0 for g in found)  # all are trained


def test_sam_on_perturbs_layers_unfrozen_later():
    norm = layers.LayerNormalization(name="norm")
    model = keras.Sequential([keras.Input((5,)), norm, layers.Dense(3)])
    norm.trainable = False
    trainer = SAMON(model)
    norm.trainable = True
    known = [id(v) in trainer._perturbed_ids for v in model.trainable_variables]
    assert known == [True, True, False, False]


def test_sam_on_knows_normalisations_by_name():
    class GroupNorm(layers.GroupNormalization):
        """A custom normalisation."""

    parts = [
        layers.SpectralNormalization(layers.Conv2D(4, 1)),  # its kernel is no scale
        GroupNorm(2, name="own"),
        layers.RMSNormalization(name="rms"),
    ]
    model = keras.Sequential([keras.Input((2, 2, 3)), *parts])
    trainer = SAMON(model)
    paths = [v.path for v in model.variables if id(v) in trainer._perturbed_ids]
    assert [path.split("/")[-2:] for path in paths] == [
        ["own", "gamma"],
        ["own", "beta"],
        ["rms", "scale"],
    ]


@pytest.mark.parametrize(
    "trainer",
    rest_long_elsewhere(
        [
            lambda model: LookSAM(model, 0.4, 3, 0.6, micro_batches=2),
            lambda model: GSAM(
                model, 0.5, 0.2, 0.3, lr_max=0.1, lr_min=0.0, adaptive=True
            ),
            lambda model: ASAM(model, 0.7, eta=0.02, biases=True),
            lambda model: SAMON(model, 0.4),
            lambda model: MSAM(model, 0.4, 0.8, perturbation="global"),
            lambda model: FriendlySAM(model, 0.4, 0.5, 0.6, every=2),
        ],
        everywhere=2,
    ),
    ids=["looksam", "gsam", "asam", "sam_on", "msam", "friendly"],
)
def test_saves_loads_and_trains_in_half_precision(trainer, tmp_path):
    model = keras.Sequential(
        [keras.Input((5,)), layers.LayerNormalization(), layers.Dense(3)]
    )
    made = trainer(model)
    made.compile("adam", "mse")
    x, y = batch()
    made.fit(x, y, verbose=0)
    made.save(tmp_path / "trainer.keras")
    again = keras.saving.load_model(tmp_path / "trainer.keras")
    assert type(again) is type(made)
    config, other = made.get_config(), again.get_config()
    assert {k: v for k, v in config.items() if k != "model"} == {
        k: v for k, v in other.items() if k != "model"
    }
    assert_same(again.model.get_weights(), model.get_weights())
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = trainer(
            keras.Sequential(
                [keras.Input((5,)), layers.LayerNormalization(), layers.Dense(3)]
            )
        )
        half.compile("adam", "mse")
        assert np.isfinite(half.train_on_batch(x, y))
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda m: ASAM(m, eta=-1), "`eta` must be a finite number"),
        (lambda m: GSAM(m, lr_max=0.1, lr_min=0.2), "`lr_min` must not be above"),
        (lambda m: GSAM(m, 0.1, 0.2, lr_max=0.1, lr_min=0), "must not be below"),
        (lambda m: GSAM(m, alpha="x", lr_max=1, lr_min=0), "`alpha` must be"),
        (lambda m: SAMON(m), "must have a normalisation layer"),
        (lambda m: LookSAM(m, k=0), "must be a whole number"),
        (lambda m: LookSAM(m, alpha=-1), "`alpha` must be"),
        (lambda m: MSAM(m, momentum=1.0), "`momentum` must be a finite number in"),
        (lambda m: MSAM(m, every=2), "`every` skips SAM's second pass"),
        (lambda m: FriendlySAM(m, sigma=-1), "`sigma` must be a finite number"),
        (lambda m: FriendlySAM(m, momentum=1.0), "`momentum` must be a finite number"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make(linear())


def compiled_trainer(name, model, **options):
    """Compiles a trainer that remembers, with other numbers than the defaults."""
    trainer = {
        "looksam": lambda: LookSAM(model, RHO, 3, 0.6),
        "msam": lambda: MSAM(model, RHO, 0.8),
        "friendly": lambda: FriendlySAM(model, RHO, 0.7, 0.8),
        "friendly_every": lambda: FriendlySAM(model, RHO, 0.7, 0.8, every=3),
    }[name]()
    options = {"optimizer": keras.optimizers.SGD(RATE), "loss": "mse", **options}
    trainer.compile(**options)
    return trainer


def longhand(name, w, x, y, steps):
    """The weights after each step of SGD."""
    v, found = [np.zeros_like(each) for each in w], []
    for i in range(steps):
        if name == "msam":
            far = length(v) or 1.0
            used = gradients([a - RHO * b / far for a, b in zip(w, v)], x, y)
            v = [0.8 * b + g for b, g in zip(v, used)]
        elif name.startswith("friendly"):
            used = g = gradients(w, x, y)
            if name == "friendly" or i % 3 == 0:
                d = [a - 0.7 * b for a, b in zip(g, v)]
                above = [a + RHO * b / length(d) for a, b in zip(w, d)]
                used = gradients(above, x, y)
            v = g if i == 0 else [0.8 * b + 0.2 * a for a, b in zip(g, v)]
        else:
            g = gradients(w, x, y)
            if i % 3 == 0:
                used = gradients([a + RHO * b / length(g) for a, b in zip(w, g)], x, y)
                share = sum((a * b).sum() for a, b in zip(used, g)) / length(g) ** 2
                v = [a - share * b for a, b in zip(used, g)]
            else:
                factor = 0.6 * length(g) / length(v)
                used = [a + factor * b for a, b in zip(g, v)]
        w = [a - RATE * b for a, b in zip(w, used)]
        found.append(w)
    return found


REMEMBERING = ["looksam", "msam", "friendly", "friendly_every"]


@pytest.mark.parametrize("name", REMEMBERING)
def test_steps_and_stored_gradients(name):
    x, y = batch()
    model = linear()
    trainer = compiled_trainer(name, model)
    start = [np.asarray(w, "float64") for w in model.get_weights()]
    for expected in longhand(name, start, x, y, 5):
        trainer.train_on_batch(x, y)
        assert_same(model.get_weights(), expected)


def test_msam_begins_with_a_plain_step_and_logs_the_loss_where_it_was():
    x, y = batch()
    model, plain = linear(), linear()
    trainer = compiled_trainer("msam", model)
    plain.compile(keras.optimizers.SGD(RATE), "mse")
    assert_same([trainer.train_on_batch(x, y)], [plain.train_on_batch(x, y)])
    assert_same(model.get_weights(), plain.get_weights())
    # After one step the momentum is its gradient, which went the other way.
    g = gradients(linear().get_weights(), x, y)
    kernel, bias = [
        w - RHO * b / length(g) for w, b in zip(model.get_weights(), g, strict=True)
    ]
    logs = trainer.train_on_batch(x, y, return_dict=True)
    expected = np.mean(np.square(x @ kernel + bias - y))
    np.testing.assert_allclose(logs["loss"], expected, rtol=1e-5)


def test_msam_perturbs_along_the_momentum_of_sgd():
    x, y = batch()
    model = linear()
    optimizer = keras.optimizers.SGD(RATE, momentum=0.8)
    trainer = compiled_trainer("msam", model, optimizer=optimizer)
    for _ in range(3):
        trainer.train_on_batch(x, y)
    own = [keras.ops.convert_to_numpy(v) for v in optimizer.variables[-2:]]
    memory = trainer.slots_of(trainer.trainable_variables)
    found = [keras.ops.convert_to_numpy(v) for v in memory]
    assert_same(own, [-RATE * v for v in found])  # Keras's momentum has the rate in it


def test_msam_perturbs_all_parts_of_a_batch_equally():
    x, y = batch()
    models = [linear(), linear()]
    for model, parts in zip(models, (1, 3), strict=True):
        trainer = MSAM(model, RHO, micro_batches=parts)
        trainer.compile(keras.optimizers.SGD(RATE), "mse")
        for _ in range(3):
            trainer.train_on_batch(x, y)
    assert_same(*(model.get_weights() for model in models))


def test_msam_without_rho_is_plain_training():
    x, y = batch()
    models = [linear(), linear()]
    trainer = MSAM(models[0], 0)
    for each in (trainer, models[1]):
        each.compile(keras.optimizers.SGD(RATE, momentum=0.9), "mse")
        for _ in range(3):
            each.train_on_batch(x, y)
    np.testing.assert_array_equal(*(model.get_weights()[0] for model in models))
    trainer.rho = 1.0  # as after a warm-up: the momentum of the steps before is there
    far = trainer.train_on_batch(x, y)
    assert abs(far - models[1].train_on_batch(x, y)) > 1e-3


@pytest.mark.parametrize("name", rest_long_elsewhere(REMEMBERING))
@pytest.mark.parametrize("way", ["trainer", "weights"])
def test_stored_gradients_are_saved(name, way, tmp_path):
    x, y = batch()
    model = linear()
    trainer = compiled_trainer(name, model)
    start = [np.asarray(w, "float64") for w in model.get_weights()]
    expected = longhand(name, start, x, y, 5)
    trainer.fit(x, y, epochs=2, verbose=0)
    if way == "trainer":
        trainer.save(tmp_path / "trainer.keras")
        trainer = keras.saving.load_model(tmp_path / "trainer.keras")
    else:
        trainer.save_weights(tmp_path / "trainer.weights.h5")
        trainer = compiled_trainer(name, linear())
        trainer.load_weights(tmp_path / "trainer.weights.h5")
    trainer.fit(x, y, epochs=3, verbose=0)
    assert_same(trainer.model.get_weights(), expected[-1])


@pytest.mark.parametrize("name", REMEMBERING)
def test_backup_and_restore_equals_an_uninterrupted_training(name, tmp_path):
    x, y = batch()
    model = linear()
    start = [np.asarray(w, "float64") for w in model.get_weights()]
    for epochs, each in ((2, model), (5, linear())):
        backup = keras.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
        trainer = compiled_trainer(name, each)
        trainer.fit(x, y, epochs=epochs, callbacks=[backup], verbose=0)
    assert int(trainer.optimizer.iterations) == 5
    assert_same(each.get_weights(), longhand(name, start, x, y, 5)[-1])


@pytest.mark.parametrize("name", REMEMBERING)
def test_freezing_after_compile(name):
    x, y = batch()
    model = keras.Sequential(
        [keras.Input((5,)), layers.Dense(4, name="a"), layers.Dense(3, name="b")]
    )
    trainer = compiled_trainer(name, model)
    for frozen, other in (("a", "b"), ("b", "a")):
        for layer in (frozen, other):
            model.get_layer(layer).trainable = layer == other
        trainer.compile(keras.optimizers.SGD(RATE), "mse")
        memory = trainer.slots_of(model.variables)
        assert all(not np.any(keras.ops.convert_to_numpy(v)) for v in memory)
        before = {name: model.get_layer(name).get_weights() for name in "ab"}
        for _ in range(3):
            trainer.train_on_batch(x, y)
        for a, b in zip(before[frozen], model.get_layer(frozen).get_weights()):
            np.testing.assert_array_equal(a, b)
        assert np.abs(before[other][0] - model.get_layer(other).get_weights()[0]).max()


@pytest.mark.parametrize("name", REMEMBERING)
def test_an_overflow_is_not_remembered(name):
    x, y = batch()
    keras.config.set_dtype_policy("mixed_float16")
    model = linear()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), 64.0)
    trainer = compiled_trainer(name, model, optimizer=optimizer)
    for _ in range(3):  # the next is a look
        trainer.train_on_batch(x, y)

    def state():
        held = trainer.slots_of(trainer.trainable_variables)
        return [keras.ops.convert_to_numpy(v) for v in [*model.variables, *held]]

    before = state()
    assert all(np.abs(v).max() > 0 for v in before)
    trainer.train_on_batch(np.full_like(x, np.inf), y)
    for a, b in zip(state(), before):
        np.testing.assert_array_equal(a, b)
    trainer.train_on_batch(x, y)
    assert all(np.isfinite(v).all() for v in state())


@pytest.mark.parametrize("name", REMEMBERING)
def test_zero_gradients_do_not_perturb(name):
    x, y = batch()
    model, y = linear(), np.zeros_like(y)
    model.set_weights([w * 0 for w in model.get_weights()])
    trainer = compiled_trainer(name, model)
    for _ in range(4):
        assert trainer.train_on_batch(x, y) == 0
    assert not any(w.any() for w in model.get_weights())
