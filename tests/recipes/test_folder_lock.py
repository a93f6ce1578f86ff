import errno
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from command import folder_lock
from command.command_line import BadInput

import kerasvit
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT

pytestmark = on_last_backend

RECIPES = Path(__file__).parents[2] / "recipes"
HOLDER = """
import sys, time, pathlib
sys.path.insert(0, sys.argv[1])
from command import folder_lock
with folder_lock.locked(pathlib.Path(sys.argv[2])):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """A process that keeps the folder `out`."""
    command = [sys.executable, "-c", HOLDER, str(RECIPES), str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_a_folder_of_another_process_is_refused_until_it_is_killed(tmp_path, other):
    folder = tmp_path / "out"
    expected = f"process {other.pid} on {socket.gethostname()} is writing {folder}"
    with (
        pytest.raises(ValueError, match=re.escape(expected)),
        folder_lock.locked(folder),
    ):
        pass
    assert json.loads((folder / folder_lock.OWNER).read_text())[0] == other.pid
    other.kill()
    other.wait()
    with folder_lock.locked(folder):
        assert json.loads((folder / folder_lock.OWNER).read_text())[0] == os.getpid()
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    refused = pytest.raises(ValueError, match="`out`: .*file.* cannot be used")
    with refused, folder_lock.locked(tmp_path / "file"):
        pass


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, r"The disk of .* is full \([\d,.]+ MB are free\).*same command"),
        (errno.EROFS, "was deleted or can no longer be written"),
    ],
)
def test_a_disk_that_cannot_be_written_is_explained(tmp_path, number, message):
    failed = pytest.raises(BadInput, match=message)
    with failed, folder_lock.locked(tmp_path):
        raise OSError(number, os.strerror(number))
    assert not list(tmp_path.iterdir())


def test_a_model_without_room_states_the_sizes(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = r"full: .*model needs 0\.\d MB, and [\d,.]+ MB are free\..*same command"
    with pytest.raises(BadInput, match=message), folder_lock.locked(tmp_path):
        kerasvit.save_pretrained(TinyViT(num_classes=3), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_errors_that_are_not_of_the_disk_stay_as_they_are(tmp_path):
    with pytest.raises(PermissionError), folder_lock.locked(tmp_path):
        raise PermissionError(errno.EACCES, "of another file")
