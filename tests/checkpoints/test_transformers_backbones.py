"""transformers' DINOv2, SigLIP, CLIP, MAE and BEiT; the logits are in tests/golden."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit import CheckpointError
from kerasvit.checkpoints import Checkpoint
from kerasvit.checkpoints.sources.transformers_beit import TransformersBEiT
from kerasvit.checkpoints.sources.transformers_clip import TransformersCLIP
from kerasvit.checkpoints.sources.transformers_dinov2 import TransformersDinov2
from kerasvit.checkpoints.sources.transformers_dinov3 import TransformersDinov3
from tests.contract import check_key_map, to_numpy
from tests.once import on_last_backend

pytestmark = [pytest.mark.slow, on_last_backend]

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
VIT = {"patch_size": 4, "width": 12, "depth": 2, "num_heads": 3, "mlp_dim": 20}


def tensors_of(case):
    return load_file(GOLDEN / case / "model.safetensors")


def config_of(case):
    return json.loads((GOLDEN / case / "config.json").read_text())


def folder(path, tensors, config):
    save_file(
        {name: np.ascontiguousarray(array) for name, array in tensors.items()},
        path / "model.safetensors",
    )
    (path / "config.json").write_text(json.dumps(config))
    return path


def features(model):
    shape = (2, *model.input_shape[1:])
    return to_numpy(
        model(np.random.default_rng(0).normal(size=shape).astype("float32"))
    )


def test_the_head_of_a_clip_is_its_projection_without_bias():
    model = kerasvit.from_pretrained(GOLDEN / "hf_clip")
    kwargs = model.record["kwargs"]
    assert (kwargs["num_classes"], kwargs["pool"]) == (10, "token")
    assert kwargs["pre_norm"] and not kwargs["patch_bias"]
    assert (kwargs["activation"], kwargs["epsilon"]) == ("quick_gelu", 1e-5)
    assert not to_numpy(model.get_layer("head").bias).any()
    transform = model.record["preprocessing"]
    assert transform["mode"] == "center" and transform["mean"][0] == 0.48145466


def test_the_tower_alone_has_no_head(tmp_path):
    config = config_of("hf_clip")["vision_config"]
    tower = {
        name.removeprefix("vision_model."): array
        for name, array in tensors_of("hf_clip").items()
        if name.startswith("vision_model.")
    }
    alone = kerasvit.from_pretrained(folder(tmp_path, tower, config))
    whole = kerasvit.from_pretrained(GOLDEN / "hf_clip", num_classes=0)
    np.testing.assert_array_equal(features(alone), features(whole))


def test_older_files_with_a_prefix_and_numbers_of_positions(tmp_path):
    old = {f"vision_model.{n}": a for n, a in tensors_of("hf_siglip").items()}
    old["vision_model.embeddings.position_ids"] = np.arange(16)[None]
    old["text_model.head.weight"] = np.ones((4, 4), "float32")
    old["logit_scale"] = np.ones(1, "float32")
    config = {"model_type": "siglip", "vision_config": config_of("hf_siglip")}
    model = kerasvit.from_pretrained(folder(tmp_path, old, config))
    same = kerasvit.from_pretrained(GOLDEN / "hf_siglip")
    np.testing.assert_array_equal(features(model), features(same))
    assert same.record["kwargs"]["partial_patches"]  # 18 pixels, patches of 4


@pytest.mark.parametrize(
    ("case", "kind", "expected"),
    [
        ("hf_siglip", "siglip", {"activation": "gelu_tanh", "epsilon": 1e-6}),
        ("hf_clip", "clip", {"activation": "quick_gelu", "epsilon": 1e-5}),
        ("hf_dinov2", "dinov2", {"epsilon": 1e-6, "layer_scale": 1.0}),
    ],
)
def test_what_a_configuration_omits_has_the_defaults_of_the_class(
    case, kind, expected, tmp_path
):
    config = {"model_type": kind, "vision_config": {"model_type": f"{kind}_vision"}}
    description = Checkpoint(folder(tmp_path, tensors_of(case), config)).description
    assert description.numbers["num_heads"] == 12
    assert description.open_arguments == ()
    assert {key: description.arguments[key] for key in expected} == expected


@pytest.mark.parametrize("case", ["hf_siglip", "hf_clip", "hf_dinov2"])
def test_a_bare_file_is_read_with_assumptions(case, tmp_path):
    save_file(tensors_of(case), tmp_path / "model.safetensors")
    description = Checkpoint(tmp_path).description
    whole = Checkpoint(GOLDEN / case).description
    assert {**description.numbers, "num_heads": 3} == whole.numbers
    assert set(description.open_arguments) == {"num_heads", "activation", "epsilon"}


def test_siglip_without_its_pooling_is_averaged(tmp_path):
    tensors = tensors_of("hf_siglip")
    classifier = {"classifier.weight": np.ones((2, 24), "float32")}
    classifier["classifier.bias"] = np.zeros(2, "float32")
    path = folder(tmp_path, {**tensors, **classifier}, config_of("hf_siglip"))
    kwargs = kerasvit.from_pretrained(path).record["kwargs"]
    assert (kwargs["pool"], kwargs["num_classes"]) == ("average", 2)


def test_patches_of_any_size_are_a_dense_layer(tmp_path):
    tensors = tensors_of("hf_siglip")
    name = "embeddings.patch_embedding.weight"
    dense = tensors[name].transpose(0, 2, 3, 1).reshape(24, -1)  # rows, columns, colour
    model = kerasvit.from_pretrained(
        folder(tmp_path, {**tensors, name: dense}, config_of("hf_siglip"))
    )
    same = kerasvit.from_pretrained(GOLDEN / "hf_siglip")
    np.testing.assert_allclose(features(model), features(same), atol=1e-6)
    folder(tmp_path, {**tensors, name: dense[:, :47]}, config_of("hf_siglip"))
    with pytest.raises(CheckpointError, match="3 · P · P columns.*47"):
        Checkpoint(tmp_path)


CLASSIFIERS = {
    "hf_dinov2_classifier": ("token_and_average", True),
    "hf_clip_classifier": ("average", False),
    "hf_siglip_classifier": ("average", True),
}


@pytest.mark.parametrize("case", CLASSIFIERS)
def test_a_classifier_of_averages(case, tmp_path):
    """Its logits are in tests/golden."""
    model = kerasvit.from_pretrained(GOLDEN / case)
    kwargs = model.record["kwargs"]
    assert (kwargs["pool"], kwargs["final_norm"]) == CLASSIFIERS[case]
    names = ["ant", "bee", "cat", "dog", "eel"]
    assert model.record["label_names"] == names
    ((best, _),) = kerasvit.classify(model, np.zeros((16, 16, 3), "uint8"), top=1)
    assert best in names
    kerasvit.save_pretrained(model, tmp_path)
    again = kerasvit.from_pretrained(tmp_path)
    assert again.record["kwargs"] == kwargs
    np.testing.assert_array_equal(features(again), features(model))


@pytest.mark.parametrize("case", CLASSIFIERS)
def test_without_its_head_a_classifier_gives_what_the_head_takes(case):
    model = kerasvit.from_pretrained(GOLDEN / case)
    pooled = features(kerasvit.from_pretrained(GOLDEN / case, num_classes=0))
    kernel, bias = map(to_numpy, model.get_layer("head").weights)
    np.testing.assert_allclose(pooled @ kernel + bias, features(model), atol=1e-5)
    other = kerasvit.from_pretrained(GOLDEN / case, num_classes=2)
    assert not features(other).any()


@pytest.mark.parametrize("case", CLASSIFIERS)
def test_a_head_of_another_width_raises(case, tmp_path):
    tensors = tensors_of(case)
    tensors["classifier.weight"] = tensors["classifier.weight"][:, :-1]
    folder(tmp_path, tensors, config_of(case))
    with pytest.raises(CheckpointError, match=r"classifier\.weight"):
        kerasvit.from_pretrained(tmp_path)


@pytest.mark.parametrize("case", CLASSIFIERS)
def test_names_of_other_classes_raise(case, tmp_path):
    names = {"id2label": {"0": "ant", "1": "bee"}}
    folder(tmp_path, tensors_of(case), {**config_of(case), **names})
    with pytest.raises(CheckpointError, match="must name 5 classes"):
        kerasvit.from_pretrained(tmp_path)


# {former name: name of transformers 5}, in the order in which they are replaced.
NAMES_OF_5 = {
    "hf_vit": {
        "encoder.layer.": "layers.",
        "attention.attention.query": "attention.q_proj",
        "attention.attention.key": "attention.k_proj",
        "attention.attention.value": "attention.v_proj",
        "attention.output.dense": "attention.o_proj",
        "intermediate.dense": "mlp.fc1",
        "output.dense": "mlp.fc2",
    },
    "hf_swin": {
        "attention.self.query": "attention.q_proj",
        "attention.self.key": "attention.k_proj",
        "attention.self.value": "attention.v_proj",
        "attention.self.relative": "attention.relative_position_bias.relative",
        "attention.output.dense": "attention.o_proj",
        "intermediate.dense": "mlp.fc1",
        "output.dense": "mlp.fc2",
    },
}
NAMES_OF_5["hf_mae"] = NAMES_OF_5["hf_vit"]


@pytest.mark.parametrize("case", NAMES_OF_5)
def test_names_of_transformers_5(case, tmp_path):
    """As models have them in memory, and write them with save_original_format=False."""
    tensors = {}
    for name, array in tensors_of(case).items():
        for old, new in NAMES_OF_5[case].items():
            name = name.replace(old, new)
        tensors[name] = array
    assert any(name.endswith(".1.mlp.fc2.weight") for name in tensors)
    model = kerasvit.from_pretrained(folder(tmp_path, tensors, config_of(case)))
    same = kerasvit.from_pretrained(GOLDEN / case)
    np.testing.assert_array_equal(features(model), features(same))


BEITS = pytest.mark.parametrize("case", ["hf_beit", "hf_data2vec"])


@BEITS
def test_a_beit_is_read(case):
    model = kerasvit.from_pretrained(GOLDEN / case)
    kwargs, shared = model.record["kwargs"], case == "hf_data2vec"
    assert kwargs["position_bias"] == ("shared" if shared else "blocks")
    assert kwargs["absolute_positions"] == shared
    assert kwargs["pool"] == ("average_then_norm" if shared else "token")
    assert (kwargs["layer_scale"], kwargs["epsilon"]) == (0.1, 1e-12)
    assert kwargs["num_heads"] == 3
    model = kerasvit.resize(model, (None, None))
    assert model.record["kwargs"]["resampling"]["kernel"] == "bilinear"
    check_key_map(TransformersBEiT().key_map(kwargs), model)


@BEITS
def test_a_beit_in_the_names_of_transformers_5(case, tmp_path):
    renamed = {
        "encoder.relative_position_bias.": "shared_position_bias.",
        "attention.attention.relative": "relative",
        **NAMES_OF_5["hf_vit"],
    }
    tensors = {}
    for name, array in tensors_of(case).items():
        for old, new in renamed.items():
            name = name.replace(old, new)
        tensors[name] = array
    assert any(".layers.1.mlp.fc2." in name for name in tensors)
    model = kerasvit.from_pretrained(folder(tmp_path, tensors, config_of(case)))
    same = kerasvit.from_pretrained(GOLDEN / case)
    np.testing.assert_array_equal(features(model), features(same))


def test_a_beit_of_an_older_file_without_a_pooler(tmp_path):
    """Data2VecVisionModel has none by default, and no normalisation then."""
    tensors = {
        name.removeprefix("data2vec_vision."): array
        for name, array in tensors_of("hf_data2vec").items()
        if not name.startswith("classifier") and "pooler" not in name
    }
    tensors["embeddings.mask_token"] = np.ones((1, 1, 24), "float32")
    index = "encoder.relative_position_bias.relative_position_index"
    tensors[index] = np.zeros((17, 17), "int64")
    folder(tmp_path, tensors, config_of("hf_data2vec"))
    model = kerasvit.from_pretrained(tmp_path)
    kwargs = model.record["kwargs"]
    assert (kwargs["pool"], kwargs["final_norm"]) == ("average", False)
    whole = kerasvit.from_pretrained(GOLDEN / "hf_data2vec", num_classes=0)
    found = features(model)
    centred = found - found.mean(axis=-1, keepdims=True)
    normalised = centred / np.sqrt(centred.var(axis=-1, keepdims=True))
    gamma, beta = map(to_numpy, whole.get_layer("encoder_norm").weights)
    np.testing.assert_allclose(normalised * gamma + beta, features(whole), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("lm_head.weight", "predicts masked patches"),
        ("decode_head.classifier.weight", "segments images"),
    ],
)
def test_other_heads_of_a_beit_raise(name, what, tmp_path):
    tensors = {**tensors_of("hf_beit"), name: np.ones((2, 24), "float32")}
    folder(tmp_path, tensors, config_of("hf_beit"))
    with pytest.raises(CheckpointError, match=what):
        Checkpoint(tmp_path)


def test_a_dinov3_as_its_state_dict_has_it(tmp_path):
    named = {
        f"model.{name}" if name.startswith("layer.") else name: array
        for name, array in tensors_of("hf_dinov3").items()
    }
    folder(tmp_path, named, config_of("hf_dinov3"))
    expected = kerasvit.from_pretrained(GOLDEN / "hf_dinov3", image_size=16)
    model = kerasvit.from_pretrained(tmp_path, image_size=16)
    np.testing.assert_array_equal(features(model), features(expected))
    kwargs = model.record["kwargs"]
    assert (kwargs["num_heads"], kwargs["register_tokens"]) == (2, 2)
    assert kwargs["qkv_bias"] and not kwargs["key_bias"]


@pytest.mark.parametrize("case", ["hf_dinov2", "hf_dinov3"])
def test_a_dino_without_register_tokens(case, tmp_path):
    """transformers writes an empty tensor for num_register_tokens=0."""
    tensors = tensors_of(case)
    width = tensors["embeddings.cls_token"].shape[-1]
    tensors["embeddings.register_tokens"] = np.zeros((1, 0, width), "float32")
    config = {**config_of(case), "num_register_tokens": 0}
    model = kerasvit.from_pretrained(folder(tmp_path, tensors, config))
    assert model.record["kwargs"]["register_tokens"] == 0
    del tensors["embeddings.register_tokens"]
    same = kerasvit.from_pretrained(folder(tmp_path, tensors, config))
    np.testing.assert_array_equal(features(model), features(same))


def test_a_dinov3_is_written_with_timms_names(tmp_path):
    model = kerasvit.from_pretrained(GOLDEN / "hf_dinov3_gated", image_size=16)
    kerasvit.save_pretrained(model, tmp_path)
    again = kerasvit.from_pretrained(tmp_path)
    assert again.record["kwargs"] == model.record["kwargs"]
    np.testing.assert_array_equal(features(again), features(model))


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("hf_dinov3", {"value_bias": False}),
        ("hf_dinov3", {"mlp_bias": False}),
        ("hf_dinov3", {"hidden_act": "silu"}),
        ("hf_dinov3_gated", {"hidden_act": "gelu"}),
    ],
    ids=str,
)
def test_other_dinov3s_raise(case, change, tmp_path):
    config = {**config_of(case), **change}
    folder(tmp_path, tensors_of(case), config)
    with pytest.raises(CheckpointError, match=f"states {next(iter(change))}="):
        Checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("case", "part"), [("hf_clip", "vision_config"), ("hf_mae", None)]
)
def test_an_unsupported_activation_raises(case, part, tmp_path):
    config = config_of(case)
    (config[part] if part else config)["hidden_act"] = "silu"
    folder(tmp_path, tensors_of(case), config)
    with pytest.raises(CheckpointError, match="states hidden_act='silu'"):
        Checkpoint(tmp_path)


def test_registers_have_zeros_as_positions():
    model = kerasvit.from_pretrained(GOLDEN / "hf_dinov2", image_size=(24, 16))
    assert model.record["kwargs"]["register_tokens"] == 3
    table = to_numpy(model.get_layer("position_embedding").table)
    assert table.shape == (1, 1 + 3 + 6 * 4, 24)
    assert not table[:, 1:4].any()
    file = tensors_of("hf_dinov2")["embeddings.position_embeddings"]
    np.testing.assert_array_equal(table[:, 0], file[:, 0])


def test_a_loaded_model_is_resized_as_its_file(tmp_path):
    model = kerasvit.from_pretrained(GOLDEN / "hf_dinov2")
    kerasvit.save_pretrained(model, tmp_path)
    expected = kerasvit.from_pretrained(GOLDEN / "hf_dinov2", image_size=(32, 24))
    for other in (
        kerasvit.resize(model, (32, 24)),
        kerasvit.resize(kerasvit.resize(model, (None, None)), (32, 24)),
        kerasvit.from_pretrained(tmp_path, image_size=(32, 24)),
    ):
        np.testing.assert_array_equal(features(other), features(expected))
        assert other.record["kernel"] == "bicubic_antialias"  # not transformers'
    config = json.loads((tmp_path / "config.json").read_text())
    config["kerasvit"]["kernel"] = ["bicubic"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="damaged.*kernel"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize(
    "changes", [{}, {"register_tokens": 2, "mlp": "swiglu"}, {"qkv_bias": False}]
)
def test_names_of_dinov2_round_trip(changes):
    model = kerasvit.VisionTransformer(
        **VIT, image_size=16, num_classes=0, layer_scale=1.0, **changes
    )
    kwargs = model.record["kwargs"]
    # The rows of the registers are not in the file.
    names = {w.path for w in model.weights}
    key_map = TransformersDinov2().key_map({**kwargs, "register_tokens": 0})
    tensors = check_key_map(key_map, model)
    assert TransformersDinov2().recognises(set(tensors))
    assert {p for n in tensors for p in key_map.find(n)[0]} == names


@pytest.mark.parametrize(
    "changes", [{}, {"register_tokens": 2, "mlp": "swiglu"}, {"key_bias": False}]
)
def test_names_of_dinov3_round_trip(changes):
    model = kerasvit.RotaryVisionTransformer(
        **VIT, image_size=16, num_classes=0, layer_scale=1.0, **changes
    )
    key_map = TransformersDinov3().key_map(model.record["kwargs"])
    tensors = check_key_map(key_map, model)
    assert "layer.0.mlp.down_proj.weight" in tensors


@pytest.mark.parametrize(
    "changes",
    [
        {"pre_norm": True, "patch_bias": False, "num_classes": 0},
        {"pool": "attention", "num_classes": 3},
    ],
)
def test_names_of_image_towers_round_trip(changes):
    model = kerasvit.VisionTransformer(**VIT, image_size=16, **changes)
    key_map = TransformersCLIP().key_map(model.record["kwargs"])
    tensors = check_key_map(key_map, model)
    assert TransformersCLIP().recognises(set(tensors))
    assert tensors["embeddings.position_embedding.weight"].ndim == 2
