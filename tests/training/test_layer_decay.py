"""A step with layer-wise decay is the optimizer's own step with rate × factor."""

import keras
import numpy as np
import pytest
from keras import layers, optimizers

import kerasvit
from kerasvit.training import GSAM, SAM, layer_decay
from tests.models.tiny import TINY, tiny
from tests.once import long_elsewhere, on_last_backend, rest_long_elsewhere
from tests.trainers import COMPILED, MODES, assert_same, batch, compiled, small, values

GROUPS = ["hidden/", "norm/"]
RATE, DECAY = 0.1, 0.5
FACTORS = {"hidden": 0.25, "norm": 0.5, "head": 1.0}
EACH = [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]  # of `small`'s trainable variables
OPTIMIZERS = sorted(
    name
    for name, each in vars(optimizers).items()
    if isinstance(each, type)
    and issubclass(each, keras.Optimizer)
    and name not in ("Optimizer", "LossScaleOptimizer", "MultiOptimizer")
)
BLOCK = {"depth": 11, "width": 4, "mlp_dim": 4}
# {builder: (changes of the tiny model, {first part of a path: group})}, of some paths
EXPECTED = {
    "VisionTransformer": (
        {**BLOCK, "register_tokens": 1, "representation_size": 4},
        {
            **dict.fromkeys(["embedding", "register_tokens", "class_token"], 0),
            **{"position_embedding": 0, "encoder_block_0": 1, "encoder_block_10": 11},
            **dict.fromkeys(["encoder_norm", "pre_logits", "head"], 12),
        },
    ),
    "RotaryVisionTransformer": (
        {"depth": 2, "positions": "tokens", "register_tokens": 1, "pre_norm": True},
        {
            **dict.fromkeys(["embedding", "register_tokens", "class_token"], 0),
            **{"position_embedding": 0, "pre_norm": 0, "encoder_block_0": 1},
            **{"encoder_block_1": 2, "encoder_norm": 3, "head": 3},
        },
    ),
    "BEiTTransformer": (
        {"depth": 2, "position_bias": "shared", "absolute_positions": True},
        {
            **dict.fromkeys(["embedding", "class_token", "position_embedding"], 0),
            **{"position_bias": 0, "encoder_block_0": 1, "encoder_block_1": 2},
            **{"encoder_norm": 3, "head": 3},
        },
    ),
    "DistilledVisionTransformer": (
        {},
        {
            **{"distillation_token": 0, "encoder_block_0": 1, "encoder_norm": 2},
            **{"head": 2, "head_distillation": 2},
        },
    ),
    "HybridVisionTransformer": (
        {},
        {
            **dict.fromkeys(["root_conv", "stage_0_unit_0", "position_embedding"], 0),
            **{"encoder_block_0": 1, "encoder_norm": 2, "head": 2},
        },
    ),
    "MLPMixer": (
        {},
        {"stem": 0, "mixer_block_0": 1, "pre_head_norm": 2, "head": 2},
    ),
    "SwinTransformer": (
        {},
        {
            **{"embedding": 0, "embedding_norm": 0, "stage_0_block_0": 1},
            **{"stage_0_block_1": 2, "stage_1_merging": 3, "stage_1_block_0": 3},
            **{"encoder_norm": 4, "head": 4},
        },
    ),
    "PoolingVisionTransformer": (
        {},
        {
            **dict.fromkeys(["embedding", "position_embedding", "class_token"], 0),
            **{"stage_0_block_0": 1, "stage_1_pooling": 2, "stage_1_block_0": 2},
            **{"stage_1_block_1": 3, "encoder_norm": 4, "head": 4},
        },
    ),
    "AlterNet": (
        {},
        {
            **{"stem": 0, "stage_0_unit_0": 1, "stage_1_unit_0": 2},
            **{"stage_1_unit_1": 3, "final_norm": 4, "head": 4},
        },
    ),
    "PreActResNet": (
        {},
        {"stem": 0, "stage_0_unit_0": 1, "stage_1_unit_0": 2, "head": 3},
    ),
    "ResNeXt": (
        {},
        {
            **{"stem": 0, "stem_norm": 0, "stage_0_unit_0": 1, "stage_1_unit_0": 2},
            "head": 3,
        },
    ),
    "VisionTransformerAblation": (
        {},
        {"class_token": 0, "encoder_block_0": 1, "encoder_norm": 2, "head": 2},
    ),
    "BigTransfer": (
        {},
        {"root_conv": 0, "stage_0_unit_0": 1, "stage_1_unit_0": 2, "final_norm": 3},
    ),
}


