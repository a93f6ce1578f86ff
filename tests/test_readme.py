"""The README's table of models tells the truth."""

import re
from pathlib import Path

import pytest

import kerasvit

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
TOLD = dict(re.findall(r"(\w+) ([\d.]+ [\d.]+)(?= [·|])", README))


@pytest.mark.parametrize("name", TOLD)
def test_numbers(name):
    row = getattr(kerasvit, name)
    parameters, multiply_adds = TOLD[name].split()
    assert parameters == f"{row.parameters / 1e6:.1f}"
    assert float(multiply_adds) == row.multiply_adds


def test_no_variant_is_missing():
    missing = [name for name in kerasvit.list_models() if name not in README]
    assert all(name.endswith("CIFAR") for name in missing), missing
    assert all(name.removesuffix("CIFAR") in TOLD for name in missing)
