"""A folder that is saved into is old or new to its readers, whenever that stops."""

import os
import signal
import sys

import pytest

from kerasvit.checkpoints.folder import current, replace_files

OLD, NEW, NEWEST = ({"a": bytes([n]), "b": bytes([n]), "c": b""} for n in (1, 2, 3))
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def folder(tmp_path):
    """With the old files, and one that is not ours."""
    for name, content in {**OLD, "mine": b"mine"}.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def save_stopped(folder, contents, operation, stop):
    """Saves in another process, which `stop`s at that number of file operation.

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
        replace_files(folder, contents)
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
        done = save_stopped(folder, NEW, operation, stop)
        states.append((OLD, NEW).index(seen(folder)))
        # The next save is stopped too, later and later, and another brings it about.
        save_stopped(folder, NEWEST, operation, stop)
        assert seen(folder) in (OLD, NEW, NEWEST)
        replace_files(folder, NEWEST)
        assert seen(folder) == NEWEST
        assert all((folder / name).read_bytes() == NEWEST[name] for name in NEWEST)
    assert operation > 8 and states == sorted(states) and set(states) == {0, 1}
    assert (folder / "mine").read_bytes() == b"mine"


def test_nothing_is_left_but_the_files(folder):
    (left := folder / ".saving-0").mkdir()
    replace_files(folder, NEW)
    assert left.exists()  # another process may be at work
    os.utime(left, (0, 0))
    replace_files(folder, NEW)
    assert {path.name for path in folder.iterdir()} == {*NEW, "mine"}