def factors_of(optimizer):
    rates = optimizer.get_config()["rates"]
    return {path: factor for path, (factor, _) in rates.items()}


def decayed(optimizer, model, **options):
    return layer_decay(optimizer, model, DECAY, groups=GROUPS, **options)


def gradients(model, count):
    rng = np.random.default_rng(3)
    return [
        [
            keras.ops.convert_to_tensor(rng.normal(size=v.shape), dtype=v.dtype)
            for v in model.trainable_variables
        ]
        for _ in range(count)
    ]


def name(variable):
    """The path without the name of the Sequential."""
    return "/".join(variable.path.split("/")[-2:])


def differences(after, before):
    return [a - b for a, b in zip(after, before, strict=True)]


def copied(variables):
    return [np.array(keras.ops.convert_to_numpy(v), copy=True) for v in variables]


def expected_weights(make, model, steps, start):
    """Weights after steps of the plain optimizer with the rate of each layer."""
    expected = {}
    for layer, factor in FACTORS.items():
        for variable, value in zip(model.trainable_variables, start, strict=True):
            variable.assign(value)
        plain = make(RATE * factor)
        for each in steps:
            plain.apply(each, model.trainable_variables)
        for v in model.trainable_variables:
            if layer in v.path:
                expected[name(v)] = copied([v])[0]
    return expected


def check_steps(make, model=None):
    """Checks four steps, the last two of them after saving and loading."""
    model = small() if model is None else model
    steps, start = gradients(model, 4), copied(model.trainable_variables)
    optimizer = decayed(make(RATE), model)
    for each in steps[:2]:
        optimizer.apply(each, model.trainable_variables)
    state = copied(optimizer.variables)
    config = keras.optimizers.serialize(optimizer)
    optimizer = keras.optimizers.deserialize(config)
    assert isinstance(optimizer, type(make(RATE)))
    weights = copied(model.trainable_variables)
    optimizer.build(model.trainable_variables)
    for variable, value in zip(optimizer.variables, state, strict=True):
        variable.assign(value)
    for variable, value in zip(model.trainable_variables, weights, strict=True):
        variable.assign(value)
    for each in steps[2:]:
        optimizer.apply(each, model.trainable_variables)
    got = {name(v): copied([v])[0] for v in model.trainable_variables}
    expected = expected_weights(make, model, steps, start)
    assert got.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_allclose(got[path], value, 1e-6, 1e-6, err_msg=path)
    return got


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_long_elsewhere(OPTIMIZERS, 2))
def test_every_optimizer(name):
    kind = getattr(optimizers, name)
    check_steps(lambda rate: kind(rate, weight_decay=0.3, global_clipnorm=0.5))


