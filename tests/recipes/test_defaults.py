import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from finetune import PRESETS, Config
from training import defaults

from tests.once import on_last_backend

pytestmark = on_last_backend


def model(size=22_000_000, weight=0.017):
    """The attributes of a model that `resolve` reads."""
    head = SimpleNamespace(name="head", weights=[np.full((2, 2), 9.0)])
    kernels = [np.full((2, 2), weight, "float32"), np.full((2, 2), -weight, "float32")]
    return SimpleNamespace(
        count_params=lambda: size,
        trainable_variables=[*kernels, np.full(3, 9.0), *head.weights],
        layers=[head],
    )


def resolved(count=400, images="photographs", size=22_000_000, **settings):
    return defaults.resolve(Config(**settings), count, images, model(size))


def test_pretrained_weights_get_a_linear_head_and_a_small_rate():
    config, reasons = resolved(weights="vit.safetensors", model="ViTS14")
    assert config.linear_head and config.optimizer == "adamw"
    assert config.learning_rate == 1e-5 and config.augment == "photo"
    assert config.rho == 0.002
    assert "photographs" in reasons["augment"]
    assert None not in (config.batch_size, config.steps, config.warmup_steps)


def test_a_probe_begins_with_the_linear_head_unless_zeros_are_asked_for():
    assert resolved(weights="vit.npz", probe_epochs=1)[0].linear_head
    given = resolved(weights="vit.npz", probe_epochs=1, linear_head=False)[0]
    assert not given.linear_head


def test_the_larger_the_model_the_smaller_the_rate():
    sizes = [1_000, 100_000, 22_000_000, 88_000_000, 10**12]
    rates = [resolved(size=n, weights="vit.npz")[0].learning_rate for n in sizes]
    assert rates == [1.5e-3, 1.5e-4, 1e-5, 5.1e-6, 1e-6]


def test_the_rate_is_a_share_of_the_weights():
    given = Config(weights="vit.npz")
    for weight, rate in ((0.017, 1e-5), (0.034, 2e-5), (10, 2e-3), (0, 1e-6)):
        config, _ = defaults.resolve(given, 400, "photographs", model(weight=weight))
        assert config.learning_rate == rate


def test_adapters_have_a_rate_of_their_own():
    config, reasons = resolved(weights="vit.npz", lora=8)
    assert config.learning_rate == 2e-3 and "adapters" in reasons["learning_rate"]
    assert (
        resolved(weights="vit.npz", lora=8, learning_rate=0.1)[0].learning_rate == 0.1
    )


def test_drawings_are_not_flipped():
    assert resolved(images="drawings", weights="vit.npz")[0].augment == "shift"


def test_the_small_model_learns_digits_as_before():
    config, _ = resolved(1259, "drawings")
    measured = {
        "batch_size": 64,
        "optimizer": "sgd",
        "learning_rate": 0.2,
        "linear_head": False,
        "steps": 480,
        "warmup_steps": 50,
        "augment": "shift",
        "rho": 0.05,
    }
    assert {name: getattr(config, name) for name in measured} == measured


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "digits"])
def test_presets_of_the_paper_keep_its_settings(preset):
    given = dataclasses.replace(PRESETS[preset], weights="vit.npz")
    config, reasons = defaults.resolve(given, 3_000, "photographs", model())
    steps = given.steps or given.epochs * round(3_000 / given.batch_size)
    assert config == dataclasses.replace(given, steps=steps)
    assert reasons["learning_rate"] == "given"


def test_given_settings_are_kept():
    given = {"learning_rate": 0.1, "batch_size": 7, "steps": 3, "augment": "none"}
    config, reasons = resolved(weights="vit.npz", linear_head=False, **given)
    assert {name: getattr(config, name) for name in given} == given
    assert not config.linear_head
    assert resolved(weights="vit.npz", rho=0.0)[1]["rho"] == "without SAM"
    assert all(reasons[name] == "given" for name in given)


def test_another_optimizer_needs_its_rate():
    wrong = {"weights": "vit.npz", "optimizer": "sgd"}, {"optimizer": "lion"}
    for given, default in zip(wrong, ("adamw", "sgd"), strict=True):
        message = f"{given['optimizer']} needs a --learning-rate.*for {default}"
        with pytest.raises(ValueError, match=message):  # before any image is read
            Config(**given).check()
    Config(optimizer="lion", learning_rate=1e-4).check()
    config, _ = resolved(weights="vit.npz", optimizer="sgd", learning_rate=0.01)
    assert config.learning_rate == 0.01


def test_more_images_take_more_steps():
    counts = [100, 400, 501, 2_001, 10_001, 50_001, 100_000]
    steps = [resolved(count, weights="vit.npz")[0].steps for count in counts]
    assert steps == sorted(steps) and steps[0] >= 60


def test_small_models_take_more_steps():
    steps = [
        resolved(size=n, weights="vit.npz")[0].steps for n in (1e5, 5e6, 22e6, 9e8)
    ]
    assert steps == [350, 147, 70, 70]


def test_passes_become_steps():
    config, reasons = resolved(400, weights="vit.npz", epochs=3, batch_size=100)
    assert config.steps == 12
    assert reasons["steps"] == "given: 3 × 400 images"


@pytest.mark.parametrize(
    ("devices", "parts", "size", "whose"),
    [
        *[(1, 1, 32, ""), (8, 1, 32, ""), (3, 1, 33, "3 devices"), (2, 4, 32, "")],
        *[(5, 1, 30, "5 devices"), (24, 1, 24, "24 devices")],
        *[(100, 1, 100, "100 devices"), (2, 5, 30, "2 × 5 parts")],
        (1, 3, 33, "1 × 3 parts"),
    ],
)
def test_devices_share_the_default_batch_equally(devices, parts, size, whose):
    given = Config(weights="vit.npz", accumulate=parts)
    found, reasons = defaults.resolve(given, 400, "photographs", model(), devices)
    assert found.batch_size == size
    why = f"; not 32, which {whose} cannot share equally" if whose else "same images"
    assert reasons["batch_size"].endswith(why)
    assert found.steps == max(60, round(2240 / size))


def test_a_given_batch_stays():
    given = Config(weights="vit.npz", batch_size=32)
    found, reasons = defaults.resolve(given, 400, "photographs", model(), 3)
    assert found.batch_size == 32 and reasons["batch_size"] == "given"
