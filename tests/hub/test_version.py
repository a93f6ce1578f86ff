"""The version is known without the metadata of an installation."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kerasvit

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Saves, pushes and downloads where importlib.metadata does not know the package.
CODE = """
import importlib.metadata
import sys

known = importlib.metadata.Distribution.from_name

def from_name(name):
    if name == "kerasvit":
        raise importlib.metadata.PackageNotFoundError(name)
    return known(name)

importlib.metadata.Distribution.from_name = from_name

import kerasvit
from tests.tiny_vit import TinyViT

model = TinyViT(image_size=8, num_classes=3)
folder = kerasvit.save_pretrained(model, sys.argv[1])
kerasvit.push_to_hub(model, "me/vit")
for source in (folder, "hf://me/vit"):
    assert kerasvit.from_pretrained(source).record == model.record
"""


def test_a_checkout_that_is_not_installed_saves_pushes_and_downloads(hub, tmp_path):
    paths = {"PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path), "HF_TOKEN": "good"}
    client = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "vit")],
        env={**os.environ, **paths, **client, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    config = (tmp_path / "vit" / "config.json").read_text()
    assert f'"kerasvit_version": "{kerasvit.__version__}"' in config


def test_the_project_takes_its_version_from_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    path = ROOT / project["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{kerasvit.__version__}"' in path.read_text()
