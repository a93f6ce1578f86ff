"""Adapters of LoRA: added, trained, merged, saved and loaded."""

import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit.adapters import attach
from kerasvit.checkpoints import CheckpointError, write_tensors
from kerasvit.checkpoints.reader import Reader
from tests.contract import to_numpy
from tests.models.tiny import TINY, tiny
from tests.once import mainly_on_last, on_last_backend, rest_long

X = np.random.default_rng(2).normal(size=(6, 16, 16, 3)).astype("float32")
Y = np.array([0, 1, 2, 0, 1, 2])
PATTERN = {"MLPMixer": "mixing"}  # other families have attention
FAMILIES = [
    name for name in TINY if name not in ("PreActResNet", "ResNeXt", "BigTransfer")
]
QUERY, NORM = "encoder_block_0/attention/query", "encoder_norm/beta"


def arrays(model):
    return {v.path: to_numpy(v).copy() for v in model.weights}


def add(model, rank=4, **options):
    name = model.record["builder"]
    layers = {"layers": PATTERN[name]} if name in PATTERN else {}
    kerasvit.add_lora(model, rank, **layers, **options)
    return model


def random(model):
    """The model with adapters of random values, as after a training."""
    rng = np.random.default_rng(3)
    for variable in model.trainable_weights:
        variable.assign(rng.normal(size=variable.shape, scale=0.1))
    return model


def outputs(model):
    return to_numpy(model(X))


