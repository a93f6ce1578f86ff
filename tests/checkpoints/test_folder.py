"""An interrupted save leaves one complete model or an error, never a mix."""

import json
import os
import shutil
import signal
import sys
import time

import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints import Checkpoint, CheckpointError
from kerasvit.checkpoints.folder import new_files, put_files, replace_file
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT
from tests.tiny_vit import random_model as model

CONFIG, TENSORS, CARD = NAMES = ("config.json", "model.safetensors", "README.md")
OPERATIONS = ("open", "os.mkdir", "os.rename", "os.rmdir", "os.remove")
pytestmark = [
    on_last_backend,
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders of two models."""
    top = tmp_path_factory.mktemp("saved")
    return [kerasvit.save_pretrained(model(i), top / str(i)) for i in (1, 2)]


def content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def loaded(folder):
    """(sum of weights, labels) of the loaded model; "refused" after an error."""
    try:
        made = TinyViT(folder, image_size=8)
    except CheckpointError:
        return "refused"
    weights = np.concatenate([np.ravel(w) for w in made.get_weights()])
    return weights.sum().item(), str(made.record["label_names"])


def child(change, *arguments):
    """Calls a function in another process; returns the process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        change(*arguments)
    except OSError:
        os._exit(1)
    os._exit(0)


def stopped(operation, stop, change, *arguments):
    """Changes files in another process, which calls `stop` at an operation.

    Returns:
        Whether there were fewer operations.
    """

    def counted():
        left = [operation]

        def count(event, arguments):
            if event in OPERATIONS:
                left[0] -= 1
                if left[0] == 0:
                    stop()

        sys.addaudithook(count)
        change(*arguments)
        if left[0] <= 0:  # it continued after the failure
            os._exit(1)

    return os.waitpid(child(counted), 0)[1] == 0


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise OSError(28, "No space left on device")


def write(folder, files):
    """Writes files as `save_pretrained` does: the tensors first."""
    with new_files(folder) as new:
        for name in (TENSORS, CONFIG, CARD):
            new.write(name, files[name])
        new.put()


OLD, NEW = ({name: bytes([n]) for name in NAMES} for n in (1, 2))
STATES = [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2)]  # of NAMES, in this order


@pytest.mark.parametrize("stop", [kill, fail])
def test_the_configuration_comes_first_at_every_step(tmp_path, stop):
    (tmp_path / "mine").write_bytes(b"mine")
    states, operation, done = [], 0, False
    while not done:
        for name in NAMES:
            (tmp_path / name).write_bytes(OLD[name])
        operation += 1
        done = stopped(operation, stop, write, tmp_path, NEW)
        found = content(tmp_path)
        states.append(STATES.index(tuple(found[name][0] for name in NAMES)))
        assert set(found) == {*NAMES, "mine"} or stop is kill
    # After an error, the process restores or deletes the configuration.
    assert operation > 8 and (states == sorted(states) or stop is fail)
    assert set(states) == ({0, 1, 2, 3} if stop is kill else {0, 2, 3})
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_a_configuration_that_was_not_there_is_removed_again(tmp_path):
    """If the tensors cannot be moved to their final name."""
    operation, done = 0, False
    while not done:
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        operation += 1
        done = stopped(operation, fail, write, tmp_path, NEW)
        assert content(tmp_path).keys() in ({*()}, {CONFIG, TENSORS}, {*NAMES})


def bare(folder):
    """Deletes the configuration."""
    (folder / CONFIG).unlink()


def of_timm(folder):
    """Replaces the configuration by one without a hash."""
    config = json.loads((folder / CONFIG).read_text())
    del config["kerasvit"]
    config["label_names"] = ["x", "y", "z"]
    (folder / CONFIG).write_text(json.dumps(config))


