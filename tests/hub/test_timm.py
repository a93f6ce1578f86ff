"""timm and kerasvit load each other's files with the same logits."""

import importlib
from functools import partial

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints.config import Config, Shapes
from kerasvit.checkpoints.sources import timm_names
from kerasvit.checkpoints.sources.known import TIMM
from kerasvit.checkpoints.sources.timm_eva import TimmEva
from recipes.benchmarks.import_timm import import_timm
from tests.contract import to_numpy
from tests.random_weights import randomised

pytestmark = pytest.mark.slow

VIT = {"patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 24}
EVA02 = {"temperature": 10_000.0, "coordinates": "index", "reference": [2, 2]}
EVA02 |= {"pairs": "neighbours"}
HYBRID = {**VIT, "patch_size": 2, "resnet_depths": []}
# timm's Mixers and BiTs have widths and depths by name: these are the cheapest.
MIXER = {"patch_size": 32, "width": 512, "depth": 8}
MIXER |= {"tokens_mlp_dim": 6, "channels_mlp_dim": 10, "image_size": (32, 64)}
BIT = {"depths": [3], "width_factor": 0.5, "conv_epsilon": 1e-8}
# Arguments of timm's ViTs that change what is computed, and are not built here.
UNLIKE = {"embed_norm_layer", "block_fn", "attn_layer"}
UNLIKE |= {"pool_include_prefix", "scale_attn_norm", "qk_norm"}
RESNEXT = {
    "depths": [1] * 4, "groups": 2, "group_width": 4, "stem": "imagenet", "width": 32,
}  # fmt: skip
SWIN = {"width": 8, "depths": [2, 2], "num_heads": [1, 2], "window_size": 2}
PIT = {"patch_size": 4, "stride": 3, "width": 8, "depths": [1, 2], "num_heads": [1, 2]}
MODELS = {
    "ViT": (kerasvit.VisionTransformer, VIT),
    "ViT with Google's GELU": (
        kerasvit.VisionTransformer,
        {**VIT, "activation": "gelu_tanh"},
    ),
    "ViT, average": (kerasvit.VisionTransformer, {**VIT, "pool": "average"}),
    "ViT, average then norm": (
        kerasvit.VisionTransformer,
        {**VIT, "pool": "average_then_norm"},
    ),
    "ViT, attention": (kerasvit.VisionTransformer, {**VIT, "pool": "attention"}),
    "ViT, registers": (
        kerasvit.VisionTransformer,
        {**VIT, "register_tokens": 2, "qkv_bias": False},
    ),
    "ViT, features": (kerasvit.VisionTransformer, {**VIT, "num_classes": 0}),
    "DeiT III": (
        kerasvit.VisionTransformer,
        {**VIT, "positions": "patches", "layer_scale": 1e-6},
    ),
    "CLIP": (
        kerasvit.VisionTransformer,
        {
            **VIT,
            "pre_norm": True,
            "patch_bias": False,
            "activation": "quick_gelu",
            "epsilon": 1e-5,
        },
    ),
    "ViT, normalised before the blocks": (
        kerasvit.VisionTransformer,
        {**VIT, "pre_norm": True, "patch_bias": False},
    ),
    "DINOv2, giant": (
        kerasvit.VisionTransformer,
        {**VIT, "mlp": "swiglu", "layer_scale": 1e-5, "num_classes": 0},
    ),
    "DeiT, distilled": (kerasvit.DistilledVisionTransformer, VIT),
    "BEiT": (kerasvit.BEiTTransformer, {**VIT, "layer_scale": 0.1}),
    "BEiT, one table for all blocks": (
        kerasvit.BEiTTransformer,
        {**VIT, "position_bias": "shared", "qkv_bias": False},
    ),
    "BEiT, average": (
        kerasvit.BEiTTransformer,
        {**VIT, "pool": "average", "absolute_positions": True},
    ),
    "BEiT, class token": (
        kerasvit.BEiTTransformer,
        {**VIT, "pool": "token", "position_bias": "none", "absolute_positions": True},
    ),
    "DINOv3": (
        kerasvit.RotaryVisionTransformer,
        {**VIT, "register_tokens": 4, "qkv_bias": False, "layer_scale": 1e-5},
    ),
    "EVA-02": (
        kerasvit.RotaryVisionTransformer,
        {
            **VIT,
            "pool": "average_then_norm",
            "positions": "tokens",
            "rotary": EVA02,
            "key_bias": False,
            "mlp": "swiglu",
            "mlp_norm": True,
        },
    ),
    "EVA-02-CLIP, enormous": (
        kerasvit.RotaryVisionTransformer,
        {**VIT, "positions": "tokens", "rotary": None, "branch_norm": "after"},
    ),
    "Perception Encoder": (
        kerasvit.RotaryVisionTransformer,
        {
            **VIT,
            "pool": "attention",
            "pool_heads": 4,
            "positions": "tokens",
            "rotary": {**EVA02, "order": "xy", "offset": 1.0},
            "pre_norm": True,
            "patch_bias": False,
            "epsilon": 1e-5,
        },
    ),
    "RoPE-ViT, mixed": (
        kerasvit.RotaryVisionTransformer,
        {
            **VIT,
            "positions": "patches",
            "rotary": {**EVA02, "reference": None, "mixed": True},
        },
    ),
    "hybrid": (kerasvit.HybridVisionTransformer, HYBRID),
    "hybrid, average": (
        kerasvit.HybridVisionTransformer,
        {**HYBRID, "pool": "average", "activation": "gelu_tanh"},
    ),
    "Mixer": (kerasvit.MLPMixer, MIXER),
    "BiT": (kerasvit.BigTransfer, BIT),
    "ResNeXt": (kerasvit.ResNeXt, RESNEXT),
    "Swin": (kerasvit.SwinTransformer, SWIN),
    "PiT": (
        kerasvit.PoolingVisionTransformer,
        {**PIT, "mlp_ratio": 2.5, "distilled": False},
    ),
    "PiT, distilled": (kerasvit.PoolingVisionTransformer, {**PIT, "distilled": True}),
}


def test_a_working_timm_is_not_changed(timm, monkeypatch):
    import_module, asked = importlib.import_module, []
    monkeypatch.setattr(
        "recipes.benchmarks.import_timm._define_operators", lambda: asked.append(1)
    )
    assert import_timm() is timm and not asked

    def broken(name):
        if name == "timm" and not asked:
            raise RuntimeError("operator torchvision::nms does not exist")
        return import_module(name)

    monkeypatch.setattr(importlib, "import_module", broken)
    assert import_timm() is timm and asked == [1]


def small(name="ViT", **changes):
    builder, kwargs = MODELS[name]
    options = {"image_size": (8, 16), "num_classes": 3, **kwargs, **changes}
    return randomised(builder(**options))


def same_logits(model, reference):
    import torch

    shape = (2, *model.input_shape[1:])
    images = np.random.default_rng(1).normal(size=shape).astype("float32")
    with torch.no_grad():
        found = reference.eval()(torch.from_numpy(images.transpose(0, 3, 1, 2)).clone())
    expected = to_numpy(model(images))
    assert np.isfinite(expected).all()  # NaN equals NaN below
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())