def train(trainer, optimizer=None, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(optimizer or keras.optimizers.SGD(0.1), loss, **options)
    trainer.fit(X, Y, batch_size=6, epochs=2, shuffle=False, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_long(mainly_on_last(FAMILIES), 4))
def test_adapters_of_every_family(name, tmp_path):
    base, model = tiny(name), tiny(name)
    fresh, trainable = list(arrays(base)), [v.path for v in base.trainable_weights]
    expected = outputs(model)
    add(model, alpha=8)
    np.testing.assert_allclose(outputs(model), expected, rtol=0, atol=1e-6)
    before = arrays(model)
    train(kerasvit.SAM(model, 0.05, micro_batches=3))
    after = arrays(model)
    changed = {path for path in after if not np.array_equal(before[path], after[path])}
    assert changed <= {v.path for v in model.trainable_weights}
    assert any(path.endswith("lora_kernel_b") for path in changed)
    assert {p for p in changed if "lora" not in p} <= {
        f"{head}/{part}"
        for head in ("head", "head_distillation")
        for part in ("kernel", "bias")
    }
    trained = outputs(model)
    assert np.abs(trained - expected).max() > 1e-3
    for folder, keep in (("merged", False), ("kept", True)):
        kerasvit.save_pretrained(model, tmp_path / folder, keep_adapters=keep)
        loaded = kerasvit.from_pretrained(tmp_path / folder)
        np.testing.assert_allclose(outputs(loaded), trained, rtol=0, atol=1e-5)
        assert bool(loaded.adapters) == keep
        card = (tmp_path / folder / "README.md").read_text()
        assert ("timm has no adapters" in card) == keep
        assert not (keep and "timm.create_model" in card)
    kerasvit.load_adapters(
        base, kerasvit.save_adapters(model, tmp_path / "adapters.safetensors")
    )
    np.testing.assert_array_equal(outputs(base), trained)
    kerasvit.merge_lora(model)
    np.testing.assert_allclose(outputs(model), trained, rtol=0, atol=1e-5)
    assert list(arrays(model)) == fresh and model.adapters is None
    assert [v.path for v in model.trainable_weights] == trainable


@pytest.mark.slow
def test_files_of_keras_and_clones_keep_adapters(tmp_path):
    model = random(add(tiny("AlterNet"), alpha=2.0))
    expected, trainable = outputs(model), [v.path for v in model.trainable_weights]
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    with_weights = add(tiny("AlterNet"), alpha=2.0)
    with_weights.load_weights(tmp_path / "model.weights.h5")
    for other in (loaded, clone, with_weights):
        np.testing.assert_array_equal(outputs(other), expected)
        assert [v.path for v in other.trainable_weights] == trainable
        assert other.adapters == model.adapters
        kerasvit.merge_lora(other)
        assert len(other.trainable_weights) == len(tiny("AlterNet").trainable_weights)


@pytest.mark.slow
def test_keras_files_without_and_with_adapters_fit_both_models(tmp_path):
    base, model = tiny("VisionTransformer"), random(add(tiny("VisionTransformer")))
    expected = outputs(base)
    base.save_weights(tmp_path / "base.weights.h5")
    model.save_weights(tmp_path / "adapters.weights.h5")
    base.load_weights(tmp_path / "adapters.weights.h5")
    np.testing.assert_allclose(outputs(base), outputs(model), rtol=0, atol=1e-5)
    model.load_weights(tmp_path / "base.weights.h5")
    np.testing.assert_array_equal(outputs(model), expected)
    factor = model.get_layer("encoder_block_0").attention.query.lora_kernel_a
    assert to_numpy(factor).any()  # else both factors had no gradient
    part = keras.Model(model.input, model.get_layer("head").input)
    random(model)
    part.save(tmp_path / "part.keras")
    loaded = keras.saving.load_model(tmp_path / "part.keras")
    np.testing.assert_allclose(outputs(loaded), outputs(part), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_perturbation_has_one_norm_over_adapters_and_head():
    model = random(add(tiny("VisionTransformer")))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    start = {v.path: to_numpy(v).copy() for v in model.trainable_weights}

    def gradients():
        trainer = kerasvit.SAM(model, 0.0)
        before = {v.path: to_numpy(v).copy() for v in model.trainable_weights}
        trainer.compile(keras.optimizers.SGD(1.0), loss)
        trainer.fit(X, Y, batch_size=6, verbose=0)
        return {v.path: before[v.path] - to_numpy(v) for v in model.trainable_weights}

    def assign(values):
        for variable in model.trainable_weights:
            variable.assign(values[variable.path])

    first = gradients()
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in first.values()))
    assign({path: start[path] + 0.3 / norm * first[path] for path in start})
    second = gradients()
    assign(start)
    trainer = kerasvit.SAM(model, 0.3)
    trainer.compile(keras.optimizers.SGD(1.0), loss)
    trainer.fit(X, Y, batch_size=6, verbose=0)
    for variable in model.trainable_weights:
        path = variable.path
        np.testing.assert_allclose(
            to_numpy(variable), start[path] - second[path], rtol=0, atol=2e-5
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    mainly_on_last(["all", "GSAM", "accumulation", "mixed_bfloat16"]),
)
def test_other_trainings_leave_the_base_as_it_is(case):
    if case in ("mixed_bfloat16", "all"):
        keras.config.set_dtype_policy("mixed_bfloat16")
    model = random(add(tiny("VisionTransformer" if case == "all" else "AlterNet")))
    before, optimizer = arrays(model), None
    trained = {v.path for v in model.trainable_weights}
    trainer = kerasvit.SAM(model, 0.05)
    if case == "GSAM":
        trainer = kerasvit.GSAM(model, 0.05, 0.02, 0.4, lr_max=0.1, lr_min=0.0)
    elif case in ("accumulation", "all"):
        optimizer = keras.optimizers.Adam(0.1, gradient_accumulation_steps=2)
    train(trainer, optimizer)
    after = arrays(model)
    changed = {p for p in after if not np.array_equal(before[p], after[p])}
    assert changed == trained if case == "all" else changed <= trained


