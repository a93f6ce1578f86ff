"""Folders of adapters that PEFT wrote, and damaged ones."""

import json
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit.checkpoints import CheckpointError
from tests.contract import to_numpy
from tests.once import mainly_on_last, on_last_backend

from .peft_folders import CASES, GOLDEN, ROOT

TIMM = kerasvit.Variant(
    "SmallViT",
    kerasvit.VisionTransformer,
    **{"patch_size": 4, "width": 24, "depth": 2, "num_heads": 3, "mlp_dim": 96},
)
SIZES = {"hf_dinov3": (16, 24)}
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."


def base(case, **options):
    name, _ = CASES[case]
    if name == "timm_vit":
        return TIMM(GOLDEN / name / "model.safetensors", image_size=16, **options)
    return kerasvit.from_pretrained(
        GOLDEN / name, image_size=SIZES.get(name), **options
    )


def images(case):
    return np.load(GOLDEN / CASES[case][0] / "input.npy")


def close(model, case):
    expected = np.load(ROOT / case / "outputs.npy")
    np.testing.assert_allclose(
        to_numpy(model(images(case))), expected, atol=1e-5 * np.abs(expected).max()
    )


def copied(case, folder, tensors=None, **changes):
    """A copy of a folder with other tensors, or changes of the settings."""
    shutil.copytree(ROOT / case, folder, dirs_exist_ok=True)
    settings = json.loads((folder / CONFIG).read_text()) | changes
    (folder / CONFIG).write_text(json.dumps(settings))
    if tensors is not None:
        save_file(tensors, folder / TENSORS)
    return folder


def tensors_of(case):
    return load_file(ROOT / case / TENSORS)


def state(model):
    values = {v.path: to_numpy(v).copy() for v in model.weights}
    return values, [v.path for v in model.trainable_weights], model.adapters


def refused(model, folder, message):
    """The folder is an error, which leaves the model as it was."""
    values, trainable, adapters = state(model)
    with pytest.raises(CheckpointError, match=message):
        kerasvit.load_adapters(model, folder)
    after, *rest = state(model)
    assert rest == [trainable, adapters] and values.keys() == after.keys()
    for path in values:
        np.testing.assert_array_equal(values[path], after[path])


@pytest.mark.slow
@pytest.mark.parametrize("case", mainly_on_last(CASES, everywhere=2))
def test_models_compute_what_pefts_merged_model_does(case):
    model = base(case)
    kerasvit.load_adapters(model, ROOT / case)
    close(model, case)
    kerasvit.merge_lora(model)
    close(model, case)


@pytest.mark.slow
@on_last_backend
def test_ranks_alphas_and_biases_of_single_layers(tmp_path):
    model = base("vit_patterns")
    kerasvit.load_adapters(model, ROOT / "vit_patterns" / TENSORS)
    query, first = "encoder_block_1/attention/query", "encoder_block_0/mlp/dense_0"
    adapters = model.adapters
    assert (adapters["rank"], adapters["alpha"]) == (4, 12)  # 6 · √4
    assert adapters["ranks"][query] == 2 and adapters["ranks"][first] == 3
    np.testing.assert_allclose(adapters["alphas"][query], 6 * 2**0.5)
    np.testing.assert_allclose(adapters["alphas"][first], 5 * 3**0.5)
    trained = {v.path for v in model.trainable_weights}
    assert {f"{query}/bias", "encoder_norm/beta", "embedding/bias"} <= trained
    assert not {f"{query}/kernel", "encoder_norm/gamma", "head/kernel"} & trained
    again = base("vit_patterns")
    kerasvit.load_adapters(
        again, kerasvit.save_adapters(model, tmp_path / "adapters.safetensors")
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for other in (again, loaded, keras.models.clone_model(model)):
        assert {v.path for v in other.trainable_weights} == trained
        assert other.adapters == model.adapters
    for other in (again, loaded):
        close(other, "vit_patterns")
    folder = kerasvit.save_pretrained(model, tmp_path / "folder", keep_adapters=True)
    close(kerasvit.from_pretrained(folder), "vit_patterns")


@pytest.mark.slow
def test_a_training_goes_on_with_the_factors_and_the_head():
    model = base("vit")
    kerasvit.load_adapters(model, ROOT / "vit")
    before, trained, adapters = state(model)
    assert adapters["trained"] == ["head"]
    parts = ("lora_kernel_a", "lora_kernel_b", "head/kernel", "head/bias")
    assert len(trained) == 10 and all(path.endswith(parts) for path in trained)
    trainer = kerasvit.SAM(model, 0.05)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.SGD(0.1), loss)
    trainer.fit(images("vit"), np.array([0, 1]), batch_size=2, verbose=0)
    after, *_ = state(model)
    changed = {p for p in before if not np.array_equal(before[p], after[p])}
    assert changed == set(trained)


