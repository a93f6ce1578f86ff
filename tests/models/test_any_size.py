"""Models for images of any size: image_size=(None, None)."""

import keras
import numpy as np
import pytest

import kerasvit
from tests.contract import call, to_numpy
from tests.models.tiny import tiny
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

ANY = (None, None)
SIZES = [(16, 16), (24, 32), (32, 8)]
MODELS = [
    ("VisionTransformer", {}),
    ("VisionTransformer", {"positions": "patches", "register_tokens": 2}),
    ("VisionTransformer", {"positions": "sincos2d", "pool": "average"}),
    ("VisionTransformer", {"partial_patches": True, "image_size": 18}),
    ("VisionTransformer", {"pool": "attention", "dtype": "mixed_bfloat16"}),
    ("DistilledVisionTransformer", {}),
    ("HybridVisionTransformer", {}),
    ("VisionTransformerAblation", {"window": None}),
    ("BigTransfer", {}),
    ("PreActResNet", {}),
    ("ResNeXt", {}),
    ("BEiTTransformer", {"absolute_positions": True}),
    ("BEiTTransformer", {"position_bias": "shared", "dtype": "mixed_bfloat16"}),
    ("VisionTransformer", {"patch_size": (4, 2)}),
    ("RotaryVisionTransformer", {"patch_size": (2, 4)}),
    ("BEiTTransformer", {"patch_size": (2, 4)}),
]


def images(size, count=2):
    rng = np.random.default_rng(1)
    return rng.normal(size=(count, *size, 3)).astype("float32")


def any_size(**changes):
    return kerasvit.resize(tiny("VisionTransformer", **changes), ANY)


def same(one, other, size=(24, 32), atol=1e-5):
    found, expected = (to_numpy(call(model, images(size))) for model in (one, other))
    scale = max(1, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol * scale)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "changes"), mainly_on_last(MODELS))
def test_logits_are_those_of_the_resized_model(name, changes):
    model = tiny(name, **changes)
    dynamic = kerasvit.resize(model, ANY)
    for size in SIZES:
        fixed = kerasvit.resize(model, size)
        same(dynamic, fixed, size, 0.03 if "dtype" in changes else 1e-5)
        back = kerasvit.resize(dynamic, size)
        assert back.record == fixed.record
        for one, other in zip(back.weights, fixed.weights, strict=True):
            np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "changes"), mainly_on_last(MODELS[::8], 0))
def test_saving_keeps_images_of_any_size(name, changes, tmp_path):
    model = kerasvit.resize(tiny(name, **changes), ANY)
    model.save(tmp_path / "model.keras")
    kerasvit.save_pretrained(model, tmp_path)
    whole = keras.saving.load_model(tmp_path / "model.keras")
    for again in (whole, kerasvit.from_pretrained(tmp_path)):
        assert again.record["kwargs"] == model.record["kwargs"]
        assert again.record["kwargs"]["image_size"] == [None, None]
        same(again, model)
    fixed = kerasvit.from_pretrained(tmp_path, image_size=(24, 32))
    same(fixed, kerasvit.resize(model, (24, 32)))
    assert keras.models.clone_model(model).record == model.record


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    ("origin", "kernel"),
    [
        ("vision_transformer", "corner_linear"),
        ("timm", "bicubic_antialias"),
        ("transformers", "bicubic"),
    ],
)
def test_the_kernel_is_that_of_the_code_base(origin, kernel, tmp_path):
    fixed = tiny("VisionTransformer")
    fixed.record["origin"] = origin
    kerasvit.save_pretrained(fixed, tmp_path)
    loaded = kerasvit.from_pretrained(tmp_path, image_size=ANY)
    for model in (loaded, kerasvit.resize(fixed, ANY)):
        assert model.record["kwargs"]["resampling"]["kernel"] == kernel
        same(model, kerasvit.resize(fixed, (24, 32)))
    stated = kerasvit.from_pretrained(tmp_path, image_size=ANY, kernel="bilinear")
    kerasvit.save_pretrained(stated, tmp_path / "stated")
    again = kerasvit.from_pretrained(tmp_path / "stated")
    assert again.record["kwargs"]["resampling"]["kernel"] == "bilinear"
    same(again, kerasvit.resize(fixed, (24, 32), kernel="bilinear"))


