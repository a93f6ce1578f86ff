"""Quantised models: made, saved and loaded, and what cannot be done with them."""

import json

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints import CheckpointError
from kerasvit.quantization import settings_of
from tests.contract import to_numpy
from tests.models.tiny import TINY, tiny
from tests.once import long_elsewhere, mainly_on_last, on_last_backend, rest_long

X = np.random.default_rng(2).normal(size=(2, 16, 16, 3)).astype("float32")
Y = np.array([0, 1])
QUERY = "encoder_block_0/attention/query"


def outputs(model):
    return np.asarray(to_numpy(model(X)), "float32")


def quantized(name="VisionTransformer", mode="int8", **changes):
    model = tiny(name, **changes)
    model.quantize(mode)
    return model


def dense(model):
    return {
        layer.path: layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.Dense)
    }


FAMILIES = pytest.mark.parametrize("name", rest_long(mainly_on_last(TINY), 4))


@pytest.mark.slow
@FAMILIES
def test_one_call_quantises_all_dense_layers_of_a_fresh_model(name):
    model = tiny(name)
    expected = outputs(model)
    model.quantize("int8")
    assert {each.quantization_mode for each in dense(model).values()} == {"int8"}
    error = np.abs(outputs(model) - expected).max() / np.abs(expected).max()
    assert 0 < error < 0.05


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("name", [*TINY, "SwiGLU"])
def test_a_fresh_model_has_built_all_of_its_layers(name):
    model = tiny("VisionTransformer", mlp="swiglu", pool="attention")
    model = model if name == "SwiGLU" else tiny(name)
    assert [layer.path for layer in model._flatten_layers() if not layer.built] == []


@pytest.mark.slow
@FAMILIES
def test_a_keras_file_keeps_the_quantised_model(name, tmp_path):
    model = quantized(name)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert settings_of(loaded) == settings_of(model)
    np.testing.assert_array_equal(outputs(loaded), outputs(model))


@pytest.mark.slow
@FAMILIES
def test_a_folder_keeps_the_quantised_model(name, tmp_path):
    model = quantized(name)
    kerasvit.save_pretrained(model, tmp_path)
    loaded = kerasvit.from_pretrained(tmp_path)
    assert settings_of(loaded) == settings_of(model)
    np.testing.assert_array_equal(outputs(loaded), outputs(model))


OF_16_BITS = [("VisionTransformer", "int8"), ("VisionTransformer", "int4")]
OF_16_BITS += [(name, "int8") for name in TINY if name != "VisionTransformer"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), rest_long(mainly_on_last(OF_16_BITS), 4))
def test_layers_of_bfloat16(name, mode, tmp_path):
    model = quantized(name, mode, dtype="mixed_bfloat16")
    kerasvit.save_pretrained(model, tmp_path / "folder")
    model.save(tmp_path / "model.keras")
    for loaded in (
        kerasvit.from_pretrained(tmp_path / "folder", dtype="mixed_bfloat16"),
        keras.saving.load_model(tmp_path / "model.keras"),
    ):
        inner = [x for path, x in dense(loaded).items() if not path.startswith("head")]
        assert {x.compute_dtype for x in inner} <= {"bfloat16"}
        np.testing.assert_array_equal(outputs(loaded), outputs(model))


@pytest.mark.slow
def test_a_loaded_model_is_quantised_as_a_fresh_one(tmp_path):
    model = tiny("VisionTransformer")
    kerasvit.save_pretrained(model, tmp_path)
    loaded = kerasvit.from_pretrained(tmp_path)
    for each in (model, loaded):
        each.quantize("int8")
    np.testing.assert_array_equal(outputs(loaded), outputs(model))


@long_elsewhere
def test_a_file_of_a_reloaded_model_is_that_of_the_first(tmp_path):
    model = quantized()
    for i in range(2):
        model.save(tmp_path / f"{i}.keras")
        model = keras.saving.load_model(tmp_path / f"{i}.keras")
    np.testing.assert_array_equal(outputs(model), outputs(quantized()))


@pytest.mark.slow
@on_last_backend
def test_int4_has_half_the_bytes_of_int8_and_is_loaded_again(tmp_path):
    model = quantized(mode="int4")
    scale = dense(model)[QUERY].kernel_scale
    assert tuple(scale.shape) == (1, 16)  # one block of at most 128 inputs
    assert tuple(dense(model)[QUERY]._kernel.shape) == (16, 8)  # two numbers a byte
    kerasvit.save_pretrained(model, tmp_path / "folder")
    model.save(tmp_path / "model.keras")
    for loaded in (
        kerasvit.from_pretrained(tmp_path / "folder"),
        keras.saving.load_model(tmp_path / "model.keras"),
    ):
        np.testing.assert_array_equal(outputs(loaded), outputs(model))