@on_last_backend
def test_quantised_after_the_merge():
    model = base("vit")
    kerasvit.load_adapters(model, ROOT / "vit")
    kerasvit.merge_lora(model)
    expected = to_numpy(model(images("vit")))
    model.quantize("int8")
    error = np.abs(to_numpy(model(images("vit"))) - expected).max()
    assert error < 0.2 * np.abs(expected).max()


@on_last_backend
def test_names_of_transformers_4(tmp_path):
    def former(name):
        for new, old in {
            "vit.layers.": "vit.encoder.layer.",
            "attention.q_proj": "attention.attention.query",
            "attention.v_proj": "attention.attention.value",
        }.items():
            name = name.replace(new, old)
        return name

    tensors = {former(name): array for name, array in tensors_of("vit").items()}
    folder = copied("vit", tmp_path, tensors, target_modules=["query", "value"])
    model = base("vit")
    kerasvit.load_adapters(model, folder)
    close(model, "vit")


@on_last_backend
def test_names_of_another_library_than_that_of_the_weights(tmp_path):
    tensors = {n: a for n, a in tensors_of("vit").items() if "classifier" not in n}
    model = base("timm")
    alone = copied("vit", tmp_path, tensors, modules_to_save=None)
    kerasvit.load_adapters(model, alone)
    assert len(model.adapters["layers"]) == 4 and not model.adapters["trained"]


@on_last_backend
def test_names_of_timm_in_transformers(tmp_path):
    tensors = {
        name.replace(PREFIX, f"{PREFIX}timm_model."): array
        for name, array in tensors_of("timm").items()
    }
    model = base("timm")
    kerasvit.load_adapters(model, copied("timm", tmp_path, tensors))
    close(model, "timm")


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "adapters of the type 'IA3'.*merge_and_unload"),
        ({"peft_type": "LOHA"}, "adapters of the type 'LOHA'"),
        ({"use_dora": True}, "states use_dora=True, which kerasvit does not know"),
        ({"lora_bias": True}, "lora_bias=True"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"init_lora_weights": "pissa"}, "base weights .init_lora_weights='pissa'"),
        ({"r": 8}, "states the rank 8 for vit.layers.*two saves"),
        ({"r": None}, "a positive r. Received: None"),
        ({"r": 10**400}, "a positive r"),
        ({"lora_alpha": -1}, "a positive lora_alpha. Received: -1"),
        ({"lora_alpha": float("nan")}, "a positive lora_alpha"),
        ({"rank_pattern": {"q_proj": 3}}, "states the rank 3"),
        ({"rank_pattern": {"(": 3}}, "no regular expression"),
        ({"rank_pattern": {"(v|v)*x": 3}}, "could take hours"),
        ({"alpha_pattern": {".*.*.*x": 3}}, "could take hours"),
        ({"alpha_pattern": 3}, "must have an object as alpha_pattern"),
    ],
    ids=str,
)
def test_other_methods_and_wrong_settings(changes, message, tmp_path):
    refused(base("vit"), copied("vit", tmp_path, **changes), message)


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modules_to_save": ["classifier"]}, "states that classifier was trained"),
        ({"bias": "all"}, "states bias='all', that biases were trained"),
        ({"bias": "lora_only"}, "states bias='lora_only'"),
    ],
)
def test_what_the_configuration_states_must_be_there(changes, message, tmp_path):
    factors = {name: x for name, x in tensors_of("vit").items() if ".lora_" in name}
    changes = {"modules_to_save": None, **changes}
    refused(base("vit"), copied("vit", tmp_path, factors, **changes), message)


