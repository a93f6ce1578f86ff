"""The files that state a version agree."""

import re
import tomllib
from pathlib import Path

import yaml

import kerasvit
from tests.once import on_last_backend

pytestmark = on_last_backend
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == kerasvit.__version__
    assert citation["license"] == PROJECT["license"]


def test_the_classifiers_are_the_pythons_of_the_workflow():
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    pythons = workflow["jobs"]["newest"]["strategy"]["matrix"]["python"]
    stated = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert stated == pythons
    assert PROJECT["requires-python"] == f">={pythons[0]}"
