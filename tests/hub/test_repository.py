import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file

import kerasvit
from kerasvit import CheckpointError
from kerasvit.checkpoints import format_of, why_not_timm
from tests.contract import to_numpy
from tests.once import mainly_on_last, on_last_backend
from tests.random_weights import randomised

from .some_weights import OURS

pytestmark = pytest.mark.slow

SMALL = {"patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 24}
Small = kerasvit.Variant("Small", kerasvit.VisionTransformer, **SMALL)
TIMM_CAN = [
    {},
    {"pool": "average"},
    {"pool": "average_then_norm"},
    {"pool": "attention"},
    {"pool": "attention", "class_token": True, "register_tokens": 2},
    {"register_tokens": 2, "positions": "patches", "layer_scale": 0.1},
    {"register_tokens": 2},
    {"positions": "patches"},
    {"num_classes": 0},
    {"qkv_bias": False, "activation": "gelu_tanh"},
    {"image_size": (8, 12)},
]
TIMM_CANNOT = {  # and why not
    "its representation_size is 5, timm's None": {"representation_size": 5},
    "its epsilon is 0.0001, timm's 1e-06 or 1e-05": {"epsilon": 1e-4},
    "its patch_bias is True, timm's False": {"pre_norm": True},
    "its layer_scale is None, timm's 1e-05": {"mlp": "swiglu"},
    "its pool is 'token_and_average', timm's 'token' or 'average' or "
    "'average_then_norm' or 'attention'": {"pool": "token_and_average"},
    "its positions is 'sincos2d', timm's 'tokens' or 'patches'": {
        "positions": "sincos2d",
        "pool": "average",
    },
}


def small(**changes):
    return randomised(Small(**{"image_size": 8, "num_classes": 3, **changes}))


def same_logits(one, other):
    shape = (2, *one.input_shape[1:])
    x = np.random.default_rng(1).normal(size=shape).astype("float32")
    np.testing.assert_allclose(to_numpy(one(x)), to_numpy(other(x)), atol=1e-6)


@pytest.mark.parametrize(
    "changes", mainly_on_last([*TIMM_CAN, *TIMM_CANNOT.values()]), ids=str
)
def test_folder_gives_the_same_model(changes, tmp_path):
    model = small(**changes)
    model.record["label_names"] = ["a", "b", "c"][
        : model.record["kwargs"]["num_classes"]
    ] or None
    kerasvit.save_pretrained(model, tmp_path)
    again = kerasvit.from_pretrained(tmp_path)
    same_logits(model, again)
    assert again.record == model.record
    same_logits(model, Small(tmp_path))


@pytest.mark.parametrize("changes", mainly_on_last(TIMM_CAN), ids=str)
def test_timm_names_where_timm_has_such_a_model(changes, tmp_path):
    kerasvit.save_pretrained(small(**changes), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["kerasvit"]["weights_format"] == "timm"
    assert config["architecture"] == "vit_base_patch16_224"
    assert "blocks.1.attn.qkv.weight" in load_file(tmp_path / "model.safetensors")


@on_last_backend
@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("ViTS14", {}, "vit_small_patch16_224"),  # with patch_size in `model_args`
        ("ViTS32", {}, "vit_small_patch32_224"),
        ("ViTTi16", {}, "vit_tiny_patch16_224"),
        ("ViTB16", {}, "vit_base_patch16_224"),
        ("ViTB16", {"epsilon": 1e-5}, "vit_base_patch16_clip_224"),
        ("ViTL14", {}, "vit_large_patch14_224"),
        ("ViTH14", {}, "vit_huge_patch14_224"),
    ],
)
def test_the_name_that_timm_builds_has_the_size(name, changes, expected):
    row = getattr(kerasvit, name)
    kwargs = {**row.defaults, **row.numbers, **changes, "image_size": [224, 224]}
    record = {"builder": row.builder.__name__, "kwargs": kwargs}
    config = format_of(record)[1]
    assert config["architecture"] == expected
    assert config["model_args"]["patch_size"] == kwargs["patch_size"]