FIRST, SECOND = (
    f"{PREFIX}vit.layers.0.attention.q_proj.lora_{name}.weight" for name in "AB"
)
PATCHES = f"{PREFIX}vit.embeddings.patch_embeddings.projection.lora_A.weight"


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({SECOND: None}, r"missing in the file.*\n.*query/lora_kernel_b"),
        ({FIRST: None}, "more of the same kind, such as encoder_block_0"),
        ({f"{PREFIX}lora_magnitude": (4,)}, r"unexpected.*(\n.*)*lora_magnitude"),
        ({f"{PREFIX}vit.other.weight": (4, 4)}, r"unexpected.*\n.*vit.other"),
        ({FIRST: (4, 5)}, r"mis-shaped.*(\n.*)*lora_A.weight \(4, 5\)"),
        ({FIRST: (4, 24, 1)}, "mis-shaped"),
        ({f"{PREFIX}classifier.weight": (9, 24)}, "9 classes. Build it with num_cl"),
        ({f"{PREFIX}classifier.weight": ()}, r"mis-shaped.*\n.*classifier.weight \(\)"),
        ({FIRST: ()}, "states the rank 4 for .*, whose tensor is"),
        ({PATCHES: (4, 3, 4, 4)}, "adapts vit.embeddings.*dense layers before"),
    ],
)
def test_tensors_that_do_not_fit(changes, message, tmp_path):
    tensors = tensors_of("vit")
    for name, shape in changes.items():
        tensors[name] = None if shape is None else np.ones(shape, "float32")
    tensors = {name: array for name, array in tensors.items() if array is not None}
    refused(base("vit"), copied("vit", tmp_path, tensors), message)


@on_last_backend
def test_all_tensors_of_another_kind(tmp_path):
    tensors, model = tensors_of("vit"), base("vit")
    changed = tensors | {FIRST: tensors[FIRST] * np.float32("nan")}
    refused(model, copied("vit", tmp_path / "nan", changed), "NaN or infinite")
    deeper = {n.replace("layers.1.", "layers.5."): a for n, a in tensors.items()}
    refused(model, copied("vit", tmp_path / "deeper", deeper), "does not have.*block_5")
    nothing = {n: a for n, a in tensors.items() if "lora" not in n}
    refused(model, copied("vit", tmp_path / "none", nothing), "no adapters")
    alien = {
        f"{PREFIX}roberta.{i}.lora_A.weight": a for i, a in enumerate(tensors.values())
    }
    refused(model, copied("vit", tmp_path / "alien", alien), "not those of a Vision")


@on_last_backend
def test_models_that_do_not_fit(tmp_path):
    small = {"patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 24}
    narrow = kerasvit.VisionTransformer(**small, image_size=16, num_classes=6)
    refused(narrow, ROOT / "vit", r"mis-shaped.*(\n.*)*q_proj.lora_A.weight \(4, 24\)")
    small |= {"width": 24, "depth": 3, "num_heads": 3}
    deep = kerasvit.VisionTransformer(**small, image_size=16, num_classes=6)
    refused(deep, ROOT / "vit", "has 2 more of the same kind.*encoder_block_2")
    refused(base("vit", num_classes=4), ROOT / "vit", "of 6 classes. Build it with")
    refused(base("swin"), ROOT / "vit", "not those of a SwinTransformer")
    model = base("vit")
    kerasvit.load_adapters(model, ROOT / "vit")
    with pytest.raises(ValueError, match="adapters already"):
        kerasvit.load_adapters(model, ROOT / "vit")


@on_last_backend
def test_incomplete_folders(tmp_path):
    model = base("vit")
    refused(model, tmp_path, "adapters.safetensors does not exist")
    shutil.copy(ROOT / "vit" / CONFIG, tmp_path)
    refused(model, tmp_path, "must hold adapter_config.json, and adapter_model.safe")
    refused(model, tmp_path / TENSORS, "must hold adapter_config.json")
    (tmp_path / TENSORS).write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    refused(model, tmp_path, "damaged")
    shutil.copy(ROOT / "vit" / TENSORS, tmp_path)
    (tmp_path / CONFIG).write_text("{")
    refused(model, tmp_path, "is not JSON")
    (tmp_path / CONFIG).unlink()
    refused(model, tmp_path / TENSORS, "must hold adapter_config.json, and adapter_")
    with pytest.raises(CheckpointError, match="adapters of LoRA without a model"):
        kerasvit.from_pretrained(ROOT / "vit")