@pytest.mark.parametrize(
    "options",
    [
        {"clipnorm": 0.1},
        {"clipvalue": 0.1},
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
        {"gradient_accumulation_steps": 2, "global_clipnorm": 0.5},
        {"loss_scale_factor": 4.0},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.slow
def test_every_option(options):
    check_steps(lambda rate: optimizers.AdamW(rate, weight_decay=0.3, **options))


@pytest.mark.slow
def test_sgd_with_nesterov_momentum():
    check_steps(lambda rate: optimizers.SGD(rate, 0.9, nesterov=True, weight_decay=0.3))


def test_schedule():
    def make(rate):
        rate = optimizers.schedules.PolynomialDecay(rate, 3, rate / 4)
        return optimizers.AdamW(rate, weight_decay=0.3)

    check_steps(make)


class Falling(optimizers.schedules.LearningRateSchedule):
    """A schedule that is not registered."""

    def __call__(self, step):
        return 0.1 / (1.0 + keras.ops.cast(step, "float32"))

    def get_config(self):
        return {}


def test_schedule_that_is_not_registered():
    model = small()
    optimizer = decayed(optimizers.SGD(Falling()), model)
    assert float(optimizer.learning_rate) == pytest.approx(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["var_list", "var_names"])
def test_weights_without_decay_are_kept(how):
    def make(rate):
        optimizer = optimizers.AdamW(rate, weight_decay=0.3)
        chosen = [v for v in model.weights if v.name != "kernel"]
        names = {"var_list": chosen, "var_names": ["bias", "gamma", "beta"]}
        optimizer.exclude_from_weight_decay(**{how: names[how]})
        return optimizer

    model = small()
    with_exclusion = check_steps(make, model)
    without = check_steps(lambda rate: optimizers.AdamW(rate, weight_decay=0.3))
    for path in ("hidden/kernel", "norm/gamma"):
        changed = np.abs(with_exclusion[path] - without[path]).max() > 1e-3
        assert changed == (path == "norm/gamma")


def test_no_weight_decays():
    model = small()
    optimizer = optimizers.AdamW(RATE, weight_decay=0.3)
    optimizer.exclude_from_weight_decay(var_list=model.trainable_variables)
    optimizer = decayed(optimizer, model)
    before = copied(model.trainable_variables)
    zeros = [0 * each for each in gradients(model, 1)[0]]
    optimizer.apply(zeros, model.trainable_variables)
    assert_same(copied(model.trainable_variables), before, 0)


def test_the_given_optimizer_is_not_changed():
    model = small()
    optimizer = optimizers.AdamW(RATE, use_ema=True)
    before, config = dict(vars(optimizer)), optimizer.get_config()
    new = decayed(optimizer, model)
    new.apply(gradients(model, 1)[0], model.trainable_variables)
    assert vars(optimizer).keys() == before.keys()
    assert optimizer.get_config() == config and not optimizer.built
    assert int(optimizer.iterations) == 0 and int(new.iterations) == 1


def test_the_rate_can_be_changed():
    model = small()
    optimizer = decayed(optimizers.SGD(RATE), model)
    optimizer.learning_rate = 0.4
    before, [step] = copied(model.trainable_variables), gradients(model, 1)
    optimizer.apply(step, model.trainable_variables)
    after = copied(model.trainable_variables)
    assert_same([before[0] - after[0]], [0.4 * 0.25 * copied(step)[0]], 1e-6)
    assert float(optimizer.learning_rate) == pytest.approx(0.4)


def test_frozen_layers():
    model = small()
    optimizer = decayed(optimizers.SGD(RATE), model)
    model.get_layer("hidden").trainable = False
    before, [step] = copied(model.trainable_variables), gradients(model, 1)
    optimizer.apply(step, model.trainable_variables)
    changes = differences(before, copied(model.trainable_variables))
    factors = [0.5, 0.5, 1.0, 1.0]
    expected = [RATE * f * g for f, g in zip(factors, copied(step), strict=True)]
    assert_same(changes, expected, 1e-6)


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("name", TINY)
def test_groups_of_every_family(name):
    changes, expected = EXPECTED[name]
    model = tiny(name, **changes)
    factors = factors_of(layer_decay(optimizers.SGD(0.1), model, 0.5))
    last = max(expected.values())
    group = {path: last + round(np.log2(f)) for path, f in factors.items()}
    assert group.keys() == {v.path for v in model.weights}
    in_order = [group[v.path] for v in model.trainable_variables]
    assert in_order == sorted(in_order)
    assert set(in_order) == set(range(last + 1))
    found = {path.split("/")[0]: i for path, i in group.items()}
    assert found.items() >= expected.items()


@on_last_backend
def test_groups_of_a_model_inside_another():
    backbone = tiny("VisionTransformer", num_classes=0)
    model = keras.Sequential([backbone, layers.Dense(2, name="classes")])
    model.build((None, 16, 16, 3))
    factors = factors_of(layer_decay(optimizers.SGD(0.1), model, 0.5))
    kernels = ["embedding/kernel", "encoder_block_0/mlp/dense_0/kernel"]
    chosen = [factors[path] for path in kernels]
    assert chosen == [0.25, 0.5]
    assert [f for path, f in factors.items() if "classes" in path] == [1.0, 1.0]


@on_last_backend
def test_a_decay_of_one():
    factors = factors_of(layer_decay(optimizers.SGD(0.1), tiny("MLPMixer"), 1))
    assert set(factors.values()) == {1.0}


@pytest.mark.slow
def test_loss_scale_optimizer():
    changes = []
    for wrap in (lambda given, _: given, decayed):
        model = small()
        given = optimizers.LossScaleOptimizer(optimizers.SGD(RATE), initial_scale=8.0)
        compiled(model, wrap(given, model))
        assert model.optimizer.initial_scale == 8.0
        before = copied(model.trainable_variables)
        model.train_on_batch(*batch())
        changes.append(differences(copied(model.trainable_variables), before))
    assert_same(changes[1], [f * c for f, c in zip(EACH, changes[0], strict=True)])


def test_multi_optimizer():
    model = small()
    heads = optimizers.OptimizerMap(optimizers.SGD(RATE))
    heads[".*head.*"] = optimizers.SGD(2 * RATE)
    optimizer = decayed(optimizers.MultiOptimizer(heads), model)
    before, [step] = copied(model.trainable_variables), gradients(model, 1)
    optimizer.apply(step, model.trainable_variables)
    changes = differences(before, copied(model.trainable_variables))
    factors = [0.25, 0.25, 0.5, 0.5, 2.0, 2.0]
    expected = [RATE * f * g for f, g in zip(factors, copied(step), strict=True)]
    assert_same(changes, expected, 1e-6)


@keras.saving.register_keras_serializable("tests")
class HalfSGD(keras.Optimizer):
    """An optimizer of a user."""

    def __init__(self, learning_rate=0.1, share=0.5, **options):
        super().__init__(learning_rate=learning_rate, **options)
        self.share = share

    def update_step(self, gradient, variable, learning_rate):
        self.assign_sub(variable, self.share * learning_rate * gradient)

    def get_config(self):
        return {**super().get_config(), "share": self.share}


@pytest.mark.slow
def test_optimizer_of_a_user():
    check_steps(lambda rate: HalfSGD(rate, share=0.3, weight_decay=0.3))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    rest_long_elsewhere(
        [
            *(("plain", "float32"), ("sam", "float32"), ("gsam", "float32")),
            *(("sam", "mixed_float16"), ("sam", "mixed_bfloat16")),
        ],
        everywhere=2,
    ),
)
def test_fit(kind, mode, dtype):
    """SGD is linear in the rate, so that a step is the plain step times the factor."""
    wrap = {
        "plain": lambda model: model,
        "sam": lambda model: SAM(model, 0.3),
        "gsam": lambda model: GSAM(model, 0.3, 0.1, lr_max=0.2, lr_min=0.0),
    }[kind]
    changes = []
    for by_layer in (False, True):
        model = small(dtype=dtype) if dtype != "float32" else small()
        optimizer = optimizers.SGD(RATE, weight_decay=0.3)
        optimizer = decayed(optimizer, model) if by_layer else optimizer
        trainer = compiled(wrap(model), optimizer, **MODES[mode])
        before = copied(model.trainable_variables)
        trainer.fit(*batch(), epochs=1, batch_size=6, verbose=0)
        after = copied(model.trainable_variables)
        changes.append(differences(after, before))
    expected = [f * change for f, change in zip(EACH, changes[0], strict=True)]
    assert np.abs(expected[0]).max() > 1e-4
    assert_same(changes[1], expected, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "sam"])