@pytest.mark.slow
def test_norms_are_trained_if_asked_and_a_file_has_their_statistics(tmp_path):
    model = add(tiny("AlterNet"), train_norms=True)
    assert "final_norm/gamma" in [v.path for v in model.trainable_weights]
    before = arrays(model)
    train(kerasvit.SAM(model, 0.05))
    statistics = to_numpy(model.get_layer("final_norm").moving_mean)
    assert not np.array_equal(statistics, before["final_norm/moving_mean"])
    base = tiny("AlterNet")
    path = tmp_path / "adapters.safetensors"
    kerasvit.load_adapters(base, kerasvit.save_adapters(model, path))
    np.testing.assert_array_equal(outputs(base), outputs(model))
    names = {v.path for v in model.weights if v.trainable or "moving" in v.path}
    assert names == set(kerasvit.checkpoints.AdapterFile(path).names)


@pytest.mark.slow
def test_what_was_frozen_before_is_so_after_the_merge():
    model = tiny("VisionTransformer")
    model.get_layer("encoder_norm").trainable = False
    model.get_layer("encoder_block_0").mlp.dense_0.kernel.trainable = True
    model.get_layer("encoder_block_0").attention.query.bias.trainable = False
    before = [v.path for v in model.trainable_weights]
    clone = keras.models.clone_model(add(model))
    kerasvit.merge_lora(model)
    kerasvit.merge_lora(clone)
    for each in (model, clone):
        assert [v.path for v in each.trainable_weights] == before
        assert not each.get_layer("encoder_norm").trainable