def timm_model(timm, folder):
    return timm.create_model(f"local-dir:{folder}", pretrained=True)


def save_timm_model(timm, name, folder, resize=None, **arguments):
    """Saves a small model of timm in a folder and returns the model."""
    model = timm.create_model(name, num_classes=3, **arguments)
    for parameter in model.parameters():
        if not parameter.any():  # such as the head
            parameter.data.normal_(std=0.1)
    if resize:
        model.set_input_size(img_size=resize)
    timm.models.save_for_hf(model, folder, safe_serialization=True)
    return model


def test_every_architecture_that_is_written_for_timm_is_here():
    builders = {source.builder for source in TIMM}
    assert {builder.__name__ for builder, _ in MODELS.values()} == builders


@pytest.mark.parametrize("name", MODELS)
def test_timm_loads_and_saves_our_folders(timm, name, tmp_path):
    model = small(name)
    kerasvit.save_pretrained(model, tmp_path / "ours")
    reference = timm_model(timm, tmp_path / "ours")
    same_logits(model, reference)
    timm.models.save_for_hf(reference, tmp_path / "timms", safe_serialization=True)
    again = kerasvit.from_pretrained(tmp_path / "timms")
    same_logits(again, reference)
    assert again.record["kwargs"] == model.record["kwargs"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("vit_tiny_patch16_224", {"patch_size": 8, "embed_dim": 12, "depth": 1}),
        ("vit_base_patch16_siglip_224", {"patch_size": 8, "embed_dim": 24, "depth": 1}),
        ("vit_base_patch16_gap_224", {"patch_size": 8, "embed_dim": 48, "depth": 1}),
        ("vit_base_patch16_clip_224", {"patch_size": 8, "embed_dim": 24, "depth": 1}),
        (
            "vit_large_patch14_clip_quickgelu_336",
            {"patch_size": 8, "embed_dim": 32, "depth": 1},
        ),
        (
            "vit_base_patch16_plus_clip_240",
            {"patch_size": 8, "embed_dim": 28, "depth": 1},
        ),
        ("vit_giant_patch14_dinov2", {"patch_size": 8, "embed_dim": 48, "depth": 1}),
        (
            "vit_giant_patch14_reg4_dinov2",
            {"patch_size": 8, "embed_dim": 48, "depth": 1},
        ),
        (
            "vit_small_patch14_reg4_dinov2",
            {"patch_size": 8, "embed_dim": 12, "depth": 1},
        ),
        ("eva_large_patch14_196", {"patch_size": 8, "embed_dim": 32, "depth": 1}),
        ("flexivit_base", {"patch_size": 8, "embed_dim": 24, "depth": 1}),
        ("vit_base_patch32_plus_256", {"patch_size": 8, "embed_dim": 28, "depth": 1}),
        ("vit_base_patch32_siglip_256", {"patch_size": 8, "embed_dim": 24, "depth": 1}),
        ("deit3_small_patch16_224", {"patch_size": 8, "embed_dim": 12, "depth": 1}),
        ("deit_tiny_distilled_patch16_224", {"embed_dim": 12, "depth": 1}),
        ("vit_tiny_r_s16_p8_224", {"patch_size": 2, "embed_dim": 12, "depth": 1}),
        ("beit_base_patch16_384", {"embed_dim": 24, "depth": 1}),
        ("beitv2_large_patch16_224", {"embed_dim": 32, "depth": 1}),
        ("vit_small_plus_patch16_dinov3", {"embed_dim": 24, "depth": 2}),
        ("vit_base_patch16_dinov3_qkvb", {"embed_dim": 48, "depth": 2}),
        ("vit_giant_patch16_lingbot", {"embed_dim": 96, "depth": 1}),
        ("eva02_small_patch14_224", {"patch_size": 8, "embed_dim": 24, "depth": 2}),
        ("eva02_base_patch14_224", {"patch_size": 8, "embed_dim": 48, "depth": 2}),
        ("eva_giant_patch14_224", {"patch_size": 8, "embed_dim": 64, "depth": 2}),
        ("eva02_base_patch16_clip_224", {"embed_dim": 48, "depth": 2}),
        (
            "eva02_enormous_patch14_clip_224",
            {"patch_size": 8, "embed_dim": 32, "depth": 2},
        ),
        ("vit_pe_core_base_patch16_224", {"embed_dim": 64, "num_heads": 8}),
        (
            "vit_pe_lang_large_patch14_448",
            {"patch_size": 8, "embed_dim": 64, "depth": 2},
        ),
        ("vit_small_patch16_rope_mixed_ape_224", {"embed_dim": 24, "depth": 2}),
        ("vit_base_patch16_rope_reg1_gap_256", {"embed_dim": 48, "depth": 2}),
        ("mixer_s32_224", {"mlp_ratio": (0.02, 0.03)}),
        ("resnetv2_50x1_bit", {"stem_chs": 32, "channels": [128, 256]}),
        ("resnet50", {"layers": [1] * 4, "channels": [8, 16, 32, 64]}),
        (
            "swin_tiny_patch4_window7_224",
            {"embed_dim": 8, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4},
        ),
        ("pit_ti_224", {"base_dims": [4, 4, 4]}),
        ("pit_b_distilled_224", {"base_dims": [4, 4, 4], "depth": [1, 1, 1]}),
    ],
)
def test_timms_own(timm, name, arguments, tmp_path):
    size = {} if name.startswith("resn") else {"img_size": 32}
    reference = save_timm_model(timm, name, tmp_path, **size, **arguments)
    size = {} if size else {"image_size": 32}
    same_logits(kerasvit.from_pretrained(tmp_path, **size), reference)


