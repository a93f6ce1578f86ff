"""`finetune.py --lora`: a frozen model with adapters."""

import finetune
import keras
import numpy as np
import pytest
from command import command_line
from command.command_line import BadInput
from devices import devices
from training import optimizers

import kerasvit
from tests.contract import to_numpy
from tests.once import long_elsewhere

from . import small_training

WIDTHS = {"width": 16, "depth": 1, "num_heads": 2, "mlp_dim": 16}


@pytest.fixture
def settings(images, tmp_path, monkeypatch):
    """A function of changes that returns the settings of a training of 12 steps."""
    monkeypatch.chdir(tmp_path)
    images("cat", 10)
    model = kerasvit.VisionTransformer(
        image_size=28, patch_size=7, num_classes=4, name="tiny", **WIDTHS
    )
    kerasvit.save_pretrained(model, "start")

    def changed(**changes):
        options = {"data": str(images("dog", 10)), "weights": "start", "out": "run"}
        options |= {"steps": 12, "batch_size": 4, "lora": 2, "learning_rate": 0.01}
        return finetune.Config(**{**options, **changes})

    return changed


@long_elsewhere
def test_the_base_is_frozen_and_the_model_is_saved_merged(settings, capsys):
    finetune.finetune(settings())
    # Two factors of (16, 2) and (2, 16) for query and value; the head of 2 classes.
    expected = 2 * 2 * 16 * 2 + 16 * 2 + 2
    out = capsys.readouterr().out
    assert f"LoRA of rank 2: {expected} of " in out
    start = kerasvit.from_pretrained("start", num_classes=2)
    model = kerasvit.from_pretrained("run/model")
    assert model.adapters is None
    changed = {
        a.path
        for a, b in zip(start.weights, model.weights, strict=True)
        if not np.array_equal(to_numpy(a), to_numpy(b))
    }
    attention = "encoder_block_0/attention"
    kernels = {f"{attention}/query/kernel", f"{attention}/value/kernel"}
    assert changed == {*kernels, "head/kernel", "head/bias"}
    with open("run/model/README.md") as card:
        text = card.read()
    assert "| lora | 2 |" in text and "| train_norms | False |" in text


@pytest.mark.long
def test_adapters_are_kept_and_a_stopped_training_continues(settings, monkeypatch):
    options = {"lora_layers": "mlp", "train_norms": True, "keep_adapters": True}
    finetune.finetune(settings(**options))

    class Stop(Exception):
        pass

    def stop():
        raise Stop

    with monkeypatch.context() as patch:
        begin = small_training.interrupted(7, stop)
        patch.setattr(kerasvit.Resume, "on_train_batch_begin", begin)
        with pytest.raises(Stop):
            finetune.finetune(settings(**options, out="stopped", save_minutes=0.0))
    finetune.finetune(settings(**options, out="stopped", save_minutes=0.0))
    whole, continued = (
        kerasvit.from_pretrained(f"{name}/model") for name in ("run", "stopped")
    )
    assert whole.adapters["layers"] == [
        "encoder_block_0/mlp/dense_1",
        "encoder_block_0/mlp/dense_0",
    ]
    exact = keras.backend.backend() == "jax"
    for a, b in zip(whole.get_weights(), continued.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=0 if exact else 1e-5)


@long_elsewhere
def test_rematerialised_copies_and_layer_decay_train_adapters():
    keras.utils.set_random_seed(0)
    model = kerasvit.VisionTransformer(
        image_size=8, patch_size=4, num_classes=2, **WIDTHS
    )
    kerasvit.add_lora(model, 2)
    kernel = model.get_layer("head").kernel  # zeros would give adapters no gradient
    kernel.assign(keras.random.normal(kernel.shape, seed=0))
    images = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    trained = {}
    for decay, remat in ((None, False), (0.5, False), (0.5, True)):
        copy = devices.copy_of(model, remat)
        assert copy.adapters == model.adapters
        optimizer = keras.optimizers.SGD(0.1)
        trainer = kerasvit.SAM(copy, 0.05)
        trainer.compile(
            optimizers.with_layer_decay(optimizer, copy, decay),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        trainer.fit(images, np.array([0, 1, 1, 0]), batch_size=4, verbose=0)
        trained[decay, remat] = {w.path: to_numpy(w) for w in copy.trainable_weights}
    before = {w.path: to_numpy(w) for w in model.trainable_weights}
    plain, decayed, again = trained.values()
    factor = "encoder_block_0/attention/value/lora_kernel_b"
    assert abs(plain[factor]).max() > 1e-4
    for path, start in before.items():
        rate = 1.0 if path.startswith("head") else 0.5
        expected = rate * (plain[path] - start)
        np.testing.assert_allclose(decayed[path] - start, expected, atol=1e-6)
        np.testing.assert_allclose(again[path], decayed[path], atol=1e-6)


@pytest.mark.slow
def test_adapters_of_the_weights_are_merged(settings):
    model = kerasvit.from_pretrained("start")
    kerasvit.add_lora(model, 2)
    query = model.get_layer("encoder_block_0").attention.query
    query.lora_kernel_b.assign(keras.ops.ones((2, 16)))
    kerasvit.save_pretrained(model, "adapted", keep_adapters=True)
    built = finetune.build(settings(weights="adapted", lora=None), ["cat", "dog"])
    assert built.adapters is None
    assert len(built.trainable_weights) == len(built.weights)
    [kernel] = [w for w in built.weights if w.path == f"{query.path}/kernel"]
    np.testing.assert_allclose(to_numpy(kernel), query.merged_kernel(), atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora": 0}, "`lora` must be at least 1"),
        ({"weights": None}, "`lora`: adapters need pretrained --weights"),
        ({"lora": None, "lora_layers": "mlp"}, "give --lora RANK with --lora-layers"),
        ({"lora": None, "keep_adapters": True}, "RANK with --keep-adapters"),
    ],
)
def test_options_that_do_not_fit(settings, changes, message):
    with command_line.checking_input(), pytest.raises(ValueError, match=message):
        command_line.check(settings(**changes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora_layers": "qkv"}, "--lora-layers: `layers` must match dense layers of"),
        ({"lora": 17}, "`rank` must be at most 16"),
    ],
)
def test_a_wrong_pattern_or_rank_leaves_no_folder(settings, changes, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        finetune.finetune(settings(**changes))
    assert not (tmp_path / "run").exists()
