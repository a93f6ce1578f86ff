import dataclasses

import finetune
import keras
import numpy as np
import pretrain
import pytest
from command import command_line
from command.command_line import BadInput
from training import optimizers

import kerasvit
from tests.once import mainly_on_last, on_last_backend, rest_long_elsewhere

WIDTHS = {"width": 8, "depth": 2, "num_heads": 2, "mlp_dim": 8}
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(4, 8, 8, 3)).astype("float32")
LABELS = np.array([0, 1, 1, 0])


def model():
    keras.utils.set_random_seed(0)
    made = kerasvit.VisionTransformer(
        image_size=8, patch_size=4, num_classes=2, **WIDTHS
    )
    kernel = made.get_layer("head").kernel  # zeros would give no other gradients
    kernel.assign(keras.random.normal(kernel.shape, seed=0))
    return made


def settings(**changes):
    base = finetune.Config(optimizer="sgd", learning_rate=0.1, warmup_steps=0)
    return dataclasses.replace(base, **changes)


def numpy(weights):
    return [keras.ops.convert_to_numpy(weight).copy() for weight in weights]


def trained(config, steps=3):
    """Weights before and after some steps of SAM, and the mean loss."""
    each = model()
    trainer = kerasvit.SAM(each, config.rho or 0.0)
    trainer.compile(
        optimizers.make_optimizer(config, each, 10),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    before = numpy(each.trainable_variables)
    parts = steps * config.accumulate
    x, y = np.tile(IMAGES, (parts, 1, 1, 1)), np.tile(LABELS, parts)
    logs = trainer.fit(x, y, batch_size=4, shuffle=False, verbose=0).history
    return before, numpy(each.trainable_variables), logs["loss"][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", optimizers.CLASSES)
def test_each_optimizer_is_made_without_weight_decay(name):
    config = settings(optimizer=name, learning_rate=1e-3, weight_decay=0.0)
    made = optimizers.make_optimizer(config, model(), 10)
    assert not made.weight_decay
    assert not getattr(made, "adam_weight_decay", None)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_long_elsewhere(optimizers.CLASSES, 0))
def test_each_optimizer_trains_with_all_other_options(name):
    options = {"rho": 0.05, "layer_decay": 0.5, "accumulate": 2, "weight_decay": 0.1}
    config = settings(optimizer=name, learning_rate=1e-3, no_decay="bias$", **options)
    before, after, loss = trained(config)
    assert np.isfinite(loss)
    for old, new in zip(before, after, strict=True):
        assert np.isfinite(new).all() and np.any(new != old)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_defaults_of_fine_tuning_are_those_of_earlier_versions(name):
    config = settings(optimizer=name, warmup_steps=1, rho=0.05)
    rate = kerasvit.warmup_cosine(0.1, steps=10, warmup_steps=1)
    classes = {"adamw": keras.optimizers.AdamW, "sgd": keras.optimizers.SGD}
    momentum = {"momentum": 0.9} if name == "sgd" else {}
    old = classes[name](learning_rate=rate, global_clipnorm=1.0, **momentum)
    new = optimizers.make_optimizer(config, model(), 10)
    for each in (old, new):
        each.name = ""
    assert new.get_config() == old.get_config()
    assert all(map(new._use_weight_decay, model().trainable_variables))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_weights_that_do_not_decay(name):
    config = settings(
        optimizer=name, weight_decay=0.5, decayed="kernels", no_decay="query|head"
    )
    each = model()
    optimizer = optimizers.make_optimizer(config, each, 100)
    before = numpy(each.trainable_variables)
    zeros = [keras.ops.zeros(w.shape) for w in each.trainable_variables]
    optimizer.apply(zeros, each.trainable_variables)
    for weight, old in zip(each.trainable_variables, before, strict=True):
        decays = weight.name == "kernel" and not {*weight.path.split("/")} & {
            "query",
            "head",
        }
        expected = old * (1 - 0.1 * 0.5) if decays else old
        np.testing.assert_allclose(numpy([weight])[0], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@on_last_backend
def test_adapters_decay_as_kernels():
    each = model()
    kerasvit.add_lora(each, 2)
    config = settings(weight_decay=0.5, decayed="kernels")
    optimizer = optimizers.make_optimizer(config, each, 100)
    decayed = [
        w.name for w in each.trainable_variables if optimizer._use_weight_decay(w)
    ]
    assert {*decayed} == {"kernel", "lora_kernel_a", "lora_kernel_b"}


def rates(steps=100, **changes):
    made = optimizers.schedule(settings(**changes), steps)
    made = type(made).from_config(made.get_config())
    return [float(made(step)) for step in range(steps + 5)]


def hyper_rule(step):
    """google-research/big_transfer, bit_hyperrule.py, for a rate of 0.1."""
    if step < 10:
        return 0.1 * step / 10
    return 0.1 / 10 ** sum(at < step for at in (40, 60, 80))


def test_steps_are_those_of_bit():
    expected = [hyper_rule(step) for step in range(105)]
    at = {"schedule": "steps", "warmup_steps": 10}
    np.testing.assert_allclose(rates(decay_at=(40, 60, 80), **at), expected, rtol=1e-5)
    np.testing.assert_allclose(
        rates(decay_at=(0.4, 0.6, 0.8), **at), expected, rtol=1e-5
    )


@on_last_backend
def test_the_factor_of_steps():
    found = rates(schedule="steps", decay_at=(0.3, 0.6), decay_factor=0.2)
    expected = [0.1] * 31 + [0.02] * 30 + [0.004] * 44
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_shares_of_few_steps_are_steps():
    for steps in (1, 2, 10):
        found = rates(steps, schedule="steps", decay_at=(0.33, 0.95))
        assert (found[0], found[-1]) == pytest.approx((0.1, 0.001))


@pytest.mark.slow
@pytest.mark.parametrize("name", mainly_on_last(["cosine", "linear"]))
def test_schedules_that_begin_and_end_above_zero(name):
    found = rates(schedule=name, warmup_steps=20, warmup_from=0.01, final_rate=0.1)
    rising = np.linspace(0.001, 0.1, 21)
    part = np.arange(1, 81) / 80
    falling = {"linear": 1 - part, "cosine": (1 + np.cos(np.pi * part)) / 2}[name]
    expected = [*rising, *(0.01 + 0.09 * falling), *[0.01] * 4]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"momentum": 0.9, "optimizer": "adamw"}, "`momentum`: give --optimizer sgd"),
        ({"momentum": 1.0}, "`momentum` must be at least 0 and at most 0.9999"),
        ({"schedule": "steps"}, "`decay_at`: --schedule steps needs increasing"),
        ({"schedule": "steps", "decay_at": (3.5,)}, r"Received: \(3.5,\)"),
        ({"schedule": "steps", "decay_at": (0.5, 7)}, "`decay_at`: --schedule steps"),
        ({"schedule": "steps", "decay_at": (0.5, 0.5)}, "`decay_at`: --schedule steps"),
        ({"decay_at": (0.5,)}, "`decay_at`: give --schedule steps with --decay-at"),
        ({"decay_factor": 0.2}, "`decay_factor`: give --schedule steps"),
        ({"same_steps": True}, "`same_steps`: give --share SHARE with --same-steps"),
        (
            {"schedule": "steps", "decay_at": (0.5,), "final_rate": 0.1},
            "`final_rate` is for the schedules cosine and linear",
        ),
        ({"no_decay": "("}, "`no_decay` must be a regular expression"),
    ],
)
def test_settings_that_contradict(changes, message):
    with pytest.raises(ValueError, match=message):
        command_line.check(settings(**changes))


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"no_decay": "conv"},
            "`no_decay` matches no trained weight. Received: 'conv'",
        ),
        ({"no_decay": "bias"}, "`no_decay`: nothing decays. Give --weight-decay, too"),
        (
            {"schedule": "steps", "decay_at": (1000,)},
            "`decay_at`: the training has 100 steps. Received: 1,000",
        ),
    ],
)
def test_settings_that_do_not_fit_to_the_model(changes, message):
    with pytest.raises(ValueError, match=message):
        optimizers.make_optimizer(settings(**changes), model(), 100)


@pytest.mark.slow
@on_last_backend
def test_a_wrong_pattern_is_found_before_the_training(tmp_path):
    out = tmp_path / "run"
    config = dataclasses.replace(
        pretrain.PRESETS["mnist"], no_decay="conv", epochs=1, out=str(out)
    )
    with pytest.raises(BadInput, match="`no_decay` matches no trained weight"):
        pretrain.pretrain(config)
    assert not out.exists()