def empty(folder):
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("stop", "before"),
    [(kill, None), (kill, bare), (kill, of_timm), (kill, empty), (fail, of_timm)],
)
def test_a_stopped_save_leaves_the_old_or_new_model_or_raises(
    saved, tmp_path, stop, before
):
    start, folder, another = tmp_path / "start", tmp_path / "vit", model(2)
    shutil.copytree(saved[0], start)
    if before:
        before(start)
    old, new, outcomes, done = loaded(start), loaded(saved[1]), [], False
    while not done:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        operation = len(outcomes) + 1
        done = stopped(operation, stop, kerasvit.save_pretrained, another, folder)
        outcomes.append(loaded(folder))
    assert outcomes[-1] == new and len(outcomes) > 8
    if stop is fail:  # the process continues and restores the configuration
        assert set(outcomes) == {old, new}
        return
    order = [[old, "refused", new].index(outcome) for outcome in outcomes]
    assert order == sorted(order)
    assert set(outcomes) == {old, "refused", new}


def test_an_interrupted_save_gives_a_hint(saved, tmp_path):
    for other in (saved[1] / CONFIG, saved[1] / TENSORS):
        shutil.copytree(saved[0], tmp_path, dirs_exist_ok=True)
        shutil.copy(other, tmp_path)
        with pytest.raises(CheckpointError, match="A save was stopped.* save the mod"):
            kerasvit.from_pretrained(tmp_path)
    (tmp_path / TENSORS).unlink()
    with pytest.raises(CheckpointError, match="save that was stopped: then save again"):
        kerasvit.from_pretrained(tmp_path)
    kerasvit.save_pretrained(model(2), tmp_path)
    assert loaded(tmp_path) == loaded(saved[1])


@pytest.mark.parametrize("stop", [kill, fail])
def test_one_file_is_old_or_new_at_its_own_place(tmp_path, stop):
    states, operation, done = [], 0, False
    while not done:
        (tmp_path / CARD).write_bytes(OLD[CARD])
        operation += 1
        done = stopped(operation, stop, replace_file, tmp_path / CARD, NEW[CARD])
        states.append((tmp_path / CARD).read_bytes()[0])
    assert operation > 3 and states == sorted(states) and set(states) == {1, 2}


def test_old_unfinished_files_of_kerasvit_are_removed(tmp_path):
    ours = tmp_path / f".kerasvit-saving-{'0' * 32}"
    strange = [tmp_path / ".kerasvit-saving-mine", tmp_path / "mine"]
    for path in (ours, *strange):
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
    young = tmp_path / f".kerasvit-saving-{'1' * 32}"
    young.write_bytes(b"x")  # another process may be writing
    write(tmp_path, NEW)
    assert set(tmp_path.iterdir()) == {
        *strange,
        young,
        *(tmp_path / name for name in NAMES),
    }


def test_files_get_the_usual_permissions(tmp_path):
    kerasvit.save_pretrained(model(1), tmp_path)
    (tmp_path / "usual").touch()
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_two_processes_at_once(saved, tmp_path):
    known = [loaded(folder) for folder in saved]

    def save_often(number):
        for _ in range(25):
            write(tmp_path, content(saved[number]))

    for _ in range(3):
        for pid in [child(save_often, number) for number in (0, 1)]:
            assert os.waitpid(pid, 0)[1] == 0
        assert loaded(tmp_path) in (*known, "refused")
        assert content(tmp_path).keys() == {*NAMES}
    write(tmp_path, content(saved[1]))
    assert loaded(tmp_path) == known[1]


@pytest.mark.parametrize(
    ("pause", "allowed"),
    # A load is tried twice. Saves without a pause may come between both times.
    [(0.3, set()), (0.005, {"refused"})],
    ids=["some saves", "save after save"],
)
def test_a_concurrent_reader_gets_a_complete_model(saved, tmp_path, pause, allowed):
    known, files = [loaded(folder) for folder in saved], [content(f) for f in saved]
    folder, enough = tmp_path / "folder", tmp_path / "enough"
    folder.mkdir()
    write(folder, files[0])

    def save_often():
        number = 0
        while not enough.exists():
            number = 1 - number
            write(folder, files[number])
            time.sleep(pause)

    pid, seen = child(save_often), []
    try:
        while len(seen) < 20 or not {*known} <= set(seen):
            assert len(seen) < 1000, set(seen)
            seen.append(loaded(folder))
    finally:
        enough.touch()
        os.waitpid(pid, 0)
    assert {*known} <= set(seen) <= {*known, *allowed}