@pytest.mark.slow
@on_last_backend
def test_settings_of_the_configuration_are_kept(tmp_path):
    model = tiny("VisionTransformer")
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=config, filters="mlp/")
    (group,) = settings_of(model)
    layers = [f"encoder_block_0/mlp/dense_{i}" for i in (0, 1)]
    assert group == {"mode": "int8", "inputs": False, "layers": layers}
    kerasvit.save_pretrained(model, tmp_path / "folder")
    model.save(tmp_path / "model.keras")
    for loaded in (
        kerasvit.from_pretrained(tmp_path / "folder"),
        keras.saving.load_model(tmp_path / "model.keras"),
    ):
        assert settings_of(loaded) == settings_of(model)
        np.testing.assert_array_equal(outputs(loaded), outputs(model))


@pytest.mark.slow
@on_last_backend
def test_clones_and_resized_models_are_quantised():
    model = quantized()
    values = {variable.path: variable for variable in model.weights}
    clone = keras.models.clone_model(model)
    for variable in clone.weights:
        variable.assign(values[variable.path])
    assert clone.record == model.record
    for copy in (clone, kerasvit.resize(model, 16)):
        assert {v.path: v.trainable for v in copy.weights} == {
            v.path: v.trainable for v in model.weights
        }
        np.testing.assert_array_equal(outputs(copy), outputs(model))


@pytest.mark.slow
@on_last_backend
def test_the_folder_has_integers_by_variable_path_and_a_card_that_says_so(tmp_path):
    from safetensors.numpy import load_file

    model = quantized()
    kerasvit.save_pretrained(model, tmp_path, dtype="float16")
    tensors = load_file(tmp_path / "model.safetensors")
    assert set(tensors) == {variable.path for variable in model.weights}
    assert tensors[f"{QUERY}/kernel"].dtype == np.int8
    assert tensors[f"{QUERY}/kernel_scale"].dtype == np.float16
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["kerasvit"]["format_version"] == 2
    assert "architecture" not in config  # timm would load the folder
    card = (tmp_path / "README.md").read_text()
    assert "Kernels of dense layers are int8" in card and "timm.create" not in card


@pytest.mark.slow
@on_last_backend
def test_other_classes_get_a_head_of_floats(tmp_path):
    kerasvit.save_pretrained(quantized(), tmp_path)
    model = kerasvit.from_pretrained(tmp_path, num_classes=5)
    assert {p for p, x in dense(model).items() if not x.quantization_mode} == {"head"}
    for layer in model.layers:
        layer.trainable = layer.name == "head"
    model.compile("sgd", "mse")
    before = to_numpy(model.get_layer("head").kernel).copy()
    model.fit(X, np.eye(5)[Y], verbose=0)
    assert np.abs(to_numpy(model.get_layer("head").kernel) - before).max() > 0


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("name", ["VisionTransformer", "BigTransfer"])
def test_the_list_has_all_bytes_and_a_reason_for_each_layer_of_floats(name):
    model = quantized(name)
    rows = kerasvit.weight_formats(model)
    stored = sum(keras.ops.convert_to_numpy(v).nbytes for v in model.weights)
    assert sum(row.bytes for row in rows) == stored
    assert all((row.dtype == "int8") == (row.reason == "") for row in rows)
    reasons = {row.kind: row.reason for row in rows}
    convolution = {"VisionTransformer": "PatchEmbedding"}.get(name, "StandardizedConv")
    assert reasons[convolution] == "Keras quantises no convolutions"
    assert reasons["Dense"] == ""


def features_of_bit():
    return tiny("BigTransfer", num_classes=0)


WRONG = {
    "twice": (lambda m: m.quantize("int4"), "quantised already.*Load or build"),
    "mode": (lambda m: m.quantize("int9"), "Expected one of.*int8"),
    "none": (lambda m: m.quantize("int8", filters="conv"), "`filters` must select"),
    "pattern": (lambda m: m.quantize("int8", filters="("), "`filters` must be a reg"),
    "convolutions": (lambda m: features_of_bit().quantize("int8"), "no dense layers"),
    "lora": (lambda m: kerasvit.add_lora(m), "merge them before `quantize`"),
}


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("case", WRONG)
def test_errors_name_what_to_do(case):
    call, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        call(quantized())


