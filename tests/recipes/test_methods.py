"""`--method`: successors of SAM in both scripts."""

import dataclasses

import finetune
import keras
import pretrain
import pytest
from command import command_line
from devices import devices
from training import stages, trainers

import kerasvit
from tests.models.tiny import TINY
from tests.once import on_last_backend
from tests.recipes.small_training import MODEL, check_same, interrupted, settings

pytestmark = pytest.mark.slow
OPTIONS = {  # and what the trainer has then
    "sam": ({"sam_every": 2}, {"every": 2}),
    "asam": ({"sam_eta": 0.1}, {"eta": 0.1}),
    "gsam": ({"sam_alpha": 0.3, "rho_min": 0.02}, {"alpha": 0.3, "rho_min": 0.02}),
    "looksam": ({"sam_every": 3, "sam_alpha": 0.3}, {"k": 3, "alpha": 0.3}),
    "msam": ({}, {"momentum": 0.9}),
    "samon": ({"sam_every": 2}, {"every": 2}),
    "friendlysam": ({"sam_every": 2}, {"every": 2, "sigma": 1.0}),
}


def model():
    return kerasvit.VisionTransformer(**TINY["VisionTransformer"])


def trained(config, teacher=None):
    config = dataclasses.replace(config, warmup_steps=0)
    stage = stages.Stage(config, 1, 10, teacher=teacher)
    return pretrain.compiled(devices.ONE, stage, model())


@on_last_backend
@pytest.mark.parametrize("method", OPTIONS)
def test_options_reach_the_trainer(method):
    options, expected = OPTIONS[method]
    trainer = trained(pretrain.Config(rho=0.06, method=method, **options))
    assert type(trainer) is trainers.CLASSES[method]
    assert {name: getattr(trainer, name) for name in expected} == expected
    assert trainer.rho == 0.06
    default = trained(pretrain.Config(rho=0.06, method=method))
    assert type(default) is type(trainer)
    assert type(trained(pretrain.Config(method=method))) is kerasvit.SAM


@on_last_backend
def test_the_radius_of_gsam_follows_the_rate():
    config = pretrain.Config(rho=0.6, method="gsam", learning_rate=0.1)
    trainer = trained(config)
    trainer.optimizer.build(trainer.trainable_variables)
    assert trainer.rho_min == pytest.approx(0.1)
    for step, rho in {0: 0.6, 5: 0.35, 10: 0.1}.items():
        trainer.optimizer.iterations.assign(step)
        found = keras.ops.convert_to_numpy(trainer.current_rho())
        assert found == pytest.approx(rho, rel=1e-4)


@on_last_backend
@pytest.mark.parametrize("method", ["sam", "looksam", "gsam"])
def test_a_teacher_is_inside(method):
    teacher = trainers.Teacher(model(), False)
    trainer = trained(pretrain.Config(rho=0.1, method=method), teacher)
    inside = trainer if method == "sam" else trainer.model
    assert type(inside) is kerasvit.DistillationTrainer
    assert type(trainer) is (
        type(inside) if method == "sam" else trainers.CLASSES[method]
    )


@on_last_backend
@pytest.mark.parametrize(
    "options, message",
    [
        (
            ["--rho-min", "0.1", "--rho", "0.2"],
            "`rho_min` is an option of --method gsam",
        ),
        (["--method", "gsam"], "`method`: rho is 0"),
        (["--sam-every", "2"], "`sam_every`: rho is 0"),
        (
            ["--method", "msam", "--rho", "1", "--sam-every", "2"],
            "`sam_every` is an opt",
        ),
        (["vit_sam", "--method", "asam"], "`rho`: the default is for SAM, and asam"),
        (["--method", "gsam", "--rho", "0.1", "--rho-min", "1"], "must be at most rho"),
        (["--method", "looksam", "--rho", "1", "--sam-every", "0"], "at least 1"),
        (["--model-options", "pool"], "arguments of the model's builder"),
        (["--model-options", "dropout=0.1"], "dropout is set by --dropout"),
        (["--model-options", "num_classes=2"], "or by the images"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        command_line.check(pretrain.parse(options))


@on_last_backend
def test_model_options_are_those_of_the_builder():
    options = ["--model-options", "pool=average", "representation_size=16"]
    config = pretrain.parse(options)
    record = pretrain.build(config, ["a", "b"]).record["kwargs"]
    assert (record["pool"], record["representation_size"]) == ("average", 16)
    config = pretrain.parse(["--model-options", "pols=average"])
    with pytest.raises(ValueError, match="no argument pols"):
        pretrain.build(config, ["a", "b"])


@pytest.mark.long
@pytest.mark.parametrize("method", ["looksam", "msam"])
def test_an_interrupted_training_continues(method, tmp_path, monkeypatch):
    """Also their stored vectors; step 12 lies within a cycle of LookSAM."""
    monkeypatch.setitem(pretrain.SMALL, "small_vit", MODEL)
    changes = {"minutes": 0.0, "steps": 14, "epochs": None, "method": method}
    whole = settings(tmp_path / "whole", **changes)
    pretrain.pretrain(whole)
    stopped = dataclasses.replace(whole, out=str(tmp_path / "stopped"))

    def stop():
        raise KeyboardInterrupt

    interrupt = interrupted(12, stop)
    with monkeypatch.context() as patch:
        patch.setattr(kerasvit.Resume, "on_train_batch_begin", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pretrain.pretrain(stopped)
    pretrain.pretrain(stopped)
    check_same(tmp_path / "whole", tmp_path / "stopped")


@on_last_backend
def test_finetuning_with_a_method_and_a_teacher(images, tmp_path):
    images("cat", 10)
    photos = str(images("dog", 10))
    teacher = kerasvit.BigTransfer(**{**TINY["BigTransfer"], "num_classes": 2})
    teacher.save(tmp_path / "teacher.keras")
    config = finetune.Config(
        data=photos,
        steps=2,
        batch_size=4,
        method="looksam",
        teacher=str(tmp_path / "teacher.keras"),
        teacher_input="tf",
        out=str(tmp_path / "run"),
    )
    finetune.finetune(config)
    card = (tmp_path / "run/model/README.md").read_text()
    assert "| method | LOOKSAM, rho 0.05 |" in card