@pytest.mark.parametrize("reason", mainly_on_last(TIMM_CANNOT))
def test_variable_paths_where_timm_has_none(reason, tmp_path):
    kerasvit.save_pretrained(small(**TIMM_CANNOT[reason]), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["kerasvit"]["weights_format"] == "kerasvit"
    assert "architecture" not in config
    tensors = load_file(tmp_path / "model.safetensors")
    assert "encoder_block_1/attention/query/kernel" in tensors
    page = (tmp_path / "README.md").read_text()
    assert f"timm has no such model: {reason}." in page


@on_last_backend
@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("MixerS16", {"activation": "gelu_tanh"}, "its activation is 'gelu_tanh', "),
        (
            "MixerB8",
            {},
            "its (patch_size, depth, width) is (8, 12, 768), timm's (32, 8",
        ),
        (
            "BiTR50x1",
            {"conv_epsilon": 1e-10},
            "its conv_epsilon is 1e-10, timm's 1e-08",
        ),
        ("BiTR50x1", {"depths": [2]}, "its depths is [2], timm's [3]"),
        ("R50ViTB16", {"add_to_deviation": True}, "its add_to_deviation is True"),
        ("R50ViTB16", {"resnet_depths": [1]}, "its resnet_depths is [1], timm's [] or"),
        ("SwinT", {"epsilon": 1e-6}, "its epsilon is 1e-06, timm's 1e-05"),
        ("SwinT", {"epsilon": 1e-5}, None),
        ("ViTg14", {}, None),
        ("ViTg14", {"epsilon": 1e-5}, "its epsilon is 1e-05, timm's 1e-06"),
        ("ViTg14", {"pool": "attention"}, "its pool is 'attention', timm's 'token' or"),
        ("ViTB16", {"activation": "quick_gelu", "epsilon": 1e-5}, None),
        ("DeiTTi16Distilled", {"epsilon": 1e-12}, "its epsilon is 1e-12, timm's 1e-06"),
        ("AlterNet50", {}, "it has no AlterNet"),
    ],
)
def test_reasons_why_timm_has_no_such_model(name, changes, reason):
    row = getattr(kerasvit, name)
    kwargs = {**row.defaults, **row.numbers, **changes}
    found = why_not_timm({"builder": row.builder.__name__, "kwargs": kwargs})
    assert found == reason or found.startswith(reason)


def test_a_folder_loads_with_other_classes_and_another_size(tmp_path):
    kerasvit.save_pretrained(small(), tmp_path)
    model = kerasvit.from_pretrained(tmp_path, num_classes=7, image_size=(8, 16))
    assert model.input_shape == (None, 8, 16, 3)
    assert model.output_shape == (None, 7)
    assert model.record["label_names"] is None
    assert model.record["preprocessing"]["size"] == [8, 16]


