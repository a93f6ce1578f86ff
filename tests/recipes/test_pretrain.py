import dataclasses
import json
from pathlib import Path

import keras
import numpy as np
import pretrain
import pytest
import tensorflow_datasets
from command.command_line import BadInput
from training import optimizers, stages

import kerasvit
from kerasvit.hub.manifest import recipe
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

SMALLEST = {
    "small_vit": {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8},
    "small_mixer": {
        "width": 8,
        "depth": 1,
        "tokens_mlp_dim": 4,
        "channels_mlp_dim": 8,
    },
    "small_bit": {"depths": [1], "width_factor": 0.5},
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """Makes the small models tiny and runs in the test's folder."""
    for name, numbers in SMALLEST.items():
        row = pretrain.SMALL[name]
        numbers = {**row.numbers, **numbers, "image_size": 28}
        monkeypatch.setitem(
            pretrain.SMALL, name, kerasvit.Variant(name, row.builder, **numbers)
        )
    monkeypatch.chdir(tmp_path)


def config(**changes):
    return dataclasses.replace(
        pretrain.Config(epochs=1, batch_size=8, out="run"), **changes
    )


@pytest.fixture
def photos(images):
    images("cat", 10)
    return str(images("dog", 10))


def small_model():
    return pretrain.build(config(), ["a", "b"])


@pytest.mark.parametrize(
    ("model", "dataset"),
    {
        "ViTS8": "imagenet2012",
        "R50ViTL16": "imagenet2012",
        "MixerB8": "imagenet2012",
        "BiTR50x2": "imagenet2012",
        "AlterNet50": "imagenet2012",
        "PreActResNet18": "imagenet2012",
        "AlterNet50CIFAR100": "cifar100",
        "PreActResNet18CIFAR": "cifar100",
        "ResNeXt50CIFAR": "cifar100",
        "ViTTi4CIFARLocal3": "cifar100",
    }.items(),
)
def test_errors_for_models_without_weights_name_a_training_command(model, dataset):
    script, *options = recipe(model).split()[1:]
    assert script == "recipes/pretrain.py"
    found = pretrain.parse(options)
    assert (found.model, found.dataset) == (model, dataset)
    assert found.augment != "none"
    rates = ("dropout", "stochastic_depth")
    getattr(kerasvit, model).check_names([r for r in rates if getattr(found, r)])


@pytest.mark.parametrize(
    ("model", "rho"),
    [("ViTS16", 0.1), ("ViTB32", 0.15), ("MixerB32", 0.35), ("BiTR152x1", 0.02)],
)
def test_radius_is_the_papers_for_the_model(model, rho):
    assert pretrain.radius(pretrain.parse(["vit_sam", "--model", model])) == rho


def test_radii_are_for_models_of_the_zoo():
    assert set(pretrain.RADII) <= set(kerasvit.list_models())


def test_a_given_radius_is_used():
    assert pretrain.radius(pretrain.parse(["vit_sam", "--rho", "0.3"])) == 0.3


@on_last_backend
@pytest.mark.parametrize("name", pretrain.PRESETS)
def test_presets_parse(name):
    assert pretrain.parse([name]) == pretrain.PRESETS[name]


@pytest.mark.parametrize(
    "name", mainly_on_last(["vit", "mixer_sam", "bit", "alternet_cifar100"])
)
def test_learning_rate_rises_and_falls(name):
    preset = pretrain.PRESETS[name]
    optimizer = optimizers.make_optimizer(preset, small_model(), 60_000)
    rate = optimizer._learning_rate
    peak, warmup = preset.learning_rate, preset.warmup_steps
    expected = {0: 0, warmup // 2: peak * (warmup // 2) / warmup, warmup: peak}
    middle = (60_000 + warmup) // 2
    for step, value in {**expected, middle: peak / 2, 60_000: 0}.items():
        assert float(rate(step)) == pytest.approx(value, rel=1e-4, abs=1e-9)


def test_short_trainings_warm_up_for_a_fifth():
    settings = stages.in_rounds(pretrain.PRESETS["vit"], {}, 2, round_steps=50)
    optimizer = optimizers.make_optimizer(settings, small_model(), 100)
    assert float(optimizer._learning_rate(20)) == pytest.approx(3e-3)


@pytest.mark.parametrize("name", mainly_on_last(optimizers.CLASSES))
@pytest.mark.parametrize("decayed", ["kernels", "all"])
def test_weights_decay_by_a_share_of_the_learning_rate(name, decayed):
    model = small_model()
    settings = config(
        optimizer=name, decayed=decayed, weight_decay=0.5, warmup_steps=0, clip=0.0
    )
    optimizer = optimizers.make_optimizer(settings, model, 100)
    before = [np.array(w) + 1 for w in model.get_weights()]
    model.set_weights(before)
    zeros = [keras.ops.zeros(w.shape) for w in model.trainable_variables]
    optimizer.apply(zeros, model.trainable_variables)
    for weight, old in zip(model.trainable_variables, before):
        decays = decayed == "all" or weight.name == "kernel"
        share = 1 - settings.learning_rate * 0.5 if decays else 1
        weight = keras.ops.convert_to_numpy(weight)
        np.testing.assert_allclose(weight, old * share, rtol=1e-6)


def test_sigmoid_loss_is_summed_over_classes():
    logits = np.array([[0.5, -2.0, 1.0], [3.0, 0.0, -1.0]], "float32")
    labels = np.array([[0, 0, 1], [0.3, 0.7, 0]], "float32")
    right = 1 / (1 + np.exp(-logits))
    expected = -labels * np.log(right) - (1 - labels) * np.log(1 - right)
    loss = keras.ops.convert_to_numpy(optimizers.sigmoid(labels, logits))
    np.testing.assert_allclose(loss, expected.sum(axis=1), rtol=1e-5)


def test_sigmoid_begins_at_the_rate_of_a_class():
    model = pretrain.build(config(loss="sigmoid"), list("abcd"))
    logits = model.predict(np.zeros((1, 28, 28, 3)), verbose=0)
    np.testing.assert_allclose(logits, np.log(1 / 4), atol=1e-6)


@long_elsewhere
def test_a_training_leaves_a_model_and_its_results(photos):
    result = pretrain.pretrain(config(data=photos, augment="cifar_mixed", rho=0.1))
    assert result["images"] == {"train": 14, "validation": 2, "test": 4}
    assert result["training"] == "with SAM"
    names = {path.name for path in Path("run").iterdir()}
    assert names == {
        *("config.json", "result.json", "curves.png", "model", "log_with_SAM.csv")
    }
    model = kerasvit.from_pretrained("run/model")
    assert model.record["label_names"] == ["cat", "dog"]


@on_last_backend
def test_tensorflow_datasets_of_a_size_given():
    with tensorflow_datasets.testing.mock_data(num_examples=8):
        pretrain.pretrain(
            config(dataset="cifar100", image_size=(14,), dtype="mixed_bfloat16")
        )
    model = kerasvit.from_pretrained("run/model")
    assert model.output_shape == (None, 100)
    assert model.input_shape == (None, 14, 14, 3)


def killed_in_round(number):
    saved = kerasvit.Resume.on_epoch_end

    def end(self, epoch, logs=None):
        if epoch == number - 1:
            raise KeyboardInterrupt
        saved(self, epoch, logs)

    return end


@on_last_backend  # test_finetune.py tries resuming on all
def test_resumed_training_equals_the_uninterrupted(photos, monkeypatch):
    monkeypatch.setattr(stages, "MIN_ROUND_STEPS", 1)
    settings = config(data=photos, epochs=3, rho=0.1, dropout=0.1, loss="sigmoid")
    whole = pretrain.pretrain(dataclasses.replace(settings, out="whole"))
    with monkeypatch.context() as patch:
        patch.setattr(kerasvit.Resume, "on_epoch_end", killed_in_round(3))
        with pytest.raises(KeyboardInterrupt):
            pretrain.pretrain(settings)
    resumed = pretrain.pretrain(settings)
    models = [kerasvit.from_pretrained(f"{run}/model") for run in ("whole", "run")]
    for a, b in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    losses = [run["loss"] for run in (whole, resumed)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rho": -0.1}, "`rho` must be at least 0. Received: -0.1"),
        ({"rho": None}, "`rho`: the paper has none for small_vit. Give one"),
        ({"loss": "sigmoid", "label_smoothing": 0.1}, "is for the loss softmax"),
        ({"epochs": 0}, "`epochs` must be at least 1"),
        ({"weight_decay": -1.0}, "`weight_decay` must be at least 0"),
        ({"clip": float("inf")}, "`clip` must be at least 0"),
        ({"label_smoothing": 1.0}, "`label_smoothing` must be at least 0 and at most"),
        ({"image_size": (30,)}, "`image_size` must be a multiple of the patch size"),
        ({"model": "small_vitt"}, "`model`: there is no 'small_vitt'. Close: .*vit"),
        ({"model": "small_bit", "dropout": 0.1}, "has no argument dropout"),
        ({"dataset": "mnist_subst"}, "there is no 'mnist_subst'. Close: mnist_subset"),
        ({"dataset": "debian_fashion_mnist"}, "apt install dataset-fashion-mnist"),
        ({"share": 0.001}, "leaves no image of the class '0', which has 100.*0.005 or"),
    ],
)
def test_bad_input_costs_no_training(changes, message, monkeypatch, tmp_path):
    monkeypatch.setattr("kerasvit.data.installed_sets.FASHION", tmp_path / "nowhere")
    with pytest.raises(BadInput, match=message):
        pretrain.pretrain(config(**changes))
    assert not Path("run").exists()


@pytest.mark.long
def test_config_and_card_state_the_share(photos):
    changes = {"share": 0.5, "share_seed": 3, "same_steps": True}
    result = pretrain.pretrain(config(data=photos, validations=1, **changes))
    assert result["images"]["train"] == 8  # 4 of 7 images of each class
    saved = json.loads(Path("run/config.json").read_text())
    assert {name: saved[name] for name in changes} == changes
    card = Path("run/model/README.md").read_text()
    for row in ("| share | 0.5 |", "| share_seed | 3 |", "| same_steps | True |"):
        assert row in card
    assert "| steps | 2 |" in card and "validations" not in card
    pretrain.pretrain(config(data=photos, steps=3, out="other", remat=True))
    card = Path("other/model/README.md").read_text()
    for name in ("share", "epochs", "remat", "dry_run"):
        assert name not in card
    assert "| steps | 3 |" in card


def test_misspelled_preset():
    with pytest.raises(BadInput, match="no preset 'vitsam'. Close: vit_sam"):
        pretrain.parse(["vitsam"])


@on_last_backend
def test_the_small_twins_differ_in_the_units_with_attention_only():
    names = "small_alternet", "small_preact"
    alternet, preact = (
        {(weight.path, weight.shape) for weight in pretrain.SMALL[name]().weights}
        for name in names
    )
    differing = {path.split("/")[0] for path, _ in alternet ^ preact}
    assert differing == {"stage_1_unit_1", "stage_2_unit_1"}