@pytest.mark.slow
def test_predictions_that_were_compiled_before_see_adapters():
    model = tiny("VisionTransformer")
    model.predict(X, verbose=0)
    random(add(model))
    adapted = model.predict(X, verbose=0)
    np.testing.assert_allclose(adapted, outputs(model), rtol=0, atol=1e-5)
    kerasvit.merge_lora(model)
    np.testing.assert_allclose(model.predict(X, verbose=0), adapted, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_layers_of_other_ranks_and_alphas_and_single_variables(tmp_path):
    model, key = tiny("VisionTransformer"), "encoder_block_0/attention/key"
    settings = {"rank": 3, "alpha": 6.0, "ranks": {QUERY: 2}, "alphas": {QUERY: 5.0}}
    paths = {"layers": [QUERY, key], "trained": ["head", f"{QUERY}/bias"]}
    attach(model, settings | paths | {"trained": [*paths["trained"], NORM]})
    random(model)
    attention = model.get_layer("encoder_block_0").attention
    assert (attention.query.lora_rank, attention.query.lora_alpha) == (2, 5)
    assert (attention.key.lora_rank, attention.key.lora_alpha) == (3, 6)
    trained = {v.path for v in model.trainable_weights}
    factors = {f"{p}/lora_kernel_{x}" for p in (QUERY, key) for x in "ab"}
    assert trained == {*factors, "head/kernel", "head/bias", f"{QUERY}/bias", NORM}
    base = tiny("VisionTransformer")
    path = kerasvit.save_adapters(model, tmp_path / "adapters.safetensors")
    kerasvit.load_adapters(base, path)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for other in (base, loaded, keras.models.clone_model(model)):
        assert {v.path for v in other.trainable_weights} == trained
        assert {**other.adapters, "frozen": []} == {**model.adapters, "frozen": []}
    for other in (base, loaded):
        np.testing.assert_array_equal(outputs(other), outputs(model))
    expected, fresh = outputs(model), tiny("VisionTransformer")
    kerasvit.merge_lora(model)
    np.testing.assert_allclose(outputs(model), expected, rtol=0, atol=1e-5)
    assert len(model.trainable_weights) == len(fresh.trainable_weights)


@pytest.mark.slow
@on_last_backend
def test_a_damaged_tensor_leaves_the_model_as_it_was(tmp_path):
    model, base = random(add(tiny("VisionTransformer"))), tiny("VisionTransformer")
    path = kerasvit.save_adapters(model, tmp_path / "adapters.safetensors")
    tensors, metadata = load_file(path), Reader(path).metadata
    for name in tensors:
        save_file(tensors | {name: tensors[name] * np.float32("nan")}, path, metadata)
        before = arrays(base)
        with pytest.raises(CheckpointError, match="NaN or infinite"):
            kerasvit.load_adapters(base, path)
        after = arrays(base)
        assert all(np.array_equal(before[path], after[path]) for path in before)


@pytest.mark.only_on("torch", reason="modules of PyTorch")
def test_pytorch_sees_the_parameters_of_adapters():
    model = tiny("VisionTransformer")
    for change in (add, kerasvit.merge_lora):
        change(model)
        expected = {id(v.value) for v in model.variables}
        assert {id(p) for p in model.parameters()} == expected


@pytest.mark.slow
@on_last_backend
def test_adapters_of_other_sizes_and_classes(tmp_path):
    model = random(add(tiny("MLPMixer")))
    folder = kerasvit.save_pretrained(model, tmp_path, keep_adapters=True)
    larger = kerasvit.resize(model, 32)
    loaded = kerasvit.from_pretrained(folder, image_size=32)
    image = np.random.default_rng(4).normal(size=(2, 32, 32, 3))
    merged = kerasvit.from_pretrained(
        kerasvit.save_pretrained(model, tmp_path / "merged"), image_size=32
    )
    for other in (larger, loaded):
        assert other.adapters["layers"] == model.adapters["layers"]
        np.testing.assert_allclose(
            to_numpy(other(image)), to_numpy(merged(image)), rtol=0, atol=1e-5
        )
    other = kerasvit.from_pretrained(folder, num_classes=7)
    assert other.adapters and not to_numpy(other.get_layer("head").kernel).any()


@on_last_backend
def test_a_folder_saved_again_merged_is_loaded_without_adapters(tmp_path):
    model = random(add(tiny("VisionTransformer")))
    kerasvit.save_pretrained(model, tmp_path, keep_adapters=True)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["kerasvit"]["format_version"] == 2 and "architecture" not in config
    kerasvit.save_pretrained(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architecture"]
    assert kerasvit.from_pretrained(tmp_path).adapters is None


@on_last_backend
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0}, "`rank` must be a whole number ≥ 1"),
        ({"rank": -2}, "`rank` must be a whole number ≥ 1"),
        ({"rank": 2.5}, "`rank` must be a whole number ≥ 1"),
        ({"rank": 17}, "`rank` must be at most 16, .*attention/"),
        ({"alpha": 0}, "`alpha` must be a finite number > 0"),
        ({"layers": "("}, "`layers` must be a regular expression"),
        ({"layers": None}, "`layers` must be a regular expression"),
        ({"layers": "qkv"}, "dense layers are: .*attention/query.*mlp/dense_0"),
        ({"layers": "^head"}, "`layers` must match"),
    ],
)
def test_wrong_arguments(arguments, message):
    model = tiny("VisionTransformer")
    before = [v.path for v in model.trainable_weights]
    with pytest.raises(ValueError, match=message):
        kerasvit.add_lora(model, **arguments)
    assert [v.path for v in model.trainable_weights] == before


@pytest.mark.slow
@on_last_backend
def test_models_that_cannot_have_adapters():
    with pytest.raises(ValueError, match="BigTransfer. It has none"):
        kerasvit.add_lora(tiny("BigTransfer"))
    with pytest.raises(ValueError, match="channel_mixing/dense_0"):
        kerasvit.add_lora(tiny("MLPMixer"))
    model = tiny("VisionTransformer")
    with pytest.raises(ValueError, match="no adapters"):
        kerasvit.merge_lora(model)
    with pytest.raises(ValueError, match="pass trainer.model"):
        kerasvit.add_lora(kerasvit.SAM(model))
    add(model)
    with pytest.raises(ValueError, match="adapters already"):
        add(model)
    quantised = tiny("VisionTransformer")
    quantised.get_layer("encoder_block_0").attention.query.quantize("int8")
    with pytest.raises(ValueError, match="merge them before `quantize`"):
        add(quantised)


