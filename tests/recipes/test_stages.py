"""Trainings in stages: the head alone, all weights, another image size."""

import json
import re
import types
from pathlib import Path

import finetune
import keras
import numpy as np
import pretrain
import pytest
from command import command_line
from command.command_line import BadInput
from devices import devices
from training import run_folder, stages, validation

import kerasvit
from tests.contract import to_numpy
from tests.once import long_elsewhere, on_last_backend

from . import small_training

SIZES = {"image_size": 28, "num_classes": 4, "name": "tiny"}
VIT = {"patch_size": 7, "width": 16, "depth": 1, "num_heads": 2, "mlp_dim": 16}


@pytest.fixture
def settings(images, tmp_path, monkeypatch):
    """A function of changes that returns the settings of a training of three stages."""
    monkeypatch.chdir(tmp_path)
    images("cat", 10)
    kerasvit.save_pretrained(kerasvit.VisionTransformer(**VIT, **SIZES), "start")

    def changed(**changes):
        options = {"data": str(images("dog", 10)), "weights": "start", "out": "run"}
        options |= {"steps": 12, "batch_size": 4, "learning_rate": 0.01, "rho": 0.05}
        options |= {"probe_epochs": 2, "then_size": (42,), "then_steps": 5}
        return finetune.Config(**{**options, **changes})

    return changed


class Stop(Exception):
    """Ends a training."""


def stopped(config, call):
    """Begins or continues a training, and ends it before a step, by its count."""
    calls = []
    begin = kerasvit.Resume.on_train_batch_begin

    def begin_or_stop(self, batch, logs=None):
        begin(self, batch, logs)
        calls.append(self.folder.name)
        if len(calls) == call:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kerasvit.Resume, "on_train_batch_begin", begin_or_stop)
        with pytest.raises(Stop):
            finetune.finetune(config)
    return calls[-1]


@pytest.mark.long
def test_three_stages_are_trained_and_stated(settings, tmp_path, capsys):
    result = finetune.finetune(settings())
    out = capsys.readouterr().out
    assert re.search(
        r"Stages: head alone, 8 steps, rate 0.01; all weights, 12 steps, rate 0.01; "
        r"all weights at 42 × 42 pixels, 5 steps, rate 0.001\.",
        out,
    )
    for name in ("with SAM head", "with SAM", "with SAM 42"):
        assert f"─ {name} ─" in out
    run = tmp_path / "run"
    logs = {path.name for path in run.glob("log_*.csv")}
    assert logs == {"log_with_SAM.csv", "log_with_SAM_head.csv", "log_with_SAM_42.csv"}
    assert not list(run.glob("with_SAM*"))  # the states of finished trainings
    training_result = result
    assert len(training_result["after_stages"]) == 3
    rounds = sum(stage["rounds"] for stage in result["stages"])
    assert len(training_result["history"]) == rounds
    card = (run / "model" / "README.md").read_text()
    assert "| steps | 25 |" in card and "| image_size | 42 × 42 |" in card
    assert "all weights at 42 × 42 pixels, 5 steps, rate 0.001 |" in card
    model = kerasvit.from_pretrained(run / "model")
    assert model.input_shape == (None, 42, 42, 3)
    assert kerasvit.classify(model, str(next((tmp_path / "images/cat").iterdir())))
    assert run_folder.finished_result(run) == json.loads(json.dumps(result))


@pytest.mark.long
def test_a_training_that_ends_in_each_stage_continues(settings):
    finetune.finetune(settings())
    again = settings(out="again", save_minutes=0.0)
    assert stopped(again, 5) == "with_SAM_head"  # 4 of 8 steps are saved
    assert stopped(again, 4 + 7) == "with_SAM"
    assert stopped(again, 6 + 4) == "with_SAM_42"
    finetune.finetune(again)
    small_training.check_same("run", "again")


@pytest.mark.long
@on_last_backend
def test_both_trainings_of_a_comparison_have_all_stages(settings):
    results = finetune.compare(settings())
    assert [len(result["after_stages"]) for result in results] == [3, 3]
    model = kerasvit.from_pretrained("run/sam/model")
    dataset = finetune.training_data.find_data(settings(), devices.ONE)
    options = finetune.training_data.batch_options(settings(), model)
    found = validation.Evaluation(dataset.test, devices.ONE, **options)
    trainer = keras.Model(model.input, model.output)
    trainer.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    assert found(trainer)["loss"] == pytest.approx(results[1]["loss"], abs=1e-5)


def weights(model):
    return {w.path: to_numpy(w) for w in model.weights}


def plan_of(model, rounds=4, **changes):
    options = {"batch_size": 4, "learning_rate": 1e-3, "warmup_steps": 0}
    options |= {"optimizer": "adamw", "augment": "none", "steps": 10 * rounds}
    config = finetune.Config(weights="x", **{**options, **changes})
    images = types.SimpleNamespace(train=range(40), whole=None)
    return stages.of(config, images, model)


@long_elsewhere
def test_the_head_alone_is_trained_and_statistics_are_frozen():
    variant = kerasvit.AlterNet18CIFAR
    model = variant(num_classes=2, image_size=32)
    before = weights(model)
    plan = plan_of(model, probe_epochs=1)
    for stage, staged in stages.each(devices.ONE, model, plan):
        if stage.head_alone:
            trained = {w.path for w in staged.trainable_weights}
            assert trained == {"head/kernel", "head/bias"}
            trainer = finetune.compiled(devices.ONE, stage, staged)
            images = np.random.default_rng(0).normal(size=(4, 32, 32, 3))
            trainer.fit(images.astype("float32"), np.array([0, 1, 1, 0]), verbose=0)
            after = weights(staged)
    changed = {k for k in before if not np.array_equal(before[k], after[k])}
    assert changed <= trained and changed
    assert len(staged.trainable_weights) == len(model.trainable_weights)
    for path, value in weights(staged).items():
        np.testing.assert_array_equal(value, after[path])


