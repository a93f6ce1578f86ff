import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints import Description
from kerasvit.layers.resampling import resample_grid
from kerasvit.loading.find import entry_named
from kerasvit.pretrained import fitting_variant
from tests.contract import to_numpy
from tests.once import on_last_backend

pytestmark = pytest.mark.slow

SMALL = {"patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 24}
Small = kerasvit.Variant("Small", kerasvit.VisionTransformer, **SMALL)


def small(**changes):
    model = Small(**{"image_size": (8, 16), "num_classes": 3, **changes})
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def table(model):
    return to_numpy(model.get_layer("position_embedding").table)[0]


def test_built_in_normalisation_through_folder_resize_and_classify(tmp_path):
    plain = small()
    kerasvit.save_pretrained(plain, tmp_path / "plain")
    model = Small(tmp_path / "plain", include_preprocessing=True)
    kerasvit.save_pretrained(model, tmp_path / "built_in")
    again = kerasvit.from_pretrained(tmp_path / "built_in")
    pixels = np.random.default_rng(1).integers(0, 256, (8, 16, 3)).astype("uint8")
    for built_in in (model, again, kerasvit.resize(again, (8, 16))):
        (name, chance), *_ = kerasvit.classify(built_in, pixels)
        (expected, probability), *_ = kerasvit.classify(plain, pixels)
        assert name == expected
        assert abs(chance - probability) < 1e-5


@on_last_backend
def test_list_models_ignores_case():
    assert kerasvit.list_models("vits1*") == ["ViTS14", "ViTS16"]


@on_last_backend
def test_a_misspelled_model_names_the_near_ones():
    with pytest.raises(AttributeError, match="no 'VitB16'.*ViTB16"):
        kerasvit.VitB16  # noqa: B018


@on_last_backend
@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("", "ViTTi16"),
        ("vit", "ViTTi16"),
        ("deit", "DeiTTi16"),
        ("deit_tiny_patch16_224", "DeiTTi16"),
    ],
)
def test_a_vit_that_is_a_deit_is_called_so(architecture, name):
    file = Description(
        code_base="timm",
        builder="VisionTransformer",
        numbers=kerasvit.ViTTi16.numbers,
        arguments={},
        kernel="bicubic",
        architecture=architecture,
    )
    assert fitting_variant(file).name == name


@on_last_backend
@pytest.mark.parametrize(
    ("patch_size", "window_size", "qkv_bias", "name"),
    [
        (4, [7, 7, 7, 7], True, "SwinT"),
        (4, [7, 7, 14, 7], True, "SwinS3T"),
        (1, 4, False, "SwinTiCIFAR"),
    ],
)
def test_swins_of_one_width_differ_in_their_windows(
    patch_size, window_size, qkv_bias, name
):
    arguments = {
        "patch_size": patch_size,
        "window_size": window_size,
        "qkv_bias": qkv_bias,
        "image_size": [64, 64],
        "num_classes": 10,
    }
    file = Description(
        code_base="timm",
        builder="SwinTransformer",
        numbers=kerasvit.SwinT.numbers,
        arguments=arguments,
        kernel="bicubic",
        architecture="",
    )
    assert fitting_variant(file).name == name


def test_resize_gives_the_model_at_another_size():
    model = small()
    resized = kerasvit.resize(model, (16, 12))
    assert resized.input_shape == (None, 16, 12, 3)
    assert resized.record["kwargs"]["image_size"] == [16, 12]
    assert resized.record["preprocessing"]["size"] == [16, 12]
    for old, new in zip(model.weights, resized.weights, strict=True):
        if old.path != "position_embedding/table":
            np.testing.assert_array_equal(to_numpy(old), to_numpy(new))
    cells = table(model)[1:].reshape(2, 4, -1)
    cells = resample_grid(cells, (4, 3), "bicubic_antialias").reshape(12, -1)
    np.testing.assert_allclose(table(resized)[1:], cells, atol=1e-6)
    np.testing.assert_array_equal(table(resized)[0], table(model)[0])


def test_resize_knows_the_grid_even_where_counts_agree():
    # 2 × 4 and 4 × 2 have the same count: not the same table.
    model = small()
    resized = kerasvit.resize(model, (16, 8))
    assert np.abs(table(resized) - table(model)).max() > 0.01


def test_resize_does_not_change_the_old_model():
    model = small()
    before = table(model)
    kerasvit.resize(model, 16)
    assert model.input_shape == (None, 8, 16, 3)
    np.testing.assert_array_equal(table(model), before)


def test_resize_to_the_same_size_gives_the_same_logits():
    model = small()
    x = np.random.default_rng(1).normal(size=(2, 8, 16, 3)).astype("float32")
    again = kerasvit.resize(model, (8, 16))
    np.testing.assert_array_equal(to_numpy(model(x)), to_numpy(again(x)))