@on_last_backend
def test_adapters_are_merged_and_saved_before_kernels_are_quantised(tmp_path):
    model = random(add(tiny("VisionTransformer")))
    model.get_layer("encoder_block_0").attention.query.quantize("int8")
    before = arrays(model)
    with pytest.raises(ValueError, match="quantised. Do it before `quantize`.*query"):
        kerasvit.merge_lora(model)
    with pytest.raises(ValueError, match="cannot be merged or saved"):
        kerasvit.save_adapters(model, tmp_path / "adapters.safetensors")
    after = arrays(model)
    assert all(np.array_equal(before[path], after[path]) for path in before)


@pytest.mark.slow
@on_last_backend
def test_files_that_do_not_fit(tmp_path):
    model = random(add(tiny("VisionTransformer")))
    path = kerasvit.save_adapters(model, tmp_path / "adapters.safetensors")
    cases = {
        "belongs to a VisionTransformer": tiny("DistilledVisionTransformer"),
        "head/kernel.*\n?.*(16, 3).*(16, 5)": tiny("VisionTransformer", num_classes=5),
        "rank 4, larger|no layers|mis-shaped": tiny("VisionTransformer", width=8),
        "belongs to other weights": kerasvit.VisionTransformer(
            **TINY["VisionTransformer"]
        ),
    }
    for message, other in cases.items():
        before = list(arrays(other)), [v.path for v in other.trainable_weights]
        with pytest.raises(CheckpointError):
            kerasvit.load_adapters(other, path)
        assert before == (
            list(arrays(other)),
            [v.path for v in other.trainable_weights],
        ), message
    with pytest.raises(ValueError, match="adapters already"):
        kerasvit.load_adapters(model, path)
    kerasvit.save_pretrained(model, tmp_path / "folder")
    with pytest.raises(CheckpointError, match="no file of adapters"):
        kerasvit.load_adapters(
            tiny("VisionTransformer"), tmp_path / "folder" / "model.safetensors"
        )
    for wrong in ("adapters.bin", "nowhere/adapters.safetensors", 3):
        with pytest.raises(ValueError, match="`path` must be a .safetensors file"):
            kerasvit.save_adapters(
                model, tmp_path / wrong if isinstance(wrong, str) else wrong
            )


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    "change",
    [
        {"rank": 0},
        {"rank": "4"},
        {"ranks": {QUERY: 0}},
        {"alphas": {QUERY: "4"}},
        {"alphas": []},
        {"alpha": float("inf")},
        {"alpha": 10**400},
        {"layers": []},
        {"layers": [3]},
        {"trained": None},
        {"format_version": 9},
    ],
    ids=str,
)
def test_damaged_metadata(change, tmp_path):
    content = {
        **{"rank": 4, "alpha": 4.0, "layers": [QUERY], "trained": ["head"]},
        **{"format_version": 1, "builder": "VisionTransformer", "kernels": {}},
        **change,
    }
    path = tmp_path / "adapters.safetensors"
    with path.open("wb") as file:
        write_tensors(file, {}, {}, {"kerasvit_adapters": json.dumps(content)})
    with pytest.raises(CheckpointError, match="is damaged|newer kerasvit"):
        kerasvit.load_adapters(tiny("VisionTransformer"), path)


@on_last_backend
def test_a_folder_with_an_exchanged_file_of_adapters(tmp_path):
    model = random(add(tiny("VisionTransformer")))
    folder = kerasvit.save_pretrained(model, tmp_path / "a", keep_adapters=True)
    model.get_layer("head").bias.assign([1.0, 2.0, 3.0])
    kerasvit.save_adapters(model, folder / "adapters.safetensors")
    with pytest.raises(CheckpointError, match="does not match the config.json"):
        kerasvit.from_pretrained(folder)
    (folder / "adapters.safetensors").unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        kerasvit.from_pretrained(folder)