OWN = {
    "vit_giant_patch14_dinov2": {"patch_size": 8, "embed_dim": 48, "depth": 1},
    "vit_tiny_patch16_224": {"patch_size": 8, "embed_dim": 12, "depth": 1},
    "vit_tiny_r_s16_p8_224": {"patch_size": 2, "embed_dim": 12, "depth": 1},
    "swin_tiny_patch4_window7_224": {
        "embed_dim": 8, "depths": [2, 2], "num_heads": [1, 2], "window_size": 4,
    },
    "beit_base_patch16_224": {"patch_size": 8, "embed_dim": 24, "depth": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "size"), [*zip(OWN, [(32, 64), (32, 64), (64, 32), (64, 64), (32, 64)])]
)
def test_timms_own_at_another_size(timm, name, size, tmp_path):
    reference = save_timm_model(
        timm, name, tmp_path, img_size=32, resize=size, **OWN[name]
    )
    model = kerasvit.from_pretrained(tmp_path)
    assert model.input_shape == (None, *size, 3)
    same_logits(model, reference)


@pytest.mark.parametrize(
    "arguments",
    [
        {"img_size": 112, "window_size": (14, 14, 7), "patch_size": 4},
        {"img_size": 32, "window_size": ((4, 4), (4, 4), (2, 2))},
        {"img_size": (32, 64), "window_size": ((4, 4), (4, 4), (3, 4))},
        {"img_size": 64, "window_size": 4, "head_dim": 8},
        {"img_size": 64, "window_size": 4, "head_dim": (8, 8, 8)},
    ],
    ids=str,
)
def test_swins_with_other_spellings(timm, arguments, tmp_path):
    numbers = {"embed_dim": 8, "depths": [1, 1, 2], "num_heads": [1, 2, 4]}
    name = "swin_tiny_patch4_window7_224"
    reference = save_timm_model(timm, name, tmp_path, **numbers, **arguments)
    same_logits(kerasvit.from_pretrained(tmp_path), reference)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("vit_tiny_patch16_224", {"global_pool": "map", "fc_norm": True}, "fc_norm"),
        ("vit_tiny_patch16_224", {"act_layer": "silu"}, "activation 'silu'"),
        ("vit_giant_patch14_dinov2", {"act_layer": "gelu"}, "gated MLPs with 'gelu'"),
        ("vit_giant_patch14_dinov2", {"global_pool": "map"}, "SiLU"),
        ("vit_tiny_r_s16_p8_224", {"no_embed_class": True}, "no_embed_class"),
        ("vit_tiny_r_s16_p8_224", {"reg_tokens": 2}, "reg_tokens"),
        ("swin_tiny_patch4_window7_224", {"window_size": (4, 2)}, r"\[4, 2\]"),
        ("swin_tiny_patch4_window7_224", {"head_dim": 4}, "head_dim=4"),
        ("swin_tiny_patch4_window7_224", {"resize": (32, 64)}, r"\[\[4, 8\], "),
        ("beit_base_patch16_224", {"swiglu_mlp": True}, "swiglu_mlp=True"),
        ("beit_base_patch16_224", {"use_shared_rel_pos_bias": True}, "either"),
    ],
)
def test_models_that_timm_computes_differently_raise(
    timm, name, arguments, message, tmp_path
):
    # 2 × 5 cells and none for the class token would be 3 × 3 and one.
    size = (16, 40) if arguments == {"no_embed_class": True} else 32
    save_timm_model(
        timm, name, tmp_path, **{**OWN[name], "img_size": size, **arguments}
    )
    with pytest.raises(kerasvit.CheckpointError, match=message):
        kerasvit.from_pretrained(tmp_path)


