from pathlib import Path

import keras
import numpy as np
import pretrain
import pytest
from command import command_line
from command.command_line import BadInput
from training import results, step_log, validation
from training.models import freeze

import kerasvit
from tests.once import (
    long_elsewhere,
    mainly_on_last,
    on_last_backend,
    rest_long,
)

from . import small_training
from .small_training import check_same, interrupted

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setitem(pretrain.SMALL, "small_vit", small_training.MODEL)
    monkeypatch.setattr(step_log, "LOG_SECONDS", 1e9)
    monkeypatch.chdir(tmp_path)


def settings(out="run", **changes):
    return small_training.settings(out, **{"epochs": 2, "ema": 0.9, **changes})


@pytest.fixture
def falling(monkeypatch):
    """Validation accuracies that fall after the second round."""
    accuracies = [0.2, 0.5, 0.4, 0.3, 0.1, 0.1]
    logs = validation.Validation.on_epoch_end

    def on_epoch_end(self, epoch, found=None):
        logs(self, epoch, found)
        found.update(val_accuracy=accuracies[epoch], val_loss=1.0)

    monkeypatch.setattr(validation.Validation, "on_epoch_end", on_epoch_end)


def weights(run="run"):
    return kerasvit.from_pretrained(f"{run}/model").get_weights()


def spy(monkeypatch, seen):
    """Adds the trainable weights after each batch to a list."""
    end = step_log.StepLog.on_train_batch_end

    def on_train_batch_end(self, batch, logs=None):
        end(self, batch, logs)
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        seen.append(
            [
                np.array(x)
                for x in map(keras.ops.convert_to_numpy, self.model.trainable_variables)
            ]
        )

    monkeypatch.setattr(step_log.StepLog, "on_train_batch_end", on_train_batch_end)


def longhand(seen, momentum):
    average = seen[0]
    for values in seen[1:]:
        pairs = zip(average, values, strict=True)
        average = [momentum * a + (1 - momentum) * v for a, v in pairs]
    return average


@pytest.mark.parametrize("parts", rest_long([1, 2]))
@long_elsewhere
def test_averages_are_validated_and_kept(monkeypatch, parts):
    seen = []
    with monkeypatch.context() as patch:
        spy(patch, seen)
        patch.setattr(step_log.StepLog, "async_safe", False)
        result = pretrain.pretrain(
            settings("whole", epochs=None, steps=5, accumulate=parts)
        )
    assert len(seen) == 5 * parts
    expected = longhand(seen, 0.9 ** (1 / parts))
    model = kerasvit.from_pretrained("whole/model")
    for weight, value in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(weight), value, rtol=1e-5, atol=1e-6
        )
    # The test images are those of the validation: both saw the averages.
    found = result
    if result["test_is_validation"]:
        assert found["loss"] == pytest.approx(found["history"][-1]["val_loss"])
    assert "| ema | 0.9 |" in Path("whole/model/README.md").read_text()


@long_elsewhere
def test_validation_leaves_the_weights():
    model = small_training.MODEL(num_classes=10)
    trainer = kerasvit.SAM(model, 0.0)
    trainer.compile(
        keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5),
        keras.losses.CategoricalCrossentropy(from_logits=True),
    )
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 28, 28, 3)), np.eye(10)[rng.integers(10, size=8)]
    trainer.train_on_batch(x, y)
    trainer.train_on_batch(x, y)
    before = [np.array(w) for w in model.get_weights()]
    for _ in range(2):
        with validation.averaged(trainer):
            trainer.evaluate(x, y, verbose=0)
            inside = [np.array(w) for w in model.get_weights()]
    assert any(np.any(a != b) for a, b in zip(before, inside, strict=True))
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    trainer.train_on_batch(x, y)


def stopped(at, **options):
    def control_c():
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            kerasvit.Resume, "on_train_batch_begin", interrupted(at, control_c)
        )
        with pytest.raises(KeyboardInterrupt):
            pretrain.pretrain(settings(**options))


