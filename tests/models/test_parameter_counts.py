"""Exact parameter counts of all variants.

Parameters with 1000 classes at 224 pixels, where a variant has no other: those of ViT
and of the hybrids are in google-research/vision_transformer vit_jax/models_test.py;
S/8, S/14, R50+B/32, R50+L/16 and the variations follow from the same arithmetic.
Multiply-adds, in 10⁹, as papers and timm print them, with the two products of
attention; hybrids' by hand, in test_hybrid.py.
"""

import math
import re

import pytest

import kerasvit
from tests.once import on_last_backend

from .counting import count, multiply_adds

pytestmark = pytest.mark.slow

COUNTS = {
    "SwinT": (28_288_354, 4.5),
    "SwinS": (49_606_258, 8.7),
    "SwinB": (87_768_224, 15.4),
    "SwinL": (196_532_476, 34.5),
    # SwinT's with 45·96 fewer for patches of 1 × 1, 13,248 for query, key and value
    # without bias, 120 fewer in each of 138 tables of a head, and 900·769 for 100
    # classes.
    "SwinTiCIFAR": (28_288_354 - 4_320 - 13_248 - 120 * 138 - 900 * 769, 1.43),
    "SwinS3T": (28_328_674, 4.62),
    "SwinS3S": (49_737_298, 9.4),
    "SwinS3B": (71_125_762, 13.66),
    "PiTTi16": (4_847_272, 0.70),
    "PiTXS16": (10_618_888, 1.39),
    "PiTS16": (23_461_912, 2.87),
    "PiTB14": (73_764_840, 12.40),
    # Another token, 64 numbers, and another head of 257 · 1000.
    "PiTTi16Distilled": (4_847_272 + 64 + 257_000, 0.70),
    "PiTXS16Distilled": (10_618_888 + 96 + 385_000, 1.41),
    "PiTS16Distilled": (23_461_912 + 144 + 577_000, 2.90),
    "PiTB14Distilled": (73_764_840 + 256 + 1_025_000, 12.48),
    # PiTTi16's with 48·252 fewer for patches of 2 × 2, 64·(729 - 961) for positions, 3
    # biases of 64, 128 and 256 numbers in 2, 6 and 4 blocks, and 257·900 for classes.
    "PiTTiCIFAR": (
        4_847_272 - 64 * 756 + 64 * 232 - 3 * (128 + 768 + 1024) - 257 * 900,
        0.95,
    ),
    "ViTTi16": (5_717_416, 1.25),
    "ViTS32": (22_878_952, 1.14),
    "ViTS16": (22_050_664, 4.60),
    "ViTS14": (22_004_584, 6.12),
    "ViTS8": (22_055_272, 22.41),
    "ViTB32": (88_224_232, 4.41),
    "ViTB16": (86_567_656, 17.56),
    "ViTB14": (86_475_496, 23.16),
    "ViTB8": (86_576_872, 78.15),
    "ViTL32": (306_535_400, 15.38),
    "ViTL16": (304_326_632, 61.55),
    "ViTL14": (304_203_752, 81.01),
    "ViTSo400M16": (413_735_896, 83.57),
    "ViTSo400M14": (413_597_656, 109.93),
    "ViTH14": (632_045_800, 167.3),
    # Of each block, three products of 1536 · 4096 are the gated MLP, and 2 · 1536
    # parameters LayerScale.
    "ViTg14": (1_136_306_664, 299.39),
    # timm's sizes, with a class token and without LayerScale.
    "ViTWee16": (13_400_296, 2.85),
    "ViTLittle16": (22_487_208, 4.69),
    "ViTM16": (38_837_736, 7.99),
    "ViTMDeep16": (64_056_808, 13.27),
    "ViTBetwixt16": (60_343_400, 12.31),
    "ViTSo150M16": (134_072_424, 27.42),
    "ViTSo150MDeep16": (136_027_112, 27.92),
    "DINOv3Ti16": (5_682_664, 1.74),
    "DINOv3g16": (1_136_010_216, 304.25),
    "EVA02CLIPB16": (86_638_312, 17.56),
    "EVA02CLIPL14": (304_342_952, 81.00),
    "EVA02CLIPE14": (4_350_513_896, 1132.16),
    "EVACLIPg14": (1_012_555_112, 267.03),
    "RoPEAxialViTS16": (21_984_232, 4.60),
    "RoPEAxialViTB16": (86_434_792, 17.56),
    "RoPEAxialViTL16": (304_174_056, 61.55),
    "RoPEMixedViTS16": (21_988_840, 4.60),
    "RoPEMixedViTB16": (86_444_008, 17.56),
    "RoPEMixedViTL16": (304_198_632, 61.55),
    "RoPEViTM16": (38_743_016, 10.61),
    "RoPEViTMDeep16": (63_945_704, 17.62),
    "RoPEViTBetwixt16": (60_226_920, 16.50),
    "RoPEViTB16": (86_425_576, 23.20),
    "DINOv3S16": (21_971_944, 6.25),
    "DINOv3SPlus16": (29_068_264, 8.09),
    "DINOv3B16": (86_410_216, 23.58),
    "DINOv3L16": (304_104_424, 82.37),
    "DINOv3HPlus16": (841_790_440, 224.78),
    "DINOv37B16": (6_720_127_976, 1774.67),
    "EVA02Ti14": (5_695_144, 1.70),
    "EVA02S14": (22_006_120, 6.12),
    "EVA02B14": (86_527_720, 23.16),
    "EVA02L14": (304_293_800, 81.00),
    "EVAg14": (1_012_555_112, 267.03),
    "PECoreTi16": (6_235_240, 4.73),
    "PECoreS16": (23_971_048, 15.66),
    "PECoreB16": (93_655_528, 17.80),
    "PECoreL14": (317_127_656, 192.18),
    "PECoreG14": (1_881_603_560, 2059.32),
    "PESpatialTi16": (5_876_200, 10.43),
    "PESpatialS16": (22_368_232, 31.75),
    "PESpatialB16": (87_202_792, 107.03),
    "PESpatialL14": (304_989_160, 361.80),
    "PESpatialG14": (1_853_424_104, 2054.46),
    "PELangL14": (292_440_040, 346.75),
    "PELangG14": (1_742_459_624, 1931.25),
    "BEiTB16": (86_530_984, 17.56),
    "BEiTL16": (304_430_568, 61.55),
    "RViTTi16": (6_337_704, 0.43),
    "R26ViTS32": (36_431_912, 3.46),
    "R26ViTB32": (101_383_976, 6.71),
    "R50ViTB32": (110_945_832, 8.46),
    "R50ViTB16": (98_659_112, 21.54),
    "R50ViTL32": (328_994_856, 19.41),
    "R50ViTL16": (316_483_624, 65.54),
    # No paper prints these. With D = 192, M = 768, L = 12, N = 64 patches of 4·4·3 = 48
    # numbers and 100 classes, the parameters are 48·D + D + D + (N + 1)·D for the
    # embedding, its bias, class token and positions; a block's 3·D² + D² + D for
    # attention, 2·D·M + M + D for the MLP, 4·D for its norms; 2·D for the last norm and
    # 100·D + 100 for the head. Without the class token, 2·D less; post-norm has
    # no last norm. The first is also what the reference's `vit.tiny` counts.
    # Multiply-adds, of T = N + 1 tokens (T = N for the average): N·48·D + 100·D and a
    # block's 4·T·D² + 2·T²·D + 2·T·D·M. A window masks products, it saves none.
    "ViTTi4CIFAR": (5_373_220, 0.365),
    "ViTTi4CIFARLocal3": (5_373_220, 0.365),
    "ViTTi4CIFARLocal5": (5_373_220, 0.365),
    "ViTTi4CIFARAverage": (5_372_836, 0.359),
    "ViTTi4CIFARPostNorm": (5_372_836, 0.365),
    "MixerS32": (19_104_624, 1.00),
    "MixerS16": (18_528_264, 3.78),
    "MixerS8": (20_646_504, 14.88),
    "MixerB32": (60_293_428, 3.24),
    "MixerB16": (59_880_472, 12.60),
    "MixerB8": (64_864_168, 50.06),
    "MixerL32": (206_939_264, 11.25),
    "MixerL16": (208_196_168, 44.55),
    "MixerH14": (432_350_952, 120.99),
    "DeiTTi16": (5_717_416, 1.25),
    "DeiTS16": (22_050_664, 4.60),
    "DeiTB16": (86_567_656, 17.56),
    "DeiTTi16Distilled": (5_910_800, 1.26),
    "DeiTS16Distilled": (22_436_432, 4.62),
    "DeiTB16Distilled": (87_338_192, 17.66),
    "DeiT3S16": (22_059_496, 4.60),
    "DeiT3M16": (38_849_512, 7.99),
    "DeiT3B16": (86_585_320, 17.56),
    "DeiT3L16": (304_374_760, 61.55),
    "DeiT3H14": (632_126_440, 167.3),
    "AlterNet18": (9_968_803, 1.67),
    "AlterNet34": (22_833_054, 3.60),
    "AlterNet50": (35_915_038, 5.01),
    # 8,724,844,544 products
    "AlterNet101": (54_907_166, 8.72),
    "AlterNet152": (70_550_814, 12.44),
    "AlterNet18CIFAR": (9_499_063, 0.50),
    "AlterNet34CIFAR": (22_362_954, 1.12),
    "AlterNet50CIFAR": (34_062_538, 1.58),
    "AlterNet101CIFAR": (53_054_666, 2.79),
    "AlterNet152CIFAR": (68_698_314, 4.00),
    "AlterNet50CIFAR100": (33_012_840, 1.51),
    "PreActResNet18": (11_687_720, 1.81),
    "PreActResNet34": (21_795_880, 3.66),
    "PreActResNet50": (25_549_352, 4.09),
    "PreActResNet101": (44_541_480, 7.80),
    "PreActResNet152": (60_185_128, 11.51),
    "PreActResNet18CIFAR": (11_218_340, 0.56),
    "PreActResNet34CIFAR": (21_326_500, 1.16),
    "PreActResNet50CIFAR": (23_697_572, 1.30),
    "PreActResNet101CIFAR": (42_689_700, 2.51),
    "PreActResNet152CIFAR": (58_333_348, 3.72),
    # timm's parameters; it prints 4.26, 8.01, 16.48 and 15.52, with those of norms.
    "ResNeXt50": (25_028_904, 4.23),
    "ResNeXt101x32x4d": (44_177_704, 7.97),
    "ResNeXt101x32x8d": (88_791_336, 16.41),
    "ResNeXt101x64x4d": (83_455_272, 15.46),
    # 40 · 3 · 64 fewer in the stem and 900 · 2049 in the head.
    "ResNeXt50CIFAR": (25_028_904 - 7_680 - 1_844_100, 1.34),
    "BiTR50x1": (25_549_352, 4.09),
    "BiTR50x2": (97_988_712, 16.12),
    "BiTR50x3": (217_319_080, 36.08),
    "BiTR101x1": (44_541_480, 7.80),
    "BiTR101x2": (173_852_776, 30.97),
    "BiTR101x3": (387_934_888, 69.49),
    "BiTR152x1": (60_185_128, 11.51),
    "BiTR152x2": (236_335_208, 45.81),
    "BiTR152x4": (936_533_224, 182.78),
    "BiTR200x3": (568_633_000, 134.35),
}


