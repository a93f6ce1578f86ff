"""Settings implied by the architecture's name in timm's `config.json`."""

import pytest

from kerasvit.checkpoints import CheckpointError
from kerasvit.checkpoints.config import Config, Shapes
from kerasvit.checkpoints.sources import timm_names
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]


@pytest.mark.parametrize(
    ("name", "heads", "activation", "patches_only"),
    [
        ("vit_tiny_patch16_224", 3, "gelu", False),
        ("vit_base_patch16_224.augreg_in21k", 12, "gelu", False),
        ("vit_base_patch16_224_in21k", 12, "gelu", False),
        ("vit_base_patch16_gap_224", 16, "gelu", False),
        ("vit_base_patch32_plus_256", 14, "gelu", False),
        ("vit_base_patch32_siglip_gap_256", 12, "gelu_tanh", False),
        ("vit_base_patch16_siglip_512", 12, "gelu", False),
        ("vit_large_patch16_siglip_384", 16, "gelu", False),
        ("vit_large_patch16_siglip_512", 16, "gelu_tanh", False),
        ("vit_so400m_patch14_siglip_384", 16, "gelu", False),
        ("vit_so400m_patch16_siglip_384", 16, "gelu_tanh", False),
        ("vit_so150m2_patch16_reg1_gap_256", 13, "gelu", False),
        ("vit_small_patch14_reg4_dinov2", 6, "gelu", True),
        ("vit_small_patch14_dinov2", 6, "gelu", False),
        ("flexivit_large", 16, "gelu", True),
        ("deit3_medium_patch16_224", 8, "gelu", True),
        ("deit_base_distilled_patch16_384", 12, "gelu", False),
        ("eva_large_patch14_196", 16, "gelu", False),
        ("vit_base_patch16_clip_224.laion2b", 12, "gelu", False),
        ("vit_large_patch14_clip_quickgelu_336", 16, "quick_gelu", False),
        ("vit_base_patch16_plus_clip_240", 14, "gelu", False),
        ("vit_xsmall_patch16_clip_224", 4, "gelu", False),
        ("vit_base_r50_s16_224", 12, "gelu", False),
    ],
)
def test_arguments_that_a_name_determines(name, heads, activation, patches_only):
    config = Config(architecture=name)
    timm_names.check_supported(config)
    assert timm_names.heads(config) == heads
    assert timm_names.activation(config) == activation
    assert timm_names.no_embed_class(config) == patches_only


def test_arguments_win_over_the_name():
    args = {"num_heads": 7, "act_layer": "gelu", "no_embed_class": True}
    config = Config(architecture="vit_base_patch32_siglip_256", model_args=args)
    assert timm_names.heads(config) == 7
    assert timm_names.activation(config) == "gelu"
    assert timm_names.no_embed_class(config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architecture": "vit_base_patch16_rpn_224"}, "after the branches"),
        ({"architecture": "aimv2_large_patch14_224"}, "SwiGLU"),
        ({"architecture": "vit_base_patch16_sapiens2"}, "grouped queries"),
        ({"architecture": "beit3_base_patch16_224"}, "inside its branches"),
        ({"architecture": "vit_relpos_base_patch16_224"}, "relative"),
        ({"architecture": "vit_base_patch16_new_224"}, "does not know.*num_heads"),
        ({"model_args": {"norm_layer": "rmsnorm"}}, "arguments norm_layer"),
    ],
    ids=str,
)
def test_unsupported_vits_of_timm_raise(config, message):
    with pytest.raises(CheckpointError, match=message):
        timm_names.check_supported(Config(config))


def test_another_activation_raises():
    config = Config(model_args={"act_layer": "silu"})
    with pytest.raises(CheckpointError, match="activation 'silu'.*quick_gelu"):
        timm_names.activation(config)


def test_the_gates_of_a_giant_have_silu():
    config = Config(architecture="vit_giant_patch14_reg4_dinov2.lvd142m")
    timm_names.check_supported(config)
    assert timm_names.heads(config) == 24
    assert timm_names.activation(config, gated=True) == "gelu"  # of no layer
    stated = Config({**config, "model_args": {"act_layer": "gelu"}})
    with pytest.raises(CheckpointError, match="gated MLPs with 'gelu'"):
        timm_names.activation(stated, gated=True)


@pytest.mark.parametrize(
    ("config", "epsilon"),
    [
        ({"architecture": "vit_base_patch16_clip_224.openai"}, 1e-5),
        ({"architecture": "vit_base_patch16_224"}, 1e-6),
        ({}, 1e-5),
    ],
)
def test_clips_have_another_epsilon(config, epsilon):
    shapes = Shapes({"norm_pre.weight": (4,)})
    assert timm_names.epsilon(shapes, Config(config)) == epsilon