@pytest.mark.long
def test_the_best_weights_are_kept_and_survive_kills(falling):
    options = {"epochs": 6, "patience": 2}
    result = pretrain.pretrain(settings("whole", **options))
    found = result
    assert (found["kept_step"], found["steps"]) == (20, 40) and found["stopped_early"]
    assert len(found["history"]) == 4 and not Path("whole/with_SAM").exists()
    card = Path("whole/model/README.md").read_text()
    assert "weights of step 20 of 40, the best on the validation images" in card
    assert "stopped early" in card
    stopped(14, minutes=0, **options)
    stopped(33, **options)
    files = {path.name for path in Path("run/with_SAM").iterdir()}
    states = {"state_00002_00000000.npz", "state_00003_00000000.npz"}
    assert files == {"best_00000.npz", "best_00001.npz", *states}
    with np.load("run/with_SAM/best_00001.npz") as saved:
        best = [saved[f"arr_{i}"] for i in range(len(saved.files))]
    pretrain.pretrain(settings(**options))
    check_same("whole", "run")
    model = kerasvit.from_pretrained("run/model")
    for a, b in zip(model.get_weights(), best, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
@on_last_backend
def test_a_run_that_ended_before_its_result_was_written(falling, monkeypatch):
    options = {"epochs": 6, "patience": 1}
    pretrain.pretrain(settings("whole", **options))
    with monkeypatch.context() as patch:
        patch.setattr(results, "summary", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pretrain.pretrain(settings(**options))
    pretrain.pretrain(settings(**options))
    check_same("whole", "run")


@on_last_backend
@pytest.mark.long
def test_damaged_best_weights(falling):
    stopped(25, epochs=6, keep_best=True)
    Path("run/with_SAM/best_00001.npz").write_bytes(b"")
    with pytest.raises(BadInput, match="best_00001.npz, are damaged"):
        pretrain.pretrain(settings(epochs=6, keep_best=True))


@on_last_backend
def test_the_best_round():
    def history(*pairs):
        return [{"val_accuracy": a, "val_loss": b} for a, b in pairs]

    found = history((0.5, 1.0), (0.6, 2.0), (0.6, 1.5), (0.6, 1.5), (0.1, 0.1))
    assert validation.best_round(found) == 2
    assert not validation.is_exhausted(found, 3) and validation.is_exhausted(found, 2)
    assert not validation.is_exhausted([], 1) and not validation.is_exhausted(
        found, None
    )


def frozen_model(pattern):
    model = kerasvit.VisionTransformer(
        image_size=8,
        patch_size=4,
        num_classes=2,
        width=8,
        depth=2,
        num_heads=2,
        mlp_dim=8,
    )
    return model, freeze(model, pattern)


@pytest.mark.parametrize(
    "pattern", mainly_on_last(["norm", "block_0", "^(?!head)", "attention/query"])
)
def test_frozen_layers_do_not_change(pattern):
    model, text = frozen_model(pattern)
    before = [np.array(w) for w in model.get_weights()]
    trainer = kerasvit.SAM(model, 0.05)
    trainer.compile(
        keras.optimizers.SGD(0.5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 3))
    trainer.fit(x, np.array([0, 1, 1, 0]), epochs=2, batch_size=4, verbose=0)
    trained = {id(w) for w in model.trainable_variables}
    count = sum(np.prod(w.shape) for w in model.trainable_variables)
    assert f"{count:,} of {model.count_params():,} weights are trained" in text
    for weight, old in zip(model.weights, before, strict=True):
        new = keras.ops.convert_to_numpy(weight)
        if id(weight) not in trained:
            np.testing.assert_array_equal(new, old)
    assert 0 < len(trained) < len(model.weights)


def test_frozen_statistics_of_batch_normalisation():
    model = kerasvit.PreActResNet18CIFAR(num_classes=2, image_size=8)
    freeze(model, "^(?!head)")
    before = [np.array(w) for w in model.non_trainable_variables]
    trainer = kerasvit.SAM(model, 0.0)
    trainer.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True))
    trainer.train_on_batch(np.ones((2, 8, 8, 3)), np.array([0, 1]))
    for a, b in zip(before, model.non_trainable_variables, strict=True):
        if not b.path.endswith("seed_generator_state"):
            np.testing.assert_array_equal(a, keras.ops.convert_to_numpy(b))


@on_last_backend
@pytest.mark.parametrize(
    ("pattern", "message"),
    [("conv", "`freeze` matches no layer. Received: 'conv'"), (".", "freezes all")],
)
def test_a_pattern_that_freezes_nothing_or_all(pattern, message):
    with pytest.raises(BadInput, match=message):
        pretrain.pretrain(settings(freeze=pattern))
    assert not Path("run").exists()


@pytest.mark.long
@on_last_backend
def test_a_frozen_training_continues():
    options = {"freeze": "block|embedding", "remat": True}
    pretrain.pretrain(settings("whole", **options))
    stopped(13, minutes=0, **options)
    pretrain.pretrain(settings(**options))
    check_same("whole", "run")
    card = Path("run/model/README.md").read_text()
    assert "block\\|embedding" in card or "block|embedding" in card


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ema": 1.0}, "`ema` must be at least 0"),
        ({"patience": 0}, "`patience` must be at least 1"),
        ({"freeze": "("}, "`freeze` must be a regular expression"),
    ],
)
def test_numbers_and_patterns(changes, message):
    with pytest.raises(ValueError, match=message):
        command_line.check(settings(**changes))