# The larger variants have the same kinds of blocks as the smallest.
LARGER = re.compile(r"(34|50(?!x1)|101|152|200|[MBLHGEg]\d|Swin(S3)?[SBL]|PiT(X?S))")
IN_TURN = [
    pytest.param(name, marks=[pytest.mark.long] if LARGER.search(name) else [])
    for name in COUNTS
]


@on_last_backend
@pytest.mark.parametrize("name", IN_TURN)
def test_parameters(name):
    assert count(name) == COUNTS[name][0]


@pytest.mark.only_on("jax", reason="JAX counts for all")
@pytest.mark.parametrize("name", IN_TURN)
def test_multiply_adds(name):
    printed = COUNTS[name][1]
    digits = len(str(printed).partition(".")[2])
    assert round(count(name, multiply_adds) / 1e9, digits) == printed


@on_last_backend
@pytest.mark.parametrize("name", COUNTS)
def test_the_row_shows_both(name):
    row = getattr(kerasvit, name)
    assert (row.parameters, row.multiply_adds) == COUNTS[name]
    assert f"{COUNTS[name][0]:,} parameters" in repr(row)


def test_the_shortcut_is_the_whole_model():
    assert kerasvit.ViTTi16().count_params() == COUNTS["ViTTi16"][0]


def test_no_variant_is_missing_here():
    assert set(kerasvit.list_models()) == set(COUNTS)