def test_arguments_of_timms_plain_vits(timm, monkeypatch):
    vit, deit = timm.models.vision_transformer, timm.models.deit
    for module, maker in (
        (vit, "_create_vision_transformer"),
        (deit, "_create_deit"),
    ):
        monkeypatch.setattr(module, maker, lambda name, **kwargs: kwargs)
    for name in (
        n for m in ("vision_transformer", "deit") for n in timm.list_models(module=m)
    ):
        kwargs, config = timm.model_entrypoint(name)(), Config(architecture=name)
        norm = kwargs.get("norm_layer", partial(timm.layers.LayerNorm, eps=1e-6))
        layer = getattr(norm, "func", norm)
        gated = kwargs.get("mlp_layer") is timm.layers.SwiGLUPacked
        others = layer is not timm.layers.LayerNorm
        others |= "mlp_layer" in kwargs and not gated
        if others or UNLIKE & set(kwargs):
            with pytest.raises(kerasvit.CheckpointError, match=f"{name} has"):
                timm_names.check_supported(config)
            continue
        timm_names.check_supported(config)
        assert timm_names.heads(config) == kwargs["num_heads"], name
        built = "gelu" if gated else kwargs.get("act_layer", "gelu")
        assert timm_names.activation(config, gated) == built, name
        assert timm_names.epsilon(Shapes(), config) == norm.keywords["eps"], name
        positions = kwargs.get("no_embed_class", False)
        assert timm_names.no_embed_class(config) == positions, name
    for module in ("eva", "vision_transformer_relpos", "beit"):
        for name in timm.list_models(module=module):
            if module == "eva" and TimmEva().named(Config(architecture=name)):
                continue
            with pytest.raises(kerasvit.CheckpointError, match=name):
                timm_names.check_supported(Config(architecture=name))


