"""Options that save memory, and the dry run."""

import dataclasses
import types
from pathlib import Path

import finetune
import keras
import pretrain
import pytest
import tensorflow as tf
from command import command_line
from command.command_line import BadInput
from devices import devices
from training import dry_run, optimizers

import kerasvit
from tests.once import long_elsewhere, on_last_backend
from tests.recipes import small_training

pytestmark = pytest.mark.slow
BACKEND = keras.backend.backend()


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.setitem(pretrain.SMALL, "small_vit", small_training.MODEL)
    monkeypatch.chdir(tmp_path)


def config(**changes):
    return dataclasses.replace(pretrain.Config(epochs=1, out="run"), **changes)


@long_elsewhere
def test_a_dry_run_writes_nothing(capsys, tmp_path):
    settings = config(dry_run=True, accumulate=2, remat=True, rho=0.05)
    assert pretrain.pretrain(settings) is None
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr().out
    assert "100 images in 2 parts on 1 device" in printed
    for row in ("parameters", "compilation", "seconds per step", "peak memory"):
        assert row in printed
    assert "--accumulate 4, --dtype mixed_bfloat16, --batch-size 50" in " ".join(
        printed.replace("│", " ").split()
    )


@pytest.mark.long
def test_a_dry_run_of_a_comparison_measures_both_trainings(capsys, tmp_path):
    finetune.main(finetune.Config(compare=True, dry_run=True))
    assert capsys.readouterr().out.count("peak memory") == 2
    assert not list(tmp_path.iterdir())


@on_last_backend
def test_options_for_less_memory():
    def found(count=1, **changes):
        return dry_run.suggestions(devices.Devices(count), config(**changes))

    rest = ["--remat", "--dtype mixed_bfloat16"]
    assert found() == ["--accumulate 2", *rest, "--batch-size 50"]
    assert found(4) == ["--accumulate 5", *rest, "--batch-size 48"]
    assert found(rho=0.1, perturbation="global") == [*rest, "--batch-size 50"]
    assert found(micro_batches=4)[0] == "--accumulate 5"  # of 20 images
    least = {"batch_size": 1, "remat": True, "dtype": "mixed_bfloat16"}
    assert found(**least) == ["a smaller --model or --image-size"]


@pytest.mark.not_on("jax", reason="JAX has no class for this error")
def test_too_little_memory_names_what_to_change():
    def fail():
        if BACKEND == "torch":
            import torch

            raise torch.OutOfMemoryError("CUDA out of memory.")
        raise tf.errors.ResourceExhaustedError(None, None, "OOM")

    explained = dry_run.explained_out_of_memory(devices.ONE, config())
    message = "too small for a step of 100 images. Give one of these: --accumulate 2, "
    with pytest.raises(BadInput, match=message), explained:
        fail()


@on_last_backend
def test_a_batch_that_parts_do_not_divide():
    with pytest.raises(ValueError, match="1 device cannot share 100 images in 3 equal"):
        devices.ONE.check_batch(100, 3)
    with pytest.raises(ValueError, match="Give --batch-size 96 or 102"):
        devices.Devices(2).check_batch(100, 3)


@on_last_backend
@pytest.mark.parametrize("script", [pretrain, finetune])
def test_parts_are_not_perturbed_globally(script):
    settings = dataclasses.replace(
        script.Config(), accumulate=2, perturbation="global", rho=0.1
    )
    with pytest.raises(ValueError, match="needs the gradient of the whole batch"):
        command_line.check(settings)
    command_line.check(dataclasses.replace(settings, rho=0.0))


@on_last_backend
def test_the_learning_rate_is_that_of_the_update():
    settings = config(warmup_steps=3, accumulate=4)
    model = types.SimpleNamespace(trainable_variables=[])
    plain, parts = (
        optimizers.make_optimizer(each, model, 10)
        for each in (dataclasses.replace(settings, accumulate=1), settings)
    )
    for update in range(10):
        plain._iterations.assign(update)
        for batch in range(4):
            parts._iterations.assign(4 * update + batch)
            assert float(parts.learning_rate) == float(plain.learning_rate)


@pytest.mark.long
@on_last_backend
def test_a_training_continues_with_remat(monkeypatch):
    monkeypatch.setattr(pretrain, "make_optimizer", small_training.optimizer)
    whole = small_training.settings("whole", epochs=2, accumulate=2)
    pretrain.pretrain(whole)

    def stop():
        raise KeyboardInterrupt

    part = dataclasses.replace(whole, out="part", save_minutes=0.0)
    with monkeypatch.context() as patch:
        begin = small_training.interrupted(27, stop)  # in step 14, of two parts
        patch.setattr(kerasvit.Resume, "on_train_batch_begin", begin)
        with pytest.raises(KeyboardInterrupt):
            pretrain.pretrain(part)
    assert sorted(Path("part/with_SAM").iterdir())[-1].name == (
        "state_00001_00000007.npz"
    )
    pretrain.pretrain(dataclasses.replace(part, remat=True))
    small_training.check_same("whole", "part", exact=False)