@on_last_backend
def test_images_have_the_size_of_the_weights(tmp_path):
    model = any_size()
    assert model.record["preprocessing"]["size"] == [16, 16]
    kerasvit.save_pretrained(tiny("VisionTransformer"), tmp_path)
    larger = {"size": (24, 32)}
    stated = kerasvit.from_pretrained(tmp_path, image_size=ANY, preprocessing=larger)
    assert stated.record["preprocessing"]["size"] == [24, 32]
    photo = np.zeros((50, 40, 3), "uint8")
    assert len(kerasvit.classify(model, photo)) == 3
    assert len(kerasvit.classify(stated, photo)) == 3
    assert len(kerasvit.classify(model, images((8, 12)))) == 2


@pytest.mark.slow
@on_last_backend
def test_fresh_variants_have_the_table_of_their_default_size():
    record = kerasvit.ViTTi4CIFAR(image_size=ANY).record
    assert record["kwargs"]["resampling"]["image_size"] == [32, 32]
    assert record["preprocessing"]["size"] == [32, 32]
    assert kerasvit.BiTR50x1.builder.check(depths=[1], width_factor=1, image_size=ANY)


@long_elsewhere
def test_training_takes_batches_of_several_sizes():
    model = any_size()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = kerasvit.SAM(model, rho=0.05)
    for each in (model, trainer):
        each.compile(keras.optimizers.SGD(0.1), loss)
        for size in SIZES:
            before = to_numpy(model.get_layer("position_embedding").table)
            each.fit(images(size), np.array([0, 1]), verbose=0)
            after = to_numpy(model.get_layer("position_embedding").table)
            assert np.abs(after - before).max() > 0 and np.isfinite(after).all()


@on_last_backend
@pytest.mark.parametrize(
    "name",
    ["MLPMixer", "SwinTransformer", "AlterNet", "VisionTransformerAblation"],
)
def test_windows_and_mlps_across_tokens_need_a_size(name):
    with pytest.raises(ValueError, match="`image_size` must be known"):
        kerasvit.resize(tiny(name), ANY)


@on_last_backend
@pytest.mark.parametrize("size", [(None, 16), (16, None), [None], (None, None, 3)])
def test_one_unknown_side_is_refused(size):
    with pytest.raises(ValueError, match="both sides, or neither"):
        tiny("VisionTransformer", image_size=size)


@on_last_backend
@pytest.mark.parametrize(
    "resampling",
    [5, {"size": 16}, {"image_size": 17}, {"kernel": "geometric_linear"}],
)
def test_a_wrong_table_is_refused(resampling):
    with pytest.raises(ValueError, match="resampling|image_size|kernel"):
        tiny("VisionTransformer", image_size=ANY, resampling=resampling)


@pytest.mark.slow
@on_last_backend
def test_attention_maps_have_the_grid_of_the_images():
    x = images((24, 40))
    assert kerasvit.inspection.attention_maps(any_size(), x).heat.shape == (2, 6, 10)
    hybrid = kerasvit.resize(tiny("HybridVisionTransformer"), ANY)
    assert kerasvit.inspection.attention_maps(hybrid, x).heat.shape == (2, 3, 5)
    # 15 patches and a class token are as many as the tokens of the 4 × 4 table.
    assert kerasvit.inspection.attention_maps(
        any_size(), images((12, 20))
    ).heat.shape == (2, 3, 5)


@pytest.mark.not_on("tensorflow", reason="it can")
def test_export_asks_for_a_size(tmp_path):
    with pytest.raises(ValueError, match="images of one size"):
        any_size().export(tmp_path / "model", format="onnx")


@pytest.mark.slow
def test_timm_computes_the_same_at_any_size(timm, tmp_path):
    import torch

    model = any_size()
    kerasvit.save_pretrained(model, tmp_path)
    reference = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    for size in SIZES:
        x = images(size)
        with torch.no_grad():
            expected = reference(torch.from_numpy(x.transpose(0, 3, 1, 2).copy()))
        np.testing.assert_allclose(to_numpy(model(x)), expected, rtol=0, atol=1e-4)