def test_resize_takes_a_kernel():
    one, other = (
        kerasvit.resize(small(), 16, k) for k in ("bilinear", "corner_linear")
    )
    assert np.abs(table(one) - table(other)).max() > 1e-3
    with pytest.raises(ValueError, match="nearest"):
        kerasvit.resize(small(), 16, "nearest")


def test_resize_keeps_what_is_frozen_and_the_dtype_policy():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = small()
    keras.config.set_dtype_policy("float32")
    model.get_layer("encoder_block_0").trainable = False
    resized = kerasvit.resize(model, 16)
    assert not resized.get_layer("encoder_block_0").trainable
    assert resized.get_layer("encoder_block_1").compute_dtype == "bfloat16"
    assert keras.config.dtype_policy().name == "float32"


def test_resize_keeps_what_is_frozen_inside_a_block():
    model = small()
    model.get_layer("encoder_block_0").attention.trainable = False
    resized = kerasvit.resize(model, 16)
    assert [w.path for w in resized.trainable_weights] == [
        w.path for w in model.trainable_weights
    ]
    model.trainable = False
    assert not kerasvit.resize(model, 16).trainable_weights


def test_resize_keeps_the_name_and_takes_the_bare_builders_model():
    kwargs = {**SMALL, "image_size": 8, "num_classes": 3, "name": "mine"}
    resized = kerasvit.resize(kerasvit.VisionTransformer(**kwargs), 16)
    assert resized.name == "mine"


@on_last_backend
@pytest.mark.parametrize("size", [None, 0, "16", 16.0, (8, 8, 8)])
def test_resize_names_the_argument(size):
    with pytest.raises(ValueError, match="`image_size`"):
        kerasvit.resize(small(), size)


@on_last_backend
def test_resize_checks_the_kernel_even_where_it_needs_none():
    with pytest.raises(ValueError, match="`kernel`.*bicubik"):
        kerasvit.resize(small(), (8, 16), "bicubik")


def test_resize_of_fixed_positions():
    model = small(positions="sincos2d", pool="average")
    assert kerasvit.resize(model, 16).input_shape == (None, 16, 16, 3)


@on_last_backend
def test_resize_raises_for_sizes_that_patches_do_not_divide():
    with pytest.raises(ValueError, match="10 × 10"):
        kerasvit.resize(small(), 10)


@on_last_backend
def test_resize_of_a_model_without_a_record():
    model = small()
    part = keras.Model(model.input, model.get_layer("encoder_norm").output)
    with pytest.raises(ValueError, match="clone_model"):
        kerasvit.resize(part, 16)


def test_the_folder_of_a_recipe_is_loaded(tmp_path):
    model = small()
    kerasvit.save_pretrained(model, tmp_path / "run" / "model")
    found = kerasvit.from_pretrained(tmp_path / "run")
    assert np.array_equal(table(found), table(model))


def test_names_of_the_catalogue(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entry = entry_named("ViTB16/sam")
    assert (entry.model, entry.tag) == ("ViTB16", "sam")
    assert entry_named("ViTB16/pets") is entry_named("pets") is None
    (tmp_path / "ViTB16" / "sam").mkdir(parents=True)
    assert entry_named("ViTB16/sam") is None  # the folder comes first


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ViTB16", '"ViTB16/sam"'),
        ("ViTB16/samm", "Did you mean 'sam'"),
        ("AlterNet50", "AlterNet50 has no public weights. Train it"),
        ("https://huggingface.co/timm/vit.sam/tree/main", 'Write "hf://timm/vit.sam"'),
        ("hf-hub:timm/vit.sam_in1k", 'Write "hf://timm/vit.sam_in1k"'),
        ("google/vit-base-patch16-224", '"hf://google/vit-base-patch16-224"'),
        ("vit_base_patch16_224.sam_in1k", r'kerasvit.ViTB16\("sam'),
    ],
)
def test_other_names_say_what_to_write(name, message):
    with pytest.raises(ValueError, match=message):
        kerasvit.from_pretrained(name)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["model.pth.tar"], "but model.pth.tar. Pass the path"),
        (["adapters.safetensors"], "adapters of LoRA"),
        (["pytorch_model.bin"], "pytorch_model.bin .* cannot be read"),
        (["pytorch_model-00001-of-00002.bin"], "no pytorch_model.bin.index.json. Copy"),
        (["vit.safetensors", "vit.pth"], "but vit.safetensors. Pass the path"),
        (["model.keras"], "keras.models.load_model"),
        ([], "Its config.json may be of a save that was stopped"),
    ],
)
def test_a_folder_without_model_safetensors_says_what_it_holds(
    files, message, tmp_path, monkeypatch
):
    (tmp_path / "folder").mkdir()
    for name in ("config.json", *files):
        (tmp_path / "folder" / name).write_text('{"kerasvit": {}}')
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "folder", "folder"):
        with pytest.raises(ValueError, match=message):
            kerasvit.from_pretrained(folder)
