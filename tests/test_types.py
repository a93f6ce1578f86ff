"""What a type checker sees of the public API."""

import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kerasvit
from kerasvit.models import BUILDERS
from tests.once import on_last_backend

pytestmark = on_last_backend
ROOT = Path(__file__).parents[1]
# A user's program; mypy knows nothing of Keras, which has no types.
PROGRAM = """
import pathlib
from typing import Any, assert_type

import keras  # type: ignore[import-untyped]
import numpy as np

import kerasvit

def use(data: Any) -> None:
    model = kerasvit.ViTB16("sam", num_classes=3, image_size=(64, 96))
    assert_type(model, kerasvit.ImageModel)
    assert_type(model.preprocessing, kerasvit.Preprocessing | None)
    assert_type(model.record, dict[str, Any] | None)
    assert_type(kerasvit.ViTB16.preprocessing("sam"), kerasvit.Preprocessing)
    assert_type(kerasvit.Preprocessing(224).size, tuple[int, int])
    assert_type(kerasvit.from_pretrained("folder"), kerasvit.ImageModel)
    assert_type(kerasvit.from_pretrained(pathlib.Path()), kerasvit.ImageModel)
    assert_type(kerasvit.resize(model, 384), kerasvit.ImageModel)
    assert_type(kerasvit.features(model), kerasvit.FeatureModel)
    assert_type(kerasvit.classify(model, "cat.jpg"), list[tuple[str, float]])
    assert_type(kerasvit.classify(model, ["a.jpg"]), list[list[tuple[str, float]]])
    assert_type(kerasvit.save_pretrained(model, "folder"), pathlib.Path)
    assert_type(kerasvit.SAM(model, rho=0.1), kerasvit.SAM)
    assert_type(kerasvit.LookSAM(model, 0.1, 5), kerasvit.LookSAM)
    assert_type(kerasvit.suggest_rho(model, data).rho, float)
    assert_type(kerasvit.weight_formats(model), list[kerasvit.WeightFormat])
    assert_type(kerasvit.list_weights()[0].top1, dict[str, Any] | None)
    for name in kerasvit.list_models("vit*"):
        assert_type(name, str)
    assert_type(kerasvit.inspection.trace(kerasvit.inspection.Hessian(model, data)),
                kerasvit.inspection.Trace)
    assert_type(kerasvit.inspection.largest_eigenvalue(model, data), float)
"""
WRONG = {
    "kerasvit.ViTB61()": 'has no attribute "ViTB61"',
    "kerasvit.ViTB16(classes=3, num_classes='3')": '"num_classes" to "__call__"',
    "kerasvit.VisionTransformer(patch_size=16)": "Missing named argument",
    "kerasvit.SAM(None, radius=0.1)": 'Unexpected keyword argument "radius"',
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Messages of `mypy --strict` on the program, on every name and on wrong calls."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    folder = tmp_path_factory.mktemp("types")
    lines = [PROGRAM]
    for name in kerasvit.list_models():
        lines.append(f"assert_type(kerasvit.{name}, kerasvit.Variant)")
    for name in BUILDERS:
        lines.append(f"assert_type(kerasvit.{name}(**{{}}), kerasvit.ImageModel)")
    public = {k for k, each in vars(kerasvit).items() if not inspect.ismodule(each)}
    for name in sorted({*public, "evaluation", "inspection"}):
        lines += [] if name.startswith("_") else [f"kerasvit.{name}"]
    (folder / "user.py").write_text("\n".join([*lines, *WRONG]) + "\n")
    # From the folder and not from pyproject.toml, whose settings are the package's.
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    command += ["--config-file=", f"--cache-dir={folder / 'cache'}", "user.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    return subprocess.run(command, **options).stdout.splitlines()


@pytest.mark.slow
def test_types_are_those_that_the_pages_state(found):
    wrong = [line for line in found if ": error: " in line]
    assert not [line for line in wrong if not any(w in line for w in WRONG.values())]


@pytest.mark.slow
@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_is_an_error(call, found):
    assert any(WRONG[call] in line for line in found), found


def test_the_package_says_that_it_has_types():
    assert (Path(kerasvit.__file__).parent / "py.typed").is_file()
