"""CONTRIBUTING.md and the lists that it names are complete."""

import importlib
import pkgutil
import re
from pathlib import Path

import kerasvit
from kerasvit import models
from tests.models.tiny import TINY
from tests.once import on_last_backend

pytestmark = on_last_backend
ROOT = Path(__file__).parents[1]
PAGE = (ROOT / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")


def test_its_paths_exist():
    paths = re.findall(r"`((?:kerasvit|weights|recipes|tests|\.ci)/[\w./]*)`", PAGE)
    paths += re.findall(r"\]\(\.\./([^)#]*)", PAGE)
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_page_names_every_folder():
    for folder in (ROOT / "kerasvit").iterdir():
        if (folder / "__init__.py").exists():
            assert f"`kerasvit/{folder.name}/`" in PAGE


def test_every_variant_and_builder_is_listed():
    defined = {
        value.name
        for module in pkgutil.iter_modules(models.__path__)
        for value in vars(
            importlib.import_module(f"{models.__name__}.{module.name}")
        ).values()
        if isinstance(value, models.Variant)
    }
    listed = kerasvit.list_models()
    assert len(listed) == len(set(listed)) and defined == set(listed)
    for name in [*listed, *models.BUILDERS]:
        assert getattr(kerasvit, name) is getattr(models, name)
    assert set(models.BUILDERS) == set(TINY)
    used = {variant.builder.__name__ for variant in models.VARIANTS}
    assert used <= set(models.BUILDERS)
