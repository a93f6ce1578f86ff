"""The tables of models are correct."""

import re
from pathlib import Path

import pytest

import kerasvit
from kerasvit.hub.manifest import published

ROOT = Path(__file__).parents[1]
ROW = r"^\| (\w+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| (\d+|–) \|$"
PAGE = (ROOT / "kerasvit/models/README.md").read_text(encoding="utf-8")
ROWS = {name: columns for name, *columns in re.findall(ROW, PAGE, re.MULTILINE)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_numbers(name):
    row = getattr(kerasvit, name)
    size, parameters, multiply_adds, weights = ROWS[name]
    assert int(size) == row.defaults["image_size"]
    assert parameters == f"{row.parameters / 1e6:.1f}"
    assert float(multiply_adds) == row.multiply_adds
    assert weights == str(len(published(name)) or "–")


def test_every_variant_has_one_row():
    assert sorted(ROWS) == sorted(kerasvit.list_models())


def test_variants_of_the_readme_are_in_the_package():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    families = r"ViT|R\d*ViT|Mixer|BiT|BEiT|DeiT|PiT|Swin|DINOv3|EVA02|PE|RoPE"
    named = re.findall(rf"\b(?:{families})\w*\d+\w*", readme)
    assert len(named) > 10
    assert set(named) <= {*kerasvit.list_models()}