def test_the_head_alone_with_adapters():
    model = kerasvit.VisionTransformer(**VIT, **SIZES)
    kerasvit.add_lora(model, 2)
    trained = [w.path for w in model.trainable_weights]
    plan = plan_of(model, lora=2, probe_epochs=1, then_size=(42,))
    found = {
        stage.suffix: [w.path for w in staged.trainable_weights]
        for stage, staged in stages.each(devices.ONE, model, plan)
    }
    assert sorted(found["head"]) == ["head/bias", "head/kernel"]
    assert found[""] == found["42"] == trained
    assert "adapters and head" in plan[1].text


@on_last_backend
def test_position_tables_are_resized_by_the_kernel_of_the_weights():
    model = kerasvit.VisionTransformer(**VIT, **SIZES)
    *_, (stage, staged) = stages.each(
        devices.ONE, model, plan_of(model, then_size=(42, 28))
    )
    expected = kerasvit.resize(model, (42, 28))
    for a, b in zip(staged.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (stage.suffix, stage.image_size) == ("42x28", (42, 28))


@on_last_backend
def test_steps_and_rates_of_stages():
    model = kerasvit.VisionTransformer(**VIT, **SIZES)
    [main, then] = plan_of(model, then_size=(42,))
    assert (main.steps, then.steps) == (40, 10)
    assert then.config.learning_rate == pytest.approx(1e-4)
    assert (main.number, then.number) == (0, 1)
    [main, then] = plan_of(model, rounds=12, then_size=(42,))
    assert (main.steps, then.steps) == (120, 12)  # DeiT: 30 of 300 epochs
    given = {"then_epochs": 3, "then_learning_rate": 0.5}
    head, main, then = plan_of(model, probe_epochs=2, then_size=(42,), **given)
    assert (head.steps, main.steps, then.steps) == (20, 40, 30)
    assert [each.number for each in (head, main, then)] == [0, 1, 2]
    assert head.config.learning_rate == 1e-3 and then.config.learning_rate == 0.5
    high = plan_of(model, probe_epochs=2, learning_rate=0.1)
    assert [each.config.learning_rate for each in high] == [0.1, 0.1]
    assert len(plan_of(model)) == 1 and plan_of(model, rho=0.1)[0].folder(
        Path("run")
    ) == Path("run/with_SAM")


@long_elsewhere
@pytest.mark.slow
def test_pretraining_at_two_sizes(images, tmp_path, monkeypatch):
    monkeypatch.setitem(pretrain.SMALL, "small_vit", small_training.MODEL)
    monkeypatch.chdir(tmp_path)
    images("cat", 10)
    options = {"data": str(images("dog", 10)), "steps": 10, "epochs": None}
    config = pretrain.Config(**options, batch_size=4, then_size=(42,), out="run")
    result = pretrain.pretrain(config)
    assert "rate 2e-05" in result["stages"][1]["text"]
    assert kerasvit.from_pretrained("run/model").input_shape == (None, 42, 42, 3)


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": None}, "give --weights FILE with --probe-epochs"),
        ({"probe_epochs": None, "probe_learning_rate": 0.1}, "give --probe-epochs N"),
        ({"then_size": None}, "give --then-size PIXELS with --then-steps"),
        ({"probe_epochs": 0}, "`probe_epochs` must be at least 1"),
        ({"then_size": (0,)}, "`then_size` must be at least 1"),
    ],
)
def test_options_that_do_not_fit(settings, changes, message):
    with command_line.checking_input(), pytest.raises(ValueError, match=message):
        command_line.check(settings(**changes))


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((30,), "`then_size`: .* must be a multiple of the patch size, 7"),
        ((28,), "`then_size`: .* Give another one"),
    ],
)
def test_a_size_that_does_not_fit_leaves_no_folder(size, message, settings, tmp_path):
    with pytest.raises(BadInput, match=message):
        finetune.finetune(settings(then_size=size))
    assert not (tmp_path / "run").exists()


@on_last_backend
def test_a_worse_last_stage_is_stated(capsys):
    after = [{"accuracy": 0.8}, {"accuracy": 0.281}]
    result = {"after_stages": after}
    result["stages"] = [{"text": "all weights, 10 steps"}, {"text": "all at 56"}]
    result["images"] = {"test": 100}
    stages.warn_if_worse(result)
    out = " ".join(capsys.readouterr().out.split())
    assert "all at 56, made the model worse: 80.00% of" in out
    stages.warn_if_worse({})
    after[1]["accuracy"] = 0.79  # one image of 100
    stages.warn_if_worse(result)
    assert not capsys.readouterr().out


@on_last_backend
def test_other_stages_decay_at_the_same_shares_of_their_steps():
    model = kerasvit.VisionTransformer(**VIT, **SIZES)
    options = {"schedule": "steps", "decay_at": (10, 30), "no_decay": "position"}
    plan = plan_of(model, probe_epochs=1, then_size=(42,), **options)
    found = [stage.config.decay_at for stage in plan]
    assert found == [(0.25, 0.75), (10, 30), (0.25, 0.75)]
    assert plan[0].config.no_decay is None  # it is for weights that are frozen
