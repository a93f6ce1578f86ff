"""timm's models of less usual shapes, read from files that timm wrote."""

from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from tests.hub.test_timm import same_logits, save_timm_model, timm_model

pytestmark = pytest.mark.slow

NARROW = {"embed_dim": 12, "num_heads": (1, 2, 3, 4)}
DEPTHS = {"tiny": (2, 2, 2, 1), "small": (2, 2, 4, 2), "base": (1, 2, 2, 1)}
WINDOWS = {"tiny": [7, 7, 14, 7], "small": [14, 14, 14, 7], "base": [7, 7, 14, 7]}


def same_after_saving(timm, model, reference, folder):
    """A saved model is the same in timm and here."""
    same_logits(model, reference)
    kerasvit.save_pretrained(model, folder)
    same_logits(model, timm_model(timm, folder))
    again = kerasvit.from_pretrained(folder)
    assert again.record["kwargs"] == model.record["kwargs"]
    same_logits(again, reference)


@pytest.mark.parametrize("size", DEPTHS)
def test_swin_s3(timm, size, tmp_path):
    name = f"swin_s3_{size}_224"
    reference = save_timm_model(timm, name, tmp_path, depths=DEPTHS[size], **NARROW)
    model = kerasvit.from_pretrained(tmp_path)
    assert model.record["kwargs"]["window_size"] == WINDOWS[size]
    assert model.record["kwargs"]["image_size"] == [224, 224]
    same_after_saving(timm, model, reference, tmp_path / "ours")


def test_swin_s3_at_another_size(timm, tmp_path):
    reference = save_timm_model(
        timm, "swin_s3_small_224", tmp_path, depths=(1, 1, 2, 2), **NARROW
    )
    reference.set_input_size(img_size=448, window_size=WINDOWS["small"])
    same_logits(kerasvit.from_pretrained(tmp_path, image_size=448), reference)


@pytest.mark.long
def test_swin_s3_tiny_of_its_real_size(timm, tmp_path):
    reference = save_timm_model(timm, "swin_s3_tiny_224", tmp_path)
    for model in (kerasvit.from_pretrained(tmp_path), kerasvit.SwinS3T(tmp_path)):
        assert model.record["variant"] == "SwinS3T"
        same_logits(model, reference)
    save_file(load_file(tmp_path / "model.safetensors"), tmp_path / "bare.safetensors")
    model = kerasvit.SwinS3T(tmp_path / "bare.safetensors")
    assert model.record["kwargs"]["window_size"] == WINDOWS["tiny"]
    same_logits(model, reference)


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_patch16_224",
        "deit_tiny_distilled_patch16_224",
        "eva02_tiny_patch14_224",
        "vit_small_patch16_dinov3",
        "beit_base_patch16_224",
    ],
)
def test_rectangular_patches(timm, name, tmp_path):
    shape = {"embed_dim": 24, "depth": 1, "num_heads": 3, "patch_size": [8, 4]}
    reference = save_timm_model(timm, name, tmp_path, img_size=[32, 24], **shape)
    model = kerasvit.from_pretrained(tmp_path, num_heads=3, image_size=(32, 24))
    assert model.record["kwargs"]["patch_size"] == [8, 4]
    assert model.record["kwargs"]["image_size"] == [32, 24]
    assert kerasvit.features(model).strides == ((8, 4),)
    same_after_saving(timm, model, reference, tmp_path / "ours")
    if name.startswith("beit"):  # timm resamples its tables only from squares
        return
    folder = f"local-dir:{tmp_path / 'ours'}"
    resampled = timm.create_model(folder, pretrained=True, patch_size=[4, 8])
    same_logits(kerasvit.from_pretrained(tmp_path, patch_size=(4, 8)), resampled)


PE = {"embed_dim": 48, "depth": 1, "num_heads": 4, "patch_size": 8, "img_size": 32}


def test_attention_pooling_of_a_perception_encoder_of_maps(timm, tmp_path):
    """Only the core's pooling has 8 heads; others have those of the blocks."""
    name = "vit_pe_spatial_tiny_patch16_512"
    reference = save_timm_model(timm, name, tmp_path, global_pool="map", **PE)
    model = kerasvit.from_pretrained(tmp_path, num_heads=4, image_size=32)
    same_logits(model, reference)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("vit_pe_core_tiny_patch16_384", {"use_fc_norm": True}, "pooling"),
        ("beit_base_patch16_224", {"global_pool": ""}, "pooling"),
        ("vit_tiny_patch16_224", {"proj_bias": False}, "builds True only"),
        ("vit_tiny_patch16_224", {"qk_norm": True}, "builds False only"),
        ("vit_tiny_patch16_224", {"pos_embed": "none"}, "builds 'learn' only"),
    ],
)
def test_what_is_not_built(timm, name, changes, message, tmp_path):
    model = timm.create_model(name, **PE, **changes)
    config = {"model_args": {**PE, **changes}}
    timm.models.save_for_hf(model, tmp_path, config, safe_serialization=True)
    with pytest.raises(kerasvit.CheckpointError, match=message):
        kerasvit.from_pretrained(tmp_path)