def test_a_saved_training_continues(kind, tmp_path):
    x, y = batch()
    trainers = []
    for seed in (1, 2):
        model = small(seed=seed)
        optimizer = optimizers.AdamW(
            optimizers.schedules.PolynomialDecay(0.01, 5), 0.3, use_ema=True
        )
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        trainer = SAM(model, 0.3) if kind == "sam" else model
        trainers.append(compiled(trainer, decayed(optimizer, model), **COMPILED))
    trainer, resumed = trainers
    for _ in range(3):
        trainer.train_on_batch(x, y)
    trainer.save_weights(tmp_path / "trainer.weights.h5")
    trainer.save(tmp_path / "trainer.keras")
    resumed.optimizer.build(resumed.trainable_variables)
    resumed.load_weights(tmp_path / "trainer.weights.h5")
    loaded = keras.saving.load_model(tmp_path / "trainer.keras")
    assert factors_of(loaded.optimizer) == factors_of(trainer.optimizer)
    rates = loaded.optimizer.get_config()["rates"]
    assert [p.split("/")[-2] for p, (_, decays) in rates.items() if not decays] == [
        "hidden",
        "head",
    ]
    for each in (trainer, resumed, loaded):
        for _ in range(2):
            each.train_on_batch(x, y)
    for each in (resumed, loaded):
        assert_same(values(each), values(trainer), 1e-6)
        assert_same(
            copied(each.optimizer.variables), copied(trainer.optimizer.variables)
        )


