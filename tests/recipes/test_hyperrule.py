"""`finetune.py --rule hyperrule`: the settings that BiT-HyperRule chooses."""

import types

import finetune
import keras
import numpy as np
import pytest
from command import command_line
from finetune import Config
from training import defaults, optimizers

import kerasvit
from kerasvit import data
from tests.once import on_last_backend


@on_last_backend
@pytest.mark.parametrize(
    ("count", "steps", "warmup", "at", "mixup"),
    [
        (19_999, 500, 100, (200, 300, 400), 0.0),
        (20_000, 10_000, 500, (3_000, 6_000, 9_000), 0.1),
        (499_999, 10_000, 500, (3_000, 6_000, 9_000), 0.1),
        (500_000, 20_000, 500, (6_000, 12_000, 18_000), 0.1),
    ],
)
def test_the_number_of_images_chooses_the_schedule(count, steps, warmup, at, mixup):
    assert defaults.schedule(count) == defaults.Schedule(steps, warmup, at, mixup)


@on_last_backend
def test_the_area_chooses_the_sizes():
    assert defaults.sizes(96 * 96 - 1) == (160, 128)
    assert defaults.sizes(96 * 96) == (512, 480)


@on_last_backend
@pytest.mark.parametrize(("side", "size"), [(95, (128,)), (96, (480,))])
def test_the_area_is_the_median_of_the_images(images, side, size):
    images("cat", 12, size=(side, side))
    root = images("dog", 4, size=(200, 200))
    images("dog", 12, size=(side, side))
    dataset = data.from_folder(root)
    config, reasons = defaults.by_rule(Config(rule="hyperrule"), 20, dataset)
    assert config.image_size == size
    assert f"{side * side:,} pixels" in reasons["image_size"]


def settings(**changes):
    images = types.SimpleNamespace(train=range(1_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defaults, "median_area", lambda dataset: 1e5)
        given = Config(rule="hyperrule", weights="bit.npz", **changes)
        return defaults.by_rule(given, 1_000, images)


@on_last_backend
def test_what_is_given_is_kept():
    config, reasons = settings(batch_size=128, image_size=(240,), rho=0.05)
    assert config.learning_rate == 0.00075 and reasons["batch_size"] == "given"
    assert (config.image_size, config.resize, config.rho) == ((240,), 256, 0.05)
    assert settings(learning_rate=0.001)[0].learning_rate == 0.001
    assert settings()[0].learning_rate == 0.003


def test_the_learning_rate_is_that_of_the_code():
    model = kerasvit.BigTransfer(image_size=32, depths=[1], width_factor=0.5)
    optimizer = optimizers.make_optimizer(settings()[0], model, 500)
    assert isinstance(optimizer, keras.optimizers.SGD) and optimizer.momentum == 0.9
    assert not optimizer.weight_decay and not optimizer.global_clipnorm
    rate = optimizer._learning_rate
    for step in (0, 50, 100, 200, 201, 300, 301, 400, 401, 499):
        expected = 0.003 * min(step / 100, 1)
        for limit in (200, 300, 400, 500):  # get_lr of bit_hyperrule.py
            expected /= 10 if limit < step else 1
        np.testing.assert_allclose(float(rate(step)), expected, rtol=1e-5)


@on_last_backend
@pytest.mark.parametrize(
    "given",
    [
        *({"steps": 10}, {"epochs": 3}, {"warmup_steps": 5}, {"schedule": "linear"}),
        *({"optimizer": "adamw"}, {"mixup": 0.2}, {"clip": 5.0}, {"augment": "photo"}),
    ],
)
def test_settings_of_the_rule_cannot_be_given(given, tmp_path):
    [name] = given
    config = Config(rule="hyperrule", weights=str(tmp_path), **given)
    with pytest.raises(ValueError, match=f"HyperRule chooses `{name}` itself"):
        command_line.check(config)


@on_last_backend
@pytest.mark.parametrize("given", ["--clip=1.0", "--schedule=cosine", "--mixup=0"])
def test_options_of_the_rule_cannot_be_given_with_their_defaults(given):
    message = f"Give --rule or {given.split('=')[0]}, not both."
    with pytest.raises(command_line.BadInput, match=message):
        finetune.parse(["--rule", "hyperrule", "--weights", "bit.npz", given])


@on_last_backend
def test_a_preset_sets_what_the_rule_chooses(tmp_path):
    options = ["cifar10", "--rule", "hyperrule", "--weights", str(tmp_path)]
    with pytest.raises(ValueError, match="--steps or the preset that sets it"):
        command_line.check(finetune.parse(options))


@on_last_backend
def test_the_rule_needs_weights():
    with pytest.raises(ValueError, match="give --weights FILE with --rule"):
        command_line.check(Config(rule="hyperrule"))


@pytest.mark.slow
@on_last_backend
def test_a_training_by_the_rule(images, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = defaults.Schedule(10, 2, (4, 6, 8), 0.1)
    monkeypatch.setattr(defaults, "SCHEDULES", {1e9: small})
    monkeypatch.setattr(defaults, "SIZES", ((40, 32), (64, 48)))
    images("cat", 10)
    model = kerasvit.BigTransfer(
        image_size=32, depths=[1], width_factor=0.5, num_classes=3, name="bit"
    )
    kerasvit.save_pretrained(model, "start")
    options = {"data": str(images("dog", 10)), "weights": "start", "out": "run"}
    finetune.finetune(Config(rule="hyperrule", batch_size=4, **options))
    out = " ".join(capsys.readouterr().out.split())
    assert "HyperRule: images of 32 pixels" in out and "10 steps, validated" in out
    record = kerasvit.from_pretrained("run/model").record
    assert record["kwargs"]["image_size"] == [32, 32]
    assert record["preprocessing"]["mode"] == "squash"
    assert "| rule | hyperrule |" in (tmp_path / "run/model/README.md").read_text()