SO400M = {"embed_dim": 32, "depth": 1, "mlp_ratio": 2}


def test_patches_that_leave_a_rest_of_the_image(timm, tmp_path):
    reference = save_timm_model(
        timm, "vit_so400m_patch14_siglip_384", tmp_path, **SO400M
    )
    assert reference.pos_embed.shape[1] == 27 * 27
    model = kerasvit.from_pretrained(tmp_path)
    assert model.input_shape == (None, 384, 384, 3)
    assert model.get_layer("position_embedding").grid == (27, 27)
    assert model.record["kwargs"]["partial_patches"] is True
    assert model.record["preprocessing"]["size"] == [384, 384]
    same_logits(model, reference)
    # The rest is not seen.
    images = np.random.default_rng(0).normal(size=(1, 384, 384, 3)).astype("float32")
    other = images.copy()
    other[:, 378:], other[:, :, 378:] = 9.0, -9.0
    np.testing.assert_array_equal(model.predict(images), model.predict(other))
    same_after_saving(timm, model, reference, tmp_path / "ours")
    bare = tmp_path / "bare.safetensors"
    save_file(load_file(tmp_path / "model.safetensors"), bare)
    numbers = {"num_heads": 16, "image_size": 384, "partial_patches": True}
    same_logits(kerasvit.from_pretrained(bare, **numbers), reference)


def test_so400m_at_other_sizes(timm, tmp_path):
    reference = save_timm_model(
        timm, "vit_so400m_patch14_siglip_384", tmp_path, **SO400M
    )
    reference.set_input_size(img_size=224)
    model = kerasvit.from_pretrained(tmp_path, image_size=224)
    assert model.get_layer("position_embedding").grid == (16, 16)
    same_logits(model, reference)
    resized = kerasvit.resize(kerasvit.from_pretrained(tmp_path), (230, 224))
    assert resized.get_layer("position_embedding").grid == (16, 16)


@pytest.mark.parametrize(
    ("channels", "root"), [([128, 384], 32), ([256, 512], 96), ([384], 64)], ids=str
)
def test_a_hybrid_with_stages_of_any_width(timm, channels, root, tmp_path):
    from timm.layers import StdConv2dSame
    from timm.models.resnetv2 import ResNetV2
    from timm.models.vision_transformer import VisionTransformer
    from timm.models.vision_transformer_hybrid import HybridEmbed

    backbone = ResNetV2(
        layers=[2] * len(channels),
        channels=channels,
        stem_chs=root,
        num_classes=0,
        global_pool="",
        preact=False,
        stem_type="same",
        conv_layer=partial(StdConv2dSame, eps=1e-8),
    )
    reference = VisionTransformer(
        img_size=32,
        patch_size=2,
        embed_dim=12,
        depth=1,
        num_heads=3,
        num_classes=3,
        embed_layer=partial(HybridEmbed, backbone=backbone),
    )
    for parameter in reference.parameters():
        if not parameter.any():
            parameter.data.normal_(std=0.1)
    tensors = {name: tensor.numpy() for name, tensor in reference.state_dict().items()}
    save_file(tensors, tmp_path / "model.safetensors")
    model = kerasvit.from_pretrained(
        tmp_path / "model.safetensors", num_heads=3, image_size=32
    )
    standard = [4 * root * 2**i for i in range(len(channels))]
    widths = model.record["kwargs"]["stage_widths"]
    assert widths == (None if channels == standard else channels)
    same_logits(model, reference)
    kerasvit.save_pretrained(model, tmp_path / "ours")
    again = kerasvit.from_pretrained(tmp_path / "ours")
    assert again.record["kwargs"] == model.record["kwargs"]
    same_logits(again, reference)


@pytest.mark.parametrize(
    ("name", "heads"), [("base_patch16_radio_v3", 12), ("giant_patch16_radio_v3", 24)]
)
def test_no_normalisation_after_the_blocks(timm, name, heads, tmp_path):
    small = {"embed_dim": 4 * heads, "depth": 1, "img_size": 32}
    reference = save_timm_model(timm, f"vit_{name}", tmp_path, **small)
    model = kerasvit.from_pretrained(tmp_path)
    assert model.record["kwargs"]["final_norm"] is False
    same_logits(model, reference)
    kerasvit.save_pretrained(model, tmp_path / "ours")
    same_logits(model, timm_model(timm, tmp_path / "ours"))
    again = kerasvit.from_pretrained(tmp_path / "ours")
    assert again.record["kwargs"] == model.record["kwargs"]


def test_eva_large_is_a_plain_vit(timm, tmp_path):
    small = {"patch_size": 8, "img_size": 32, "embed_dim": 32, "depth": 1}
    reference = save_timm_model(timm, "eva_large_patch14_196", tmp_path, **small)
    model = kerasvit.from_pretrained(tmp_path)
    assert model.record["builder"] == "VisionTransformer"
    same_logits(model, reference)