@on_last_backend
def test_readme_of_the_user_is_kept(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    kerasvit.save_pretrained(small(), tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


@on_last_backend
def test_a_generated_page_is_replaced_and_a_card_overrides_it(tmp_path):
    page = tmp_path / "README.md"
    kerasvit.save_pretrained(small(), tmp_path, license="mit")
    assert "timm reads this model too" in page.read_text()
    (reason, cannot), *_ = TIMM_CANNOT.items()
    kerasvit.save_pretrained(small(**cannot), tmp_path)
    assert reason in page.read_text() and "timm reads" not in page.read_text()
    assert "mit" not in page.read_text()
    kerasvit.save_pretrained(small(), tmp_path, card="---\nlicense: mit\n---\n# New")
    assert page.read_text().count("---") == 2 and "# New" in page.read_text()
    assert "library_name" in page.read_text() and 'license: "mit"' in page.read_text()


@on_last_backend
def test_a_changed_page_keeps_its_text_and_gets_the_facts(tmp_path, caplog):
    page = tmp_path / "README.md"
    kerasvit.save_pretrained(small(), tmp_path, license="mit", datasets=["a"])
    page.write_text(page.read_text() + "Mine.\n")
    kerasvit.save_pretrained(small(epsilon=1e-4), tmp_path, license="apache-2.0")
    text = page.read_text()
    assert 'license: "apache-2.0"' in text and 'datasets: ["a"]' in text
    assert 'tags: ["keras"]' in text and text.endswith("Mine.\n")
    assert "is kept, because it was written or changed by hand" in caplog.text
    kerasvit.save_pretrained(small(epsilon=1e-4), tmp_path)
    assert page.read_text() == text


@on_last_backend
def test_metadata_without_a_body_get_a_text(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("---\nlicense: mit\ndate: 2026-01-02\ntags: mine\n---\n")
    kerasvit.save_pretrained(small(), tmp_path)
    text = page.read_text()
    for part in ('license: "mit"', "2026-01-02", '"mine", "keras", "timm"', "# "):
        assert part in text


@on_last_backend
@pytest.mark.parametrize("before", [b"---\na: [\n---\nx", b"---\na\n---\n", b"\xff"])
def test_a_page_that_cannot_be_read_is_kept(tmp_path, before):
    (tmp_path / "README.md").write_bytes(before)
    kerasvit.save_pretrained(small(), tmp_path)
    assert (tmp_path / "README.md").read_bytes() == before


@on_last_backend
def test_the_page_contains_no_path(tmp_path):
    folder = kerasvit.save_pretrained(small(), tmp_path / "vit")
    page = (folder / "README.md").read_text()
    assert str(tmp_path) not in page and "# vit\n" in page
    assert 'from_pretrained("vit")' in page and '"local-dir:vit"' in page


@pytest.mark.parametrize(("value", "dtype"), [(1e5, "float16"), (np.nan, None)])
def test_weights_that_are_no_numbers_are_not_saved(tmp_path, value, dtype):
    kerasvit.save_pretrained(small(), tmp_path)
    model = small()
    *others, bias = model.get_weights()
    model.set_weights([*others, np.array([0, value, 0], "float32")])
    cause = "float16 cannot hold" if dtype else "damaged"
    with pytest.raises(ValueError, match=f"head.bias has 1 of 3 .*{cause}"):
        kerasvit.save_pretrained(model, tmp_path, dtype=dtype)
    same_logits(small(), kerasvit.from_pretrained(tmp_path))
    if dtype:
        kerasvit.save_pretrained(model, tmp_path, dtype="bfloat16")


@on_last_backend
@pytest.mark.parametrize("base", [[1], {"source": 2, "license": None}, {"license": ""}])
def test_the_base_is_kept_or_raises(tmp_path, base):
    model = small()
    model.record["base"] = {"source": "timm/vit", "license": "mit"}
    kerasvit.save_pretrained(model, tmp_path / "one")
    again = kerasvit.from_pretrained(tmp_path / "one")
    assert again.record == model.record
    page = (kerasvit.save_pretrained(again, tmp_path / "two") / "README.md").read_text()
    assert 'license: "mit"\nbase_model: "timm/vit"' in page
    config = json.loads((tmp_path / "one" / "config.json").read_text())
    config["kerasvit"]["base"] = base
    (tmp_path / "one" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="damaged: `base` must have `source`"):
        kerasvit.from_pretrained(tmp_path / "one")


@on_last_backend
@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        (None, {}, "`weights` must be the path of a folder.*Received: None"),
        ("", {}, "`weights` must be the path"),
        (3, {}, "`weights` must be the path"),
        ("vit", {"revision": "v1"}, "^revision can be given for the .* only"),
        ("vit", {"token": "x", "local_files_only": True}, "^token, local_files_only"),
        (OURS, {"token": "x"}, r"^token cannot .* catalogue.* MixerS16\('gsam'\)\.$"),
        ("hf://me/vit", {"revision": 3}, "`revision` must be the name of a branch.* 3"),
        ("hf://me/vit", {"cache_dir": 3}, "`cache_dir` must be a path"),
        ("hf://me/vit", {"revision": False}, "`revision` must be the name"),
        ("hf://me/vit", {"revision": ""}, "`revision` must be the name"),
        ("hf://me/vit", {"cache_dir": ""}, "`cache_dir` must be a path"),
        ("hf://me/vit", {"token": b"secret"}, "`token` must be a text.*: bytes"),
        ("hf://me/vit", {"token": 0}, "`token` must be a text.*: int"),
        ("hf://me/vit", {"endpoint": 3}, "`endpoint` must be an address"),
        ("hf://me/vit", {"endpoint": "me:pw@mirror"}, "an address.* 'mirror'"),
        ("hf://me/vit@v1/model.safetensors", {}, "without a path in it"),
        ("hf://me/vit@config.json", {}, "without a path in it"),
        ("hf://me/vit", {"local_files_only": "yes"}, "must be one of True, False"),
    ],
)
def test_arguments_of_from_pretrained_are_checked(weights, options, message):
    with pytest.raises(ValueError, match=message):
        kerasvit.from_pretrained(weights, **options)


def test_saving_again_replaces_the_weights(tmp_path):
    kerasvit.save_pretrained(small(), tmp_path)
    other = small(num_classes=4)
    kerasvit.save_pretrained(other, tmp_path)
    same_logits(other, kerasvit.from_pretrained(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


@on_last_backend
def test_a_failed_write_leaves_the_old_folder(tmp_path, monkeypatch):
    old = small()
    kerasvit.save_pretrained(old, tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ValueError, match=r"full: .* needs 0\.\d MB, and [\d,.]+ MB"):
        kerasvit.save_pretrained(small(num_classes=4), tmp_path)
    monkeypatch.undo()
    same_logits(old, kerasvit.from_pretrained(tmp_path))
    assert len(os.listdir(tmp_path)) == 3


@on_last_backend
def test_newer_format_asks_for_an_upgrade(tmp_path):
    kerasvit.save_pretrained(small(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["kerasvit"] = {"format_version": 99, "architecture": "new"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="newer kerasvit.*pip install"):
        kerasvit.from_pretrained(tmp_path)


@on_last_backend
def test_damaged_record_is_named(tmp_path):
    kerasvit.save_pretrained(small(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["kerasvit"]["kwargs"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="kwargs"):
        kerasvit.from_pretrained(tmp_path)


@on_last_backend
def test_unknown_builder_is_named(tmp_path):
    kerasvit.save_pretrained(small(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["kerasvit"]["builder"] = "list_models"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="no builder 'list_models'"):
        kerasvit.from_pretrained(tmp_path)


@on_last_backend
def test_a_bare_file_does_not_determine_its_architecture(tmp_path):
    kerasvit.save_pretrained(small(), tmp_path)
    os.remove(tmp_path / "config.json")
    with pytest.raises(ValueError, match="does not state num_heads.*ViTB16"):
        kerasvit.from_pretrained(tmp_path)
    numbers = {"num_heads": 2, "image_size": 8}
    same_logits(small(), kerasvit.from_pretrained(tmp_path, **numbers))
    same_logits(small(), Small(tmp_path, image_size=8))


@on_last_backend
def test_other_addresses_give_a_hint():
    with pytest.raises(CheckpointError, match="hf://user/repository.*Download"):
        kerasvit.ViTB16("https://example.org/user/repo")
    with pytest.raises(CheckpointError, match='Write "hf://user/repo"'):
        kerasvit.ViTB16("https://huggingface.co/user/repo/tree/main")


@on_last_backend
def test_imagenets_names_stay_a_word(tmp_path):
    model = small(num_classes=1000)
    model.record["label_names"] = "imagenet1k"
    kerasvit.save_pretrained(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["label_names"] is None
    again = kerasvit.from_pretrained(tmp_path)
    assert again.record["label_names"] == "imagenet1k"


@on_last_backend
def test_a_folder_with_too_few_names_is_not_written(tmp_path):
    model = small()
    model.record["label_names"] = ["a"]
    with pytest.raises(ValueError, match="must name 3 classes.*'a'"):
        kerasvit.save_pretrained(model, tmp_path)


@on_last_backend
def test_a_file_instead_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="must be a folder"):
        kerasvit.save_pretrained(small(), tmp_path / "file")


@on_last_backend
@pytest.mark.parametrize("folder", ["", "hf://me/vit", "s3://me/vit", None, 3])
def test_an_invalid_folder_is_not_created(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="`folder` must be the path of.*push_to_hub"):
        kerasvit.save_pretrained(small(), folder)
    assert not os.listdir(tmp_path)


@on_last_backend
def test_a_model_of_the_bare_builder_is_saved_too(tmp_path):
    model = kerasvit.VisionTransformer(**SMALL, image_size=8, num_classes=3)
    kerasvit.save_pretrained(model, tmp_path)
    same_logits(model, kerasvit.from_pretrained(tmp_path))


@on_last_backend
def test_variable_paths_need_their_config(tmp_path):
    kerasvit.save_pretrained(small(representation_size=5), tmp_path)
    os.remove(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match="needs the config.json"):
        Small(tmp_path)


@on_last_backend
@pytest.mark.parametrize(
    "damage",
    [
        {"kerasvit": [1]},
        {"kerasvit": "x"},
        {"kerasvit": {"format_version": "2"}},
        {"kerasvit": {"origin": "xx"}},
        {"kerasvit": {"kwargs": {}}},
        {"kerasvit": {"kwargs": {"image_size": 16}}},
        {"kerasvit": {"preprocessing": {}}},
        {"label_names": ["one"]},
        {"label_names": {"0": "a"}},
    ],
    ids=str,
)
def test_a_damaged_config_is_a_value_error(tmp_path, damage):
    kerasvit.save_pretrained(small(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for key, value in damage.items():
        whole = isinstance(value, dict) and isinstance(config[key], dict)
        config[key] = {**config[key], **value} if whole else value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError):
        kerasvit.from_pretrained(tmp_path)


def test_a_model_without_a_record_cannot_be_saved(tmp_path):
    import keras

    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="record"):
        kerasvit.save_pretrained(plain, tmp_path)