@long_elsewhere
def test_a_schedule_and_a_decay_by_layer_train_with_sam():
    model = tiny("SwinTransformer")
    rate = kerasvit.warmup_cosine(1e-3, steps=4, warmup_steps=1)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.05)
    optimizer = kerasvit.layer_decay(optimizer, model, 0.75)
    trainer = kerasvit.SAM(model, rho=0.1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(optimizer, loss)
    images = np.random.default_rng(0).normal(size=(4, 16, 16, 3)).astype("float32")
    labels = np.array([0, 1, 2, 0])
    history = trainer.fit(images, labels, batch_size=2, epochs=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()


@on_last_backend
@pytest.mark.parametrize("decay", [0, -0.5, 1.01, "0.75", None, True, float("nan")])
def test_decay_out_of_range(decay):
    with pytest.raises(ValueError, match="`decay` must be .*in \\(0, 1\\]"):
        layer_decay(optimizers.SGD(0.1), small(), decay)


@on_last_backend
def test_model_of_other_layers():
    with pytest.raises(ValueError, match="hidden/kernel.*pass `groups="):
        layer_decay(optimizers.SGD(0.1), small(), 0.5)


@on_last_backend
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["hidden", "nothing"], "'nothing', for the weights .*hidden/kernel"),
        (["hidden", "hidden"], "none before it matches"),
        ("hidden", "list of regular expressions"),
        ([], "list of regular expressions"),
        (["("], "list of regular expressions"),
        (3, "list of regular expressions"),
    ],
)
def test_wrong_groups(groups, message):
    with pytest.raises(ValueError, match=message):
        layer_decay(optimizers.SGD(0.1), small(), 0.5, groups=groups)


@on_last_backend
@pytest.mark.parametrize("optimizer", ["adamw", keras.optimizers.AdamW, None])
def test_what_is_no_optimizer(optimizer):
    with pytest.raises(ValueError, match="`optimizer` must be an optimizer of Keras"):
        layer_decay(optimizer, small(), 0.5)


@on_last_backend
def test_an_optimizer_with_rates_by_layer():
    once = decayed(optimizers.SGD(0.1), small())
    with pytest.raises(ValueError, match="by layer already"):
        decayed(once, small())


def test_weights_of_another_model():
    optimizer = decayed(optimizers.SGD(0.1), small())
    model = keras.Model(image := keras.Input((2,)), layers.Dense(1, name="new")(image))
    with pytest.raises(ValueError, match="Received another: new/kernel"):
        optimizer.build(model.trainable_variables)


@on_last_backend
def test_equal_paths_in_different_groups():
    image = keras.Input((2,))
    first, last = (keras.Model(image, layers.Dense(2, name="a")(image)) for _ in "12")
    model = keras.Model(
        image, last(layers.Dense(2, name="encoder_block_0")(first(image)))
    )
    with pytest.raises(
        ValueError, match="must have different paths. Received: 'a/kernel'"
    ):
        layer_decay(optimizers.SGD(0.1), model, 0.5)