def test_fine_tuned_with_sam_at_another_size(timm, tmp_path):
    kerasvit.save_pretrained(small(activation="gelu_tanh"), tmp_path / "before")
    model = kerasvit.from_pretrained(
        tmp_path / "before", num_classes=5, image_size=(16, 12), dropout=0.1
    )
    trainer = kerasvit.SAM(model, rho=0.05)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile("adam", loss)
    images = np.random.default_rng(2).normal(size=(6, 16, 12, 3)).astype("float32")
    trainer.fit(images, np.arange(6) % 5, batch_size=2, verbose=0)
    trainer.model.record["label_names"] = list("abcde")
    kerasvit.save_pretrained(trainer.model, tmp_path / "after")
    reference = timm_model(timm, tmp_path / "after")
    assert reference.pretrained_cfg["label_names"] == list("abcde")
    assert tuple(reference.pretrained_cfg["input_size"]) == (3, 16, 12)
    same_logits(trainer.model, reference)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_the_size(timm, dtype, tmp_path):
    kerasvit.save_pretrained(small(), tmp_path, dtype=dtype)
    same_logits(kerasvit.from_pretrained(tmp_path), timm_model(timm, tmp_path))


def test_over_the_hub_and_back(timm, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "good")
    model = small()
    kerasvit.push_to_hub(model, "me/ours")
    reference = timm.create_model("hf-hub:me/ours", pretrained=True)
    same_logits(model, reference)
    timm.models.push_to_hf_hub(reference, "me/timms", safe_serialization=True)
    same_logits(kerasvit.from_pretrained("hf://me/timms"), reference)


@pytest.mark.parametrize(
    "name", ["ViT", "DeiT, distilled", "hybrid", "BiT", "Swin", "BEiT"]
)
def test_timm_gives_it_a_new_head(timm, name, tmp_path):
    kerasvit.save_pretrained(small(name), tmp_path)
    reference = timm.create_model(
        f"local-dir:{tmp_path}", pretrained=True, num_classes=7
    )
    assert reference.num_classes == 7
    own = timm.get_pretrained_cfg(reference.pretrained_cfg["architecture"])
    for key in ("first_conv", "fixed_input_size"):
        assert reference.pretrained_cfg[key] == getattr(own, key)
    reference.reset_classifier(0)
    same_logits(kerasvit.from_pretrained(tmp_path, num_classes=0), reference)
