"""A folder that is saved into is old or new to its readers, whenever that stops."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kerasvit.checkpoints import Checkpoint, CheckpointError
from kerasvit.checkpoints.folder import (
    current,
    read_current,
    replace_file,
    replace_files,
    settle,
)
from kerasvit.hub.repository import held_to
from kerasvit.saving import save_pretrained
from tests.tiny_vit import TinyViT

OLD, NEW, NEWEST = ({"a": bytes([n]), "b": bytes([n]), "c": b""} for n in (1, 2, 3))
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def folder(tmp_path):
    """With the old files, and one that is not ours."""
    for name, content in {**OLD, "mine": b"mine"}.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def stopped(operation, stop, change, *arguments):
    """Changes files in another process, which `stop`s at that number of operation.

    Returns:
        Whether it came to its end.
    """
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    left = [operation]

    def count(event, arguments):
        if event in ("open", "os.mkdir", "os.rename", "os.rmdir", "os.remove"):
            left[0] -= 1
            if left[0] == 0:
                stop()

    sys.addaudithook(count)
    try:
        change(*arguments)
    except OSError:
        os._exit(1)
    os._exit(0)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise OSError(28, "No space left on device")


def seen(folder):
    return {name: current(folder / name).read_bytes() for name in OLD}


@pytest.mark.parametrize("stop", [kill, fail])
def test_all_old_or_all_new_at_every_step(folder, stop):
    states, operation, done = [], 0, False
    while not done:
        for name, content in OLD.items():
            (folder / name).write_bytes(content)
        operation += 1
        done = stopped(operation, stop, replace_files, folder, NEW)
        states.append((OLD, NEW).index(seen(folder)))
        # The next save is stopped too, later and later, and another brings it about.
        stopped(operation, stop, replace_files, folder, NEWEST)
        assert seen(folder) in (OLD, NEW, NEWEST)
        replace_files(folder, NEWEST)
        assert seen(folder) == NEWEST
        assert all((folder / name).read_bytes() == NEWEST[name] for name in NEWEST)
    assert operation > 8 and states == sorted(states) and set(states) == {0, 1}
    assert (folder / "mine").read_bytes() == b"mine"


def test_nothing_is_left_but_the_files(folder):
    (left := folder / ".kerasvit-saving-0").mkdir()
    replace_files(folder, NEW)
    assert left.exists()  # another process may be at work
    os.utime(left, (0, 0))
    replace_files(folder, NEW)
    assert {path.name for path in folder.iterdir()} == {*NEW, "mine"}


@pytest.mark.parametrize("stop", [kill, fail])
def test_one_file_is_old_or_new_at_its_own_place(folder, stop):
    states, operation, done = [], 0, False
    while not done:
        (folder / "a").write_bytes(OLD["a"])
        operation += 1
        done = stopped(operation, stop, replace_file, folder / "a", NEW["a"])
        states.append((OLD["a"], NEW["a"]).index((folder / "a").read_bytes()))
    assert operation > 3 and states == sorted(states) and set(states) == {0, 1}


def test_many_saves_at_a_time(folder):
    saves = [{name: bytes([n]) * 999 for name in OLD} for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda contents: replace_files(folder, contents), saves))
    assert seen(folder) in saves
    assert {path.name for path in folder.iterdir()} == {*OLD, "mine"}


def test_reading_puts_a_stopped_save_in_order(folder):
    whole = folder / ".kerasvit-saved"
    whole.mkdir()
    (whole / "a").write_bytes(NEW["a"])
    with pytest.raises(CheckpointError, match="no model.safetensors"):
        Checkpoint(folder)
    assert (folder / "a").read_bytes() == NEW["a"] and not whole.exists()


def test_a_folder_that_came_from_elsewhere_moves_no_files(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("documents")
    (other / "letter").write_bytes(b"mine")
    (folder / ".kerasvit-saved").symlink_to(other)
    with pytest.raises(CheckpointError):
        Checkpoint(folder)
    assert (other / "letter").exists()


def test_what_may_not_be_written_is_read_all_the_same(folder, monkeypatch):
    (folder / ".kerasvit-saved").mkdir()
    (folder / ".kerasvit-saved" / "model.safetensors").write_bytes(b"no tensors")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(CheckpointError, match="model.safetensors.* cannot be read"):
        Checkpoint(folder)


def waits(folder, name, content):
    """A save was stopped, or is about to move the file."""
    (folder / ".kerasvit-saved").mkdir()
    (folder / ".kerasvit-saved" / name).write_bytes(content)


def test_what_is_moved_between_finding_and_opening_is_found_again(folder):
    waits(folder, "a", NEW["a"])
    asked = []

    def late(path):
        asked.append(path)
        settle(folder)
        return path.read_bytes()

    assert read_current(folder / "a", late) == NEW["a"]
    assert [path.parent.name for path in asked] == [".kerasvit-saved", folder.name]
    with pytest.raises(FileNotFoundError):
        read_current(folder / "none", late)


def saved(tmp_path):
    save_pretrained(TinyViT(image_size=8, num_classes=3), tmp_path)
    return {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_tensors_that_a_save_moves_while_they_are_hashed(tmp_path):
    saved(tmp_path)
    checkpoint = Checkpoint(tmp_path)
    checkpoint.file.unlink()
    with pytest.raises(CheckpointError, match="FileNotFound.*being saved, load again"):
        with held_to(checkpoint):
            pass


def test_a_reader_beside_a_saver_has_a_whole_model(tmp_path, monkeypatch):
    files = saved(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # for more saves in less time
    end = time.monotonic() + 0.7
    child = os.fork()
    if not child:
        while time.monotonic() < end:
            replace_files(tmp_path, files)
        os._exit(0)
    try:
        while time.monotonic() < end:
            checkpoint = Checkpoint(tmp_path)
            assert checkpoint.record and checkpoint.shapes
    finally:
        os.waitpid(child, 0)