@on_last_backend
@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"representation_size": 768}, 87_158_248),
        ({"image_size": 384}, 86_859_496),
        ({"pool": "average"}, 86_566_120),
        ({"pool": "average_then_norm"}, 86_566_120),
        ({"pool": "token_and_average"}, 86_567_656 + 768 * 1000),
        ({"num_classes": 0}, 86_567_656 - 769_000),
        ({"num_classes": 21843}, 86_567_656 + 769 * 20_843),
        ({"num_classes": 0, "representation_size": 768}, 87_158_248 - 769_000),
        ({"positions": "sincos2d"}, 86_567_656 - 197 * 768),
        ({"register_tokens": 4, "positions": "patches"}, 86_567_656 + 3 * 768),
        ({"register_tokens": 4}, 86_567_656 + 8 * 768),
        ({"layer_scale": 1e-5}, 86_567_656 + 12 * 2 * 768),
        ({"qkv_bias": False}, 86_567_656 - 12 * 3 * 768),
        ({"patch_bias": False, "pre_norm": True}, 86_567_656 - 768 + 2 * 768),
        ({"mlp": "swiglu"}, 86_567_656 + 12 * (768 * 3072 + 3072)),
    ],
)
def test_variation_of_b16(changes, expected):
    assert count("ViTB16", **changes) == expected


def test_attention_pooling_adds_a_block_without_its_first_norm():
    extra = math.prod((768,)) + 4 * 768 * 769 + 2 * 768 + 2 * 768 * 3072 + 3072 + 768
    assert count("ViTB16", pool="attention") == 86_566_120 + extra
