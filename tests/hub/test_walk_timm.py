"""The registry walk: kerasvit opens most of timm's models of its families."""

import pytest

from tests.hub import walk_timm
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]

OPEN = (
    "vit_base_patch16_dinov3_qkvb.lvd1689m",
    "vit_small_plus_patch16_dinov3.lvd1689m",
    "eva02_tiny_patch14_336.mim_in22k_ft_in1k",
    "vit_pe_lang_large_patch14_448.fb",
    "vit_small_patch16_rope_mixed_224.naver_in1k",
    "vit_base_patch16_radio_v3.c_radio",
    "vit_huge_patch14_clip_336.laion2b_ft_in12k_in1k",
    "mixer_b16_224.miil_in21k",
    "swin_s3_tiny_224.ms_in1k",
    "pit_ti_distilled_224.in1k",
    "resnetv2_50x1_bit.goog_in21k",
    "resnext50_32x4d.a1_in1k",
)
REFUSED = {
    "vit_base_patch16_sapiens2.fb": "grouped queries",
    "beit3_base_patch16_224.pt": "normalisations inside its branches",
    "resnext50d_32x4d.bt_in1k": "resnext50d_32x4d",
    "gmlp_s16_224.ra3_in1k": "no known code base",
}


@pytest.fixture(autouse=True)
def _of_timm(timm):
    """timm is installed."""


@pytest.mark.parametrize("name", OPEN)
def test_it_opens(name):
    assert name in walk_timm.names()
    assert walk_timm.refusal(name) is None


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    assert REFUSED[name] in walk_timm.refusal(name)


@pytest.mark.long
def test_most_models_open(capsys):
    walk_timm.main([])
    *_, total = capsys.readouterr().out.splitlines()
    opened, _, number, *_ = total.split()
    assert number == "539"
    assert int(opened) >= 0.85 * 539
