"""`python -m kerasvit`, also where Keras does not import."""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest
from huggingface_hub import constants

from kerasvit import __main__ as report
from kerasvit import __version__, installed
from kerasvit.backend.processes import device_names
from tests.once import on_last_backend

ROOT = Path(__file__).parents[1]
HOMES = "HOME", "USERPROFILE"  # of POSIX and Windows


def run(folder, *arguments, **environment):
    """Status, lines and errors of `python -m kerasvit` in a folder."""
    done = subprocess.run(
        [sys.executable, *(arguments or ("-m", "kerasvit"))],
        env={**os.environ, "HF_HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        cwd=folder,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@on_last_backend
@pytest.mark.slow
def test_the_whole_report(tmp_path):
    status, lines, errors = run(tmp_path, PYTHONPATH=str(ROOT))
    assert status == 0, errors
    assert lines[0].startswith(f"- kerasvit {__version__}, Python 3.")
    assert f"keras {keras.__version__}, numpy " in lines[1]
    assert lines[2] == f"- backend: {keras.backend.backend()}, by KERAS_BACKEND"
    assert re.match(r"- installed backends: .*(tensorflow|jax|torch) \d", lines[3])
    assert lines[5].startswith("- devices: 1 ")
    assert lines[-1] == "- weights without download: none"


@on_last_backend
@pytest.mark.slow
def test_other_commands_and_folders_of_no_user(tmp_path):
    environment = {"PYTHONPATH": str(ROOT), "KERASVIT_WEIGHTS_DIR": "~nobody-here/x"}
    status, lines, errors = run(tmp_path, "-mkerasvit", **environment)
    assert status == 0, errors
    assert lines[0].startswith(f"- kerasvit {__version__}, Python 3.")
    assert lines[-1] == "- weights without download: none"
    status, _, errors = run(tmp_path, "-m", "kerasvit", "--devices", **environment)
    assert status == 2 and "unrecognized arguments: --devices" in errors


@on_last_backend
@pytest.mark.slow
def test_a_backend_that_does_not_import(tmp_path):
    """The versions come first, then the backend's own error."""
    (tmp_path / "jax.py").write_text("raise OSError('libcudart.so is missing')")
    path = os.pathsep.join(map(str, (tmp_path, ROOT)))
    status, lines, errors = run(tmp_path, PYTHONPATH=path, KERAS_BACKEND="jax")
    assert status == 1
    assert len(lines) == 5 and lines[2] == "- backend: jax, by KERAS_BACKEND"
    assert errors.endswith("OSError: libcudart.so is missing\n")


@on_last_backend
@pytest.mark.parametrize(
    "argv, command, reports",
    [
        (["-m"], ["-m", "kerasvit"], True),
        (["-m"], ["-X", "utf8", "-m", "kerasvit"], True),
        (["-m"], ["-m", "theirs"], False),  # which imports kerasvit
        (["pytest", "-m", "kerasvit"], ["pytest", "-m", "kerasvit"], False),
        (["-m", "-m", "kerasvit"], ["-m", "theirs", "-m", "kerasvit"], False),
    ],
)
def test_only_its_own_command_reports(argv, command, reports, monkeypatch):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", ["python", *command])
    assert installed.is_reporting() == reports


def test_devices():
    assert device_names() and all(device_names())


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """The three folders of weights: own copies, the Hub's cache, the assets."""
    for name in HOMES:
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    from huggingface_hub.utils import _cache_assets  # copies it, when first imported

    monkeypatch.setattr(_cache_assets, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    monkeypatch.setenv("KERASVIT_WEIGHTS_DIR", str(tmp_path / "own"))
    return tmp_path


def written(folder, capsys):
    report.main()
    text = capsys.readouterr().out
    return text.replace(os.sep, "/").splitlines()[2:]


@on_last_backend
def test_no_folder_is_made(folders, capsys):
    assert written(folders, capsys) == ["- weights without download: none"]
    assert not list(folders.iterdir())


@on_last_backend
def test_weights_of_each_folder(folders, capsys):
    from kerasvit.hub.manifest import published
    from kerasvit.hub.servers import path_in_cache

    entry = published("ViTB16")["sam"]
    own = folders / "own/ViTB16/sam" / entry.filename
    timm = published("ViTTi16")["augreg_in21k"]
    hub = folders / "hub" / f"models--{timm.source.replace('/', '--')}/snapshots/0a"
    address = published("ViTB32")["gsam"]
    for path in (own, hub / timm.filename, path_in_cache(address.source)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(1_200_000))
    secret = folders / "hub/models--me--secret/snapshots/0a/model.safetensors"
    secret.parent.mkdir(parents=True)
    secret.write_bytes(b"0")
    lines = written(folders, capsys)
    assert lines[0] == "- weights without download: 3"
    assert f"- ViTB16/sam: 1.2 MB, ~/own/ViTB16/sam/{entry.filename}" in lines
    assert sum("~/hub/models--" in line for line in lines) == 1
    assert sum("~/assets/kerasvit/weights/" in line for line in lines) == 1
    assert "secret" not in str(lines)


@on_last_backend
def test_paths_begin_with_the_home_directory_unless_it_is_the_root(monkeypatch):
    from pathlib import Path

    from kerasvit.installed import from_home

    file = Path("/srv/home/keras.json")
    below = Path("~/home/keras.json")
    for home, expected in (("/srv", below), ("/", file), ("/home", file)):
        for name in HOMES:
            monkeypatch.setenv(name, home)
        assert from_home(file) == str(expected)


@on_last_backend
def test_no_home_directory(monkeypatch):
    """As of a user that the system does not know, without HOME."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    assert installed.backend()[0] in installed.BACKENDS
    file = Path("/srv/keras.json")
    assert installed.from_home(file) == str(file)


@on_last_backend
def test_a_broken_cache(folders, capsys):
    (folders / "hub").write_text("a file")
    (folders / "assets").symlink_to(folders / "gone")
    own = folders / "own/ViTB16/sam"
    own.mkdir(parents=True)
    (own / "model.safetensors").symlink_to(folders / "gone")
    assert written(folders, capsys) == ["- weights without download: none"]
