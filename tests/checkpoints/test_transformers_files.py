"""Swin and BiT folders written by transformers' `save_pretrained`."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit import CheckpointError
from kerasvit.checkpoints import Checkpoint
from kerasvit.checkpoints.config import Config, Shapes
from kerasvit.checkpoints.sources.transformers_swin import TransformersSwin
from tests.contract import check_key_map, to_numpy
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
PREFIX = {"hf_vit": "vit.", "hf_swin": "swin.", "hf_bit": "bit."}
BUILDER = {"hf_swin": "SwinTransformer", "hf_bit": "BigTransfer"}
both = pytest.mark.parametrize("case", BUILDER)


def expected(case, quantity):
    images = np.load(GOLDEN / case / "input.npy")
    with np.load(GOLDEN / case / "expected.npz") as arrays:
        return images, arrays[f"{quantity}_f64"]


def copied(case, folder, tensors=None, **config):
    """A copy of a folder of transformers with changed tensors or configuration."""
    if tensors is None:
        shutil.copy(GOLDEN / case / "model.safetensors", folder)
    else:
        save_file(tensors, folder / "model.safetensors")
    fields = json.loads((GOLDEN / case / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**fields, **config}))
    return folder


def backbone(case):
    """The tensors as `SwinModel` and `BitModel` write them."""
    return {
        name.removeprefix(PREFIX[case]): array
        for name, array in load_file(GOLDEN / case / "model.safetensors").items()
        if not name.startswith("classifier")
    }


@both
def test_a_folder_is_read(case):
    images, logits = expected(case, "logits")
    size = images.shape[1:3]
    model = kerasvit.from_pretrained(GOLDEN / case, image_size=size)
    assert model.record["builder"] == BUILDER[case]
    assert model.record["origin"] == "transformers"
    assert model.record["label_names"] == [f"kind {i}" for i in range(5)]
    scale = np.abs(logits).max()
    np.testing.assert_allclose(to_numpy(model(images)), logits, atol=1e-5 * scale)


@both
def test_a_model_without_a_head_is_no_vit(case, tmp_path):
    images, features = expected(case, "prelogits")
    folder = copied(case, tmp_path, backbone(case))
    model = kerasvit.from_pretrained(folder, image_size=images.shape[1:3])
    assert model.record["builder"] == BUILDER[case]
    assert model.record["label_names"] is None
    np.testing.assert_allclose(to_numpy(model(images)), features, atol=1e-5)


@both
def test_a_bare_file_gives_the_same_description(case, tmp_path):
    shutil.copy(GOLDEN / case / "model.safetensors", tmp_path)
    whole = Checkpoint(GOLDEN / case).description
    bare = Checkpoint(tmp_path).description
    assert bare.numbers == whole.numbers
    assert bare.arguments == whole.arguments


def test_the_image_size_is_that_of_the_configuration(tmp_path):
    assert Checkpoint(GOLDEN / "hf_swin").description.image_size == (24, 24)
    shutil.copy(GOLDEN / "hf_swin" / "model.safetensors", tmp_path)
    # Without a configuration, the last feature map is one window of 3 × 3 cells.
    assert Checkpoint(tmp_path).description.arguments["image_size"] == (12, 12)


def test_the_image_size_of_a_bit_is_that_of_its_processor(tmp_path):
    copied("hf_bit", tmp_path)
    processor = {
        "size": {"shortest_edge": 48},
        "crop_size": {"height": 40, "width": 40},
        "do_center_crop": True,
        "resample": 3,
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    record = kerasvit.from_pretrained(tmp_path).record
    assert record["kwargs"]["image_size"] == record["preprocessing"]["size"] == [40, 40]
    assert record["preprocessing"]["kernel"] == "bicubic"
    assert record["preprocessing"]["mode"] == "center"
    assert record["preprocessing"]["crop"] == 40 / 48


def test_the_processor_inside_processor_config_comes_first(tmp_path):
    copied("hf_vit", tmp_path)
    size = {"height": 24, "width": 24}
    old = {"image_processor_type": "ViTImageProcessor", "size": size, "resample": 2}
    new = {**old, "resample": 3, "image_mean": [0.1, 0.2, 0.3]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(old))
    whole = tmp_path / "processor_config.json"
    whole.write_text(json.dumps({"processor_class": "CLIPProcessor"}))  # older form
    record = kerasvit.from_pretrained(tmp_path).record["preprocessing"]
    assert record["kernel"] == "bilinear"
    whole.write_text(json.dumps({"image_processor": new}))  # transformers 5
    record = kerasvit.from_pretrained(tmp_path).record["preprocessing"]
    assert record["kernel"] == "bicubic"
    assert list(record["mean"]) == [0.1, 0.2, 0.3]
    nulls = dict.fromkeys(("do_pad", "crop_size", "do_center_crop", "image_std"))
    whole.write_text(json.dumps({"image_processor": {**new, **nulls}}))
    assert kerasvit.from_pretrained(tmp_path).record["preprocessing"] == record
    whole.write_text(json.dumps({"image_processor": {**new, "do_pad": True}}))
    with pytest.raises(CheckpointError, match=r"\Wprocessor_config\.json states"):
        kerasvit.from_pretrained(tmp_path)


def test_several_labels_are_kept_in_saved_folders(tmp_path):
    copied("hf_vit", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["problem_type"] = "multi_label_classification"
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = kerasvit.from_pretrained(tmp_path)
    kerasvit.save_pretrained(model, tmp_path / "saved")
    again = kerasvit.from_pretrained(tmp_path / "saved")
    assert again.record["problem_type"] == "multi_label_classification"
    written = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert written["problem_type"] == "multi_label_classification"
    other = kerasvit.from_pretrained(tmp_path / "saved", num_classes=2)
    assert "problem_type" not in other.record  # of another head
    size = model.input_shape[1:]
    total = sum(p for _, p in kerasvit.classify(again, np.zeros(size, "uint8"), top=99))
    assert abs(total - 1) > 1e-3


def test_tensors_of_other_models_of_transformers_are_dropped(tmp_path):
    tensors = load_file(GOLDEN / "hf_swin" / "model.safetensors")
    table = "encoder.layers.0.blocks.0.attention.self.relative_position_"
    more = {
        f"swin.{table}index": np.zeros((9, 9), "int64"),
        "swin.embeddings.mask_token": np.zeros((1, 1, 12), "float32"),
        "decoder.0.weight": np.zeros((12, 24, 1, 1), "float32"),
    }
    file = Checkpoint(copied("hf_swin", tmp_path, {**tensors, **more}))
    assert file.shapes.keys() == Checkpoint(GOLDEN / "hf_swin").shapes.keys()


@pytest.mark.parametrize(
    "case, key, value",
    [
        ("hf_swin", "hidden_act", "gelu_new"),
        ("hf_swin", "layer_norm_eps", 1e-6),
        ("hf_swin", "use_absolute_embeddings", True),
        ("hf_swin", "window_size", 4),
        ("hf_swin", "embed_dim", 24),
        ("hf_swin", "depths", [2, 4]),
        ("hf_swin", "num_heads", [2, 6]),
        ("hf_swin", "qkv_bias", False),
        ("hf_bit", "layer_type", "bottleneck"),
        ("hf_bit", "hidden_act", "gelu"),
        ("hf_bit", "global_padding", "SAME"),
        ("hf_bit", "embedding_dynamic_padding", True),
        ("hf_bit", "num_groups", 16),
        ("hf_bit", "width_factor", 2),
        ("hf_bit", "hidden_sizes", [128, 256]),
        ("hf_bit", "embedding_size", 64),
        ("hf_bit", "depths", [2, 2]),
        ("hf_bit", "output_stride", 4),
    ],
)
def test_unsupported_configurations_raise(case, key, value, tmp_path):
    copied(case, tmp_path, **{key: value})
    message = rf"{tmp_path}.*config\.json states {key}="
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(tmp_path)


@pytest.mark.parametrize(
    "case, stated, built",
    [
        ("hf_vit", "gelu_python", "gelu"),
        ("hf_vit", "gelu_accurate", "gelu_tanh"),
        ("hf_vit", "gelu_python_tanh", "gelu_tanh"),
        ("hf_swin", "gelu_python", None),  # the only one that Swins have
    ],
)
def test_one_activation_has_many_names(case, stated, built, tmp_path):
    file = Checkpoint(copied(case, tmp_path, hidden_act=stated))
    assert file.description.arguments.get("activation") == built


def test_the_poolers_activation_matters_where_there_is_a_pooler(tmp_path):
    folder = copied("hf_vit", tmp_path, pooler_act="relu")
    assert Checkpoint(folder).description.arguments["representation_size"] is None
    pooler = {"pooler.dense.weight": np.ones((24, 24), "float32")}
    copied("hf_vit", tmp_path, {**backbone("hf_vit"), **pooler}, pooler_act="relu")
    with pytest.raises(CheckpointError, match="states pooler_act='relu'"):
        Checkpoint(folder)


@pytest.mark.parametrize(
    "case, message",
    [
        ("hf_beit", "swaps height and width"),
        ("hf_data2vec", "swaps height and width"),
        ("hf_dinov2", "table of DINOv2 as that of a square"),
    ],
)
def test_tables_that_transformers_reads_as_squares(case, message, tmp_path):
    side = json.loads((GOLDEN / case / "config.json").read_text())["image_size"]
    copied(case, tmp_path, image_size=[side // 2, 2 * side])
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("kind", ["swinv2", "ijepa", "audio-spectrogram-transformer"])
def test_models_with_the_names_of_a_vit_are_named(kind, tmp_path):
    with pytest.raises(CheckpointError, match=f"{kind}, which has.*cannot build it"):
        Checkpoint(copied("hf_vit", tmp_path, model_type=kind))


def test_a_beit_without_tables_and_scales_is_told_by_its_biases(tmp_path):
    left = {
        name: array
        for name, array in load_file(GOLDEN / "hf_beit/model.safetensors").items()
        if "lambda" not in name and "relative" not in name
    }
    found = Checkpoint(copied("hf_beit", tmp_path, left)).description
    assert (found.builder, found.kernel) == ("BEiTTransformer", "bicubic")
    assert found.arguments["position_bias"] == "none"
    assert found.arguments["layer_scale"] is None


@pytest.mark.parametrize("size, fits", [((24, 36), True), ((12, 24), False)])
def test_windows_that_transformers_shifts_differently_raise(size, fits, tmp_path):
    copied("hf_swin", tmp_path, image_size=size)
    if fits:
        assert Checkpoint(tmp_path).description.arguments["window_size"] == 3
    else:
        with pytest.raises(CheckpointError, match="images of 12 × 24"):
            Checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("case", "size", "message"),
    [
        ("hf_swin", (12, 24), "Received: images of 12 × 24.*both sides longer than 12"),
        ("hf_swin", (24, 36), None),
        ("hf_swin", (12, 12), None),
        ("torchvision_swin", (8, 32), "Received: images of 8 × 32.*at least 16"),
        ("hf_data2vec", (64, 64), "both absolute and relative positions"),
        ("hf_data2vec", (None, None), "both absolute and relative positions"),
        ("hf_beit", (64, 32), None),
    ],
)
def test_a_size_at_which_the_library_computes_something_else(case, size, message):
    path = GOLDEN / case / "model.safetensors"
    if message is None:
        kerasvit.from_pretrained(path, image_size=size)
        return
    with pytest.raises(CheckpointError, match=message):
        kerasvit.from_pretrained(path, image_size=size)


@pytest.mark.parametrize("size", [16.0, "ab", [24], {"height": 24}])
def test_an_invalid_size_is_a_value_error(size, tmp_path):
    copied("hf_swin", tmp_path, image_size=size)
    with pytest.raises(CheckpointError):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("changes", [{}, {"num_classes": 0, "qkv_bias": False}])
def test_swin_names_round_trip(changes):
    numbers = {"width": 8, "depths": [2, 1, 1], "num_heads": [1, 2, 2]}
    size = {"window_size": 2, "image_size": 32}
    model = kerasvit.SwinTransformer(**numbers, **size, **changes)
    source = TransformersSwin()
    tensors = check_key_map(source.key_map(model.record["kwargs"]), model)
    assert source.recognises(set(tensors))
    shapes = Shapes({name: tensor.shape for name, tensor in tensors.items()})
    description = source.describe(shapes, Config())
    assert description.numbers == numbers
    arguments = description.arguments
    kwargs = {**model.record["kwargs"], "image_size": (32, 32)}
    assert arguments == {key: kwargs[key] for key in arguments}
    written = {name for name in tensors if ".blocks." not in name}
    assert "encoder.layers.1.downsample.reduction.weight" in written
    assert "encoder.layers.2.downsample.reduction.weight" not in written


@pytest.mark.parametrize(
    "fields", [{"resample": 9}, {"size": {"longest_edge": 64}}, {"do_resize": False}]
)
def test_an_unsupported_processor_names_the_file(fields, tmp_path):
    copied("hf_bit", tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(fields))
    with pytest.raises(
        CheckpointError, match=r"preprocessor_config\.json states.*or re"
    ):
        kerasvit.from_pretrained(tmp_path, image_size=32)


@pytest.mark.parametrize(
    "name", ["EfficientNetImageProcessor", "ConvNextFeatureExtractor"]
)
def test_a_processor_of_another_model_raises(name, tmp_path):
    copied("hf_vit", tmp_path)
    fields = {
        "image_processor_type": name,
        "size": {"height": 24, "width": 24},
        "resample": 3,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(fields))
    with pytest.raises(
        CheckpointError, match=f"ViT, DeiT, Bit.*'{name}'.*`preprocessing="
    ):
        kerasvit.from_pretrained(tmp_path)
    expected = kerasvit.Preprocessing(16, 0.9, "center", "bilinear")
    model = kerasvit.from_pretrained(tmp_path, preprocessing=expected)
    read = model.preprocessing
    assert read == expected


def test_a_processor_without_a_name_is_the_models(tmp_path):
    copied("hf_bit", tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"crop_size": 32}')
    preprocessing = kerasvit.from_pretrained(tmp_path).record["preprocessing"]
    assert (preprocessing["mode"], preprocessing["kernel"], preprocessing["crop"]) == (
        "center",
        "bicubic",
        1 / 7,
    )


@pytest.mark.parametrize("case", ["hf_vit", "hf_swin"])
@pytest.mark.parametrize("size", [0, -24, 10**12, 23])
def test_an_invalid_image_size_names_the_file(case, size, tmp_path):
    copied(case, tmp_path, image_size=size)
    message = f"{re.escape(str(tmp_path))}.*({size}|{size:,})"
    with pytest.raises(CheckpointError, match=message):
        kerasvit.from_pretrained(tmp_path)


def test_a_thousand_classes_without_names_are_not_imagenets(tmp_path):
    head = {
        "classifier.weight": np.ones((1000, 24), "float32"),
        "classifier.bias": np.ones(1000, "float32"),
    }
    names = {str(i): f"LABEL_{i}" for i in range(1000)}
    copied("hf_vit", tmp_path, {**backbone("hf_vit"), **head}, id2label=names)
    model = kerasvit.from_pretrained(tmp_path)
    assert model.output_shape == (None, 1000)
    assert model.record["label_names"] is None