@on_last_backend
def test_modes_that_need_text_are_an_error():
    config = keras.quantizers.GPTQConfig(dataset=["text"], tokenizer=str.split)
    with pytest.raises(ValueError, match="`mode` must be one of int8.*samples of text"):
        tiny("VisionTransformer").quantize("gptq", config)


@on_last_backend
def test_float16_and_adapters_are_errors_that_change_nothing():
    model = tiny("VisionTransformer", dtype="mixed_float16")
    with pytest.raises(ValueError, match="float16"):
        model.quantize("int8")
    adapted = tiny("VisionTransformer")
    kerasvit.add_lora(adapted, 2)
    with pytest.raises(ValueError, match="merge_lora.*before `quantize`"):
        adapted.quantize("int8")
    assert settings_of(model) == settings_of(adapted) == []


def trainers():
    yield lambda model: model
    yield kerasvit.SAM
    yield kerasvit.LookSAM


@pytest.mark.slow
@pytest.mark.parametrize("trainer", mainly_on_last([*trainers()]))
def test_integers_are_not_trained(trainer):
    model = tiny("VisionTransformer")
    trained = trainer(model)
    trained.compile("sgd", "mse")
    trained.fit(X, np.eye(3)[Y], verbose=0)
    model.quantize("int8")
    with pytest.raises(ValueError, match="Train the model before `quantize`"):
        trained.fit(X, np.eye(3)[Y], verbose=0)


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    "options", rest_long([{"filters": "dense_1"}, {}, {"mode": "int4"}])
)
def test_a_quantised_mixer_keeps_its_image_size(options, tmp_path):
    model = tiny("MLPMixer")
    model.quantize(**{"mode": "int8", **options})
    kerasvit.save_pretrained(model, tmp_path)
    loaded = kerasvit.from_pretrained(tmp_path)
    np.testing.assert_array_equal(outputs(loaded), outputs(model))
    for change in (
        lambda: kerasvit.resize(model, 32),
        lambda: kerasvit.from_pretrained(tmp_path, image_size=32),
    ):
        with pytest.raises(ValueError, match="quantised for one grid and .* 8 × 8"):
            change()


DAMAGES = {
    "no list": lambda record: record.update(quantization={"mode": "int8"}),
    "mode": lambda record: record["quantization"][0].update(mode="gptq"),
    "layers": lambda record: record["quantization"][0].update(layers=[1]),
    "size": lambda record: record["quantization"][0].update(block_size=0),
    "unknown": lambda record: record["quantization"][0].update(layers=["none"]),
    "missing": lambda record: record.pop("quantization"),
}


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_configuration_is_an_error(damage, tmp_path):
    kerasvit.save_pretrained(quantized(), tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    DAMAGES[damage](config["kerasvit"])
    file.write_text(json.dumps(config))
    with pytest.raises(CheckpointError):
        kerasvit.from_pretrained(tmp_path)


@on_last_backend
def test_integers_of_another_file_are_an_error(tmp_path):
    from safetensors.numpy import load_file, save_file

    kerasvit.save_pretrained(tiny("VisionTransformer"), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("qkv.weight"))
    save_file({**tensors, name: tensors[name].astype(np.int8)}, file)
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match="holds int8 in .*complete folders"):
        kerasvit.from_pretrained(file, num_heads=2)


@pytest.mark.slow
@on_last_backend
def test_adapters_beside_quantised_layers_are_trained_and_saved(tmp_path):
    model = tiny("VisionTransformer")
    model.quantize("int8", filters="mlp/")
    kerasvit.add_lora(model, 2)
    model.compile("sgd", "mse")
    before = outputs(model)
    for _ in range(2):  # the first step changes B alone, which is 0
        model.fit(X, np.eye(3)[Y], verbose=0)
    assert np.abs(outputs(model) - before).max() > 0
    kerasvit.save_pretrained(model, tmp_path / "folder", keep_adapters=True)
    model.save(tmp_path / "model.keras")
    for loaded in (
        kerasvit.from_pretrained(tmp_path / "folder"),
        keras.saving.load_model(tmp_path / "model.keras"),
    ):
        assert loaded.adapters["layers"] == model.adapters["layers"]
        assert settings_of(loaded) == settings_of(model)
        np.testing.assert_array_equal(outputs(loaded), outputs(model))
