"""Exact counts, and none forgotten.

Parameters with 1000 classes at 224 pixels, where a variant has no other: those of ViT
and of the hybrids are in google-research/vision_transformer vit_jax/models_test.py;
S/8, S/14, R50+B/32, R50+L/16 and the variations follow from the same arithmetic.
Multiply-adds, in 10⁹, as papers and timm print them, with the two products of
attention; hybrids' by hand, in test_hybrid.py.
"""

import math

import keras
import pytest

import kerasvit

from .counting import count, multiply_adds

COUNTS = {
    "ViTTi16": (5_717_416, 1.25),
    "ViTS32": (22_878_952, 1.14),
    "ViTS16": (22_050_664, 4.60),
    "ViTS14": (22_004_584, 6.12),
    "ViTS8": (22_055_272, 22.41),
    "ViTB32": (88_224_232, 4.41),
    "ViTB16": (86_567_656, 17.56),
    "ViTB8": (86_576_872, 78.15),
    "ViTL32": (306_535_400, 15.38),
    "ViTL16": (304_326_632, 61.55),
    "ViTH14": (632_045_800, 167.3),
    "RViTTi16": (6_337_704, 0.43),
    "R26ViTS32": (36_431_912, 3.46),
    "R26ViTB32": (101_383_976, 6.71),
    "R50ViTB32": (110_945_832, 8.46),
    "R50ViTB16": (98_659_112, 21.54),
    "R50ViTL32": (328_994_856, 19.41),
    "R50ViTL16": (316_483_624, 65.54),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters(name):
    assert count(name) == COUNTS[name][0]


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX counts for all")
@pytest.mark.parametrize("name", COUNTS)
def test_multiply_adds(name):
    printed = COUNTS[name][1]
    digits = len(str(printed).partition(".")[2])
    assert round(count(name, multiply_adds) / 1e9, digits) == printed


@pytest.mark.parametrize("name", COUNTS)
def test_the_row_shows_both(name):
    row = getattr(kerasvit, name)
    assert (row.parameters, row.multiply_adds) == COUNTS[name]
    assert f"{COUNTS[name][0]:,} parameters" in repr(row)


def test_the_shortcut_is_the_whole_model():
    assert kerasvit.ViTTi16().count_params() == COUNTS["ViTTi16"][0]


def test_no_variant_is_missing_here():
    assert set(kerasvit.list_models()) == set(COUNTS)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"representation_size": 768}, 87_158_248),
        ({"image_size": 384}, 86_859_496),
        ({"pool": "average"}, 86_566_120),
        ({"pool": "average_then_norm"}, 86_566_120),
        ({"num_classes": 0}, 86_567_656 - 769_000),
        ({"num_classes": 21843}, 86_567_656 + 769 * 20_843),
        ({"num_classes": 0, "representation_size": 768}, 87_158_248 - 769_000),
        ({"positions": "sincos2d"}, 86_567_656 - 197 * 768),
        ({"register_tokens": 4, "positions": "patches"}, 86_567_656 + 3 * 768),
        ({"register_tokens": 4}, 86_567_656 + 8 * 768),
        ({"layer_scale": 1e-5}, 86_567_656 + 12 * 2 * 768),
        ({"qkv_bias": False}, 86_567_656 - 12 * 3 * 768),
    ],
)
def test_variation_of_b16(changes, expected):
    assert count("ViTB16", **changes) == expected


def test_attention_pooling_adds_a_block_without_its_first_norm():
    extra = math.prod((768,)) + 4 * 768 * 769 + 2 * 768 + 2 * 768 * 3072 + 3072 + 768
    assert count("ViTB16", pool="attention") == 86_566_120 + extra