@pytest.mark.parametrize("load", [TinyViT, kerasvit.from_pretrained])
def test_a_load_in_the_middle_of_a_save_is_tried_again(
    saved, tmp_path, load, monkeypatch
):
    shutil.copytree(saved[0], tmp_path, dirs_exist_ok=True)
    shutil.copy(saved[1] / CONFIG, tmp_path)
    sha256, hashed = Checkpoint.sha256, []

    def late(checkpoint):
        hashed.append(sha256(checkpoint))
        if len(hashed) == 1:  # the other process goes on
            shutil.copy(saved[1] / TENSORS, tmp_path / "new")
            put_files({TENSORS: tmp_path / "new"}, tmp_path)
        return hashed[-1]

    monkeypatch.setattr(Checkpoint, "sha256", late)
    assert load(tmp_path).record["label_names"] == ["ant2", "bee2", "cat2"]
    assert len(hashed) == 2
    shutil.copy(saved[0] / CONFIG, tmp_path)
    with pytest.raises(CheckpointError, match="A save was stopped"):
        load(tmp_path)
    assert len(hashed) == 3  # no retry, because no file was replaced


def state(folder):
    """Attributes of a folder that a write would change."""
    return {
        path.relative_to(folder): (path.lstat(), path.is_file() and path.read_bytes())
        for path in [folder, *folder.rglob("*")]
    }


@pytest.mark.parametrize("stray", [".bashrc", TENSORS, CONFIG])
def test_reading_writes_nothing(saved, tmp_path, stray):
    shutil.copytree(saved[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / ".bashrc").write_text("mine")
    (tmp_path / ".kerasvit-saved").mkdir()
    (tmp_path / ".kerasvit-saved" / stray).write_bytes(b"theirs")
    (tmp_path / f".kerasvit-saving-{'0' * 32}").write_bytes(b"theirs")
    os.utime(tmp_path / f".kerasvit-saving-{'0' * 32}", (0, 0))
    os.utime(tmp_path, (0, 0))
    os.listdir(tmp_path), (tmp_path / ".bashrc").read_text()  # times of access
    before = state(tmp_path)
    assert loaded(tmp_path) == loaded(saved[0])
    assert loaded(tmp_path / TENSORS) == loaded(saved[0])
    same(before, state(tmp_path))
    shutil.copy(saved[1] / TENSORS, tmp_path)
    before = state(tmp_path)
    assert loaded(tmp_path) == "refused"
    same(before, state(tmp_path))


def same(before, after):
    times = ("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_mode")
    assert before.keys() == after.keys()
    for path, (found, text) in before.items():
        assert after[path][1] == text
        for field in times:
            assert getattr(after[path][0], field) == getattr(found, field), path


def test_an_unfinished_save_of_an_earlier_version_is_named(saved, tmp_path):
    former = tmp_path / ".kerasvit-saved"
    shutil.copytree(saved[1], former)
    shutil.move(former / TENSORS, tmp_path)  # it was stopped after the first file
    before = state(tmp_path)
    for _ in range(2):  # with no configuration, and with an older one
        with pytest.raises(CheckpointError, match="earlier version.*move them into"):
            TinyViT(tmp_path, image_size=8)
        same(before, state(tmp_path))
        shutil.copy(saved[0] / CONFIG, tmp_path)
        before = state(tmp_path)
    shutil.rmtree(tmp_path / ".kerasvit-saved")
    shutil.copy(saved[1] / CONFIG, tmp_path)
    assert loaded(tmp_path) == loaded(saved[1])


def test_a_read_only_folder_is_read(saved, tmp_path, monkeypatch):
    shutil.copytree(saved[0], tmp_path, dirs_exist_ok=True)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    for name in ("replace", "rename", "unlink", "rmdir", "mkdir", "utime"):
        monkeypatch.setattr(os, name, refuse)
    assert loaded(tmp_path) == loaded(saved[0])
