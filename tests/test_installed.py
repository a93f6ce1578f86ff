import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerasvit import installed
from tests.once import on_last_backend

pytestmark = on_last_backend

ROOT = Path(__file__).parents[1]
# Hides packages from every finder, as if they were not installed.
HIDING = """
import os, sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *arguments):
        if name.partition(".")[0] not in os.environ["HIDDEN"].split():
            return self.finder.find_spec(name, *arguments)

sys.meta_path[:] = map(Hiding, sys.meta_path)
"""
CHOICE = "$env:KERAS_BACKEND='{}'" if os.name == "nt" else "export KERAS_BACKEND={}"
HERE = [name for name in installed.BACKENDS if importlib.util.find_spec(name)]
RECIPES = ["tensorflow", "tensorflow_datasets", "sklearn", "mlxtend", "tyro"]


def run(folder, hidden, *arguments, **environment):
    """Runs Python without some packages; returns its status and its last line."""
    (folder / "sitecustomize.py").write_text(HIDING)
    given = {key: value for key, value in os.environ.items() if "KERAS" not in key}
    given |= {"HIDDEN": " ".join(hidden), "KERAS_HOME": str(folder)}
    given |= {"PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT)))}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, env=given | environment, capture_output=True, text=True, cwd=ROOT
    )
    return done.returncode, done.stderr.strip().splitlines()


def test_an_old_keras(monkeypatch):
    assert f'"keras>={installed.KERAS},<' in (ROOT / "pyproject.toml").read_text(
        "utf-8"
    )
    for version in ("3.15.0", "3.15.1", "3.16.0.dev1", "4.0"):
        monkeypatch.setattr(
            "importlib.metadata.version", lambda _, found=version: found
        )
        installed.check_keras()
    monkeypatch.setattr("importlib.metadata.version", lambda _: "3.8.0")
    message = r"Keras 3.15 or newer; 3.8.0 is installed. Type `pip install \"keras>=3"
    with pytest.raises(ImportError, match=message):
        installed.check_keras()


@pytest.mark.slow
@pytest.mark.skipif("jax" not in HERE, reason="JAX is not installed")
@pytest.mark.parametrize(
    "command", [["-c", "import kerasvit"], ["-m", "weights.verify", "--help"]]
)
def test_a_backend_that_is_not_installed(tmp_path, command):
    status, lines = run(tmp_path, ["tensorflow", "torch"], *command)
    assert status == 1
    assert lines[-1] == (
        "ImportError: Keras's backend is 'tensorflow', its default, but tensorflow is "
        f"not installed. Installed: jax. Type `{CHOICE.format('jax')}`."
    )


def test_a_backend_for_inference_alone(tmp_path):
    status, lines = run(
        tmp_path, ["openvino"], "-c", "import kerasvit", KERAS_BACKEND="openvino"
    )
    assert status == 1
    assert lines[-1] == (
        "ImportError: Keras's backend is 'openvino', by KERAS_BACKEND, but openvino is "
        f"not installed. Installed: {', '.join(HERE)}. Type "
        f"{' or '.join(f'`{CHOICE.format(each)}`' for each in HERE)}."
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", ["import kerasvit.data", "kerasvit.data.built_in"])
def test_the_packages_of_the_data(tmp_path, command):
    command = f"import kerasvit\n{command}"
    status, lines = run(
        tmp_path,
        ["tensorflow", "importlib_resources"],
        "-c",
        command,
        KERAS_BACKEND="jax",
    )
    assert status == 1
    assert lines[-1] == (
        "ImportError: kerasvit.data needs tensorflow, importlib_resources, which are "
        'not installed. Type `pip install -e ".[data]"` in the folder of kerasvit.'
    )


@pytest.mark.slow
def test_a_backend_that_does_not_import_keeps_its_own_error(tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('broken')")
    status, lines = run(tmp_path, [], "-c", "import kerasvit")
    assert status == 1 and lines[-1] == "ImportError: broken"


def test_the_backend_is_that_of_keras(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "")
    assert installed.backend() == ("tensorflow", "its default")
    file = tmp_path / "keras.json"
    for text in ("{", "[]", "{}"):
        file.write_text(text)
        origin = f"its default, as {file} names none"
        assert installed.backend() == ("tensorflow", origin)
    file.write_text('{"backend": "numpy"}')
    assert installed.backend() == ("numpy", f"by {installed.from_home(file)}")
    with pytest.raises(ImportError, match="tensorflow, jax, torch, .* on openvino"):
        installed.check_backend()
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert installed.backend() == ("jax", "by KERAS_BACKEND")
    file.write_text("[]")
    with pytest.raises(ImportError, match="keras.json must have a dictionary, such as"):
        installed.check_backend()
    file.unlink()
    monkeypatch.setattr(installed, "_has", lambda name: False)
    with pytest.raises(ImportError, match=r'No backend .*Type `pip .*"\.\[jax\]"'):
        installed.check_backend()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        *(["recipes/finetune.py"], ["recipes/evaluate.py", "--help"]),
        *(["-m", "recipes.finetune"], ["-m", "recipes.benchmarks", "forward"]),
        *(["recipes/reproduce.py", "list"], ["-m", "recipes.benchmarks.exports"]),
    ],
)
def test_the_packages_of_the_recipes(tmp_path, command):
    status, lines = run(tmp_path, RECIPES, *command)
    assert status == 1
    assert lines == [
        f"Error: the recipes need {', '.join(RECIPES)}, which are not installed. Type "
        '`pip install -e ".[recipes]"` in the folder of kerasvit.'
    ]


def test_pytest_is_not_installed(tmp_path):
    status, lines = run(tmp_path, ["pytest"], "-m", "tests")
    assert status == 1
    assert lines == ["pytest is not installed. Type: pip install -e '.[recipes,test]'"]


def test_the_command_of_an_extra(tmp_path, monkeypatch):
    """Of a wheel, which has no folder to install from."""
    with pytest.raises(ImportError, match=r"in the folder of kerasvit"):
        installed.check_extra("x", ["missing"])
    monkeypatch.setattr(installed, "__file__", str(tmp_path / "kerasvit/installed.py"))
    with pytest.raises(ImportError, match=r'Type `pip install "kerasvit\[x\]"`\.'):
        installed.check_extra("x", ["missing"])
