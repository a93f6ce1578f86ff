"""Exact counts, and none forgotten.

With 1000 classes at 224 pixels: google-research/vision_transformer
vit_jax/models_test.py; S/8, S/14 and the variations follow from the same arithmetic.
"""

import math

import pytest

import kerasvit

COUNTS = {
    "ViTTi16": 5_717_416,
    "ViTS32": 22_878_952,
    "ViTS16": 22_050_664,
    "ViTS14": 22_004_584,
    "ViTS8": 22_055_272,
    "ViTB32": 88_224_232,
    "ViTB16": 86_567_656,
    "ViTB8": 86_576_872,
    "ViTL32": 306_535_400,
    "ViTL16": 304_326_632,
    "ViTH14": 632_045_800,
}


def count(name, **changes):
    # One block and another tell the size of all: none of the large is allocated.
    variant = getattr(kerasvit, name)
    one, two = (variant(depth=depth, **changes).count_params() for depth in (1, 2))
    return one + (variant.numbers["depth"] - 1) * (two - one)


@pytest.mark.parametrize("name", COUNTS)
def test_count(name):
    assert count(name) == COUNTS[name]


def test_the_shortcut_is_the_whole_model():
    assert kerasvit.ViTTi16().count_params() == COUNTS["ViTTi16"]


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
