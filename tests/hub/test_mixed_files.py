"""The configuration of one model beside the tensors of another raises."""

import hashlib
import json
import os
import shutil

import pytest

import kerasvit
from kerasvit import CheckpointError
from kerasvit.hub import manifest
from kerasvit.hub.manifest import Entry
from kerasvit.loading import find
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT
from tests.tiny_vit import random_model as model

from .jobs import weights_of

CONFIG, TENSORS = "config.json", "model.safetensors"
LOADS = [kerasvit.from_pretrained, TinyViT]
pytestmark = on_last_backend


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{name: bytes} of two models."""
    top = tmp_path_factory.mktemp("models")
    folders = [kerasvit.save_pretrained(model(i), top / str(i)) for i in (1, 2)]
    return [{p.name: p.read_bytes() for p in f.iterdir()} for f in folders]


@pytest.fixture
def mixed(files):
    """The configuration of the first with the tensors of the second."""
    return {CONFIG: files[0][CONFIG], TENSORS: files[1][TENSORS]}


def write(folder, content):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        (folder / name).write_bytes(text)
    return folder


def refused(load, weights, **options):
    with pytest.raises(
        CheckpointError, match="does not match .*config.json .*two saves"
    ):
        load(weights, **options)


def linked(folder, content, top):
    """A folder of links to files named by their hashes, as in the Hub's cache."""
    folder.mkdir(parents=True)
    for name, text in content.items():
        blob = top / hashlib.sha256(text).hexdigest()
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(text)
        (folder / name).symlink_to(os.path.relpath(blob, folder))
    return folder


@pytest.mark.parametrize("load", LOADS)
def test_in_a_folder_by_its_name_or_that_of_the_file(load, mixed, tmp_path):
    folder = write(tmp_path / "vit", mixed)
    refused(load, folder)
    refused(load, folder / TENSORS)


@pytest.mark.parametrize("load", LOADS)
def test_behind_links(load, files, mixed, tmp_path):
    refused(load, linked(tmp_path / "mixed", mixed, tmp_path / "blobs"))
    whole = linked(tmp_path / "whole", files[0], tmp_path / "blobs")
    assert weights_of(load(whole)) == weights_of(model(1))
    (tmp_path / "link").symlink_to(tmp_path / "mixed")
    refused(load, tmp_path / "link")


@pytest.mark.parametrize("load", LOADS)
def test_in_a_snapshot_of_the_cache(load, mixed, tmp_path):
    snapshot = tmp_path / "models--me--vit" / "snapshots" / ("a" * 40)
    refused(load, linked(snapshot, mixed, tmp_path / "models--me--vit" / "blobs"))


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_in_a_repository(hub, load, files, mixed):
    hub.add("me/vit", mixed)
    refused(load, "hf://me/vit")
    hub.repositories["me/vit"].commit(files[1])
    assert load("hf://me/vit").record["label_names"] == ["ant2", "bee2", "cat2"]


def test_in_a_repository_without_links(hub, mixed, monkeypatch):
    from huggingface_hub import file_download

    monkeypatch.setattr(file_download, "are_symlinks_supported", lambda *_: False)
    hub.add("me/vit", mixed)
    refused(kerasvit.from_pretrained, "hf://me/vit")


def entry(**changes):
    fields = ("TinyViT", "sam", "me/vit", "timm", 3, 1, "mit", {"size": 8, "crop": 0.5})
    return Entry(*fields, **changes)


@pytest.mark.parametrize("pinned", [True, False])
def test_weights_with_a_name(hub, files, mixed, monkeypatch, pinned):
    sha256 = hashlib.sha256(mixed[TENSORS]).hexdigest() if pinned else None
    made = entry(sha256=sha256)
    monkeypatch.setattr(manifest, "entries", lambda: (made,))
    hub.add("me/vit", mixed)
    refused(TinyViT, "sam")


@pytest.mark.slow
@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("copied", [True, False])
def test_a_file_that_is_replaced_after_the_check(
    hub, files, monkeypatch, tmp_path, pinned, copied
):
    """A pin, a note or the Hub's hash counts for the file that is loaded."""
    tensors = files[0][TENSORS]
    sha256 = hashlib.sha256(tensors).hexdigest()
    monkeypatch.setattr(
        manifest, "entries", lambda: (entry(sha256=sha256 if pinned else None),)
    )
    config = json.loads(files[0][CONFIG])
    del config["kerasvit"]  # only the checked hash identifies the file
    content = {CONFIG: json.dumps(config).encode(), TENSORS: tensors}
    if copied:
        folder = write(tmp_path / "TinyViT" / "sam", content)
        (folder / f"{TENSORS}.sha256").write_text(sha256)
        monkeypatch.setenv("KERASVIT_WEIGHTS_DIR", str(tmp_path))
    else:
        hub.add("me/vit", content)
    assert weights_of(TinyViT("sam")) == weights_of(model(1))
    fetch, other = find.fetch, tmp_path / "other"

    def replaced(wanted):
        path = fetch(wanted)
        other.write_bytes(files[1][TENSORS])
        os.replace(other, path / TENSORS if path.is_dir() else path)
        return path

    monkeypatch.setattr(find, "fetch", replaced)
    with pytest.raises(CheckpointError, match="not the file that was checked before"):
        TinyViT("sam")


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_the_cache_of_the_hub_is_held_to_its_links(hub, load, files, monkeypatch):
    """Includes files without kerasvit's configuration."""
    from kerasvit import pretrained

    config = json.loads(files[0][CONFIG])
    del config["kerasvit"]
    hub.add("me/vit", {**files[0], CONFIG: json.dumps(config).encode()})
    module = pretrained if load is kerasvit.from_pretrained else find
    fetch = module.fetch_repository

    def changed(*given, **options):
        folder = fetch(*given, **options)
        (folder / TENSORS).write_bytes(files[1][TENSORS])  # through the link
        return folder

    assert weights_of(load("hf://me/vit")) == weights_of(model(1))
    monkeypatch.setattr(module, "fetch_repository", changed)
    with pytest.raises(CheckpointError, match="not the file that was checked before"):
        load("hf://me/vit")


@pytest.mark.skipif(os.name == "nt", reason="Windows replaces no open file")
def test_the_hash_is_of_the_bytes_that_are_loaded(files, tmp_path, monkeypatch):
    """Another file takes the path between hashing and reading."""
    folder = write(tmp_path / "vit", files[0])
    (other := tmp_path / "other").write_bytes(files[1][TENSORS])
    from kerasvit.checkpoints import Checkpoint

    read = Checkpoint.__getitem__

    def late(checkpoint, name):
        if other.exists():
            assert checkpoint.sha256() == hashlib.sha256(files[0][TENSORS]).hexdigest()
            os.replace(other, folder / TENSORS)
        return read(checkpoint, name)

    monkeypatch.setattr(Checkpoint, "__getitem__", late)
    assert weights_of(TinyViT(folder)) == weights_of(model(1))
    refused(TinyViT, folder)


def test_changed_tensors_load_once_the_hash_is_removed(files, tmp_path):
    folder = write(tmp_path / "vit", files[0])
    shutil.copy(write(tmp_path / "other", files[1]) / TENSORS, folder)
    refused(TinyViT, folder)
    config = json.loads(files[0][CONFIG])
    del config["kerasvit"]["weights_sha256"]
    (folder / CONFIG).write_text(json.dumps(config))
    assert weights_of(TinyViT(folder)) == weights_of(model(2))


@pytest.mark.parametrize("written", ["", "0" * 63, "g" * 64])
def test_an_invalid_hash_raises(written, files, tmp_path):
    folder = write(tmp_path / "vit", files[0])
    config = json.loads(files[0][CONFIG])
    config["kerasvit"]["weights_sha256"] = written
    (folder / CONFIG).write_text(json.dumps(config))
    with pytest.raises(ValueError, match="weights_sha256"):
        TinyViT(folder)


def test_a_hash_in_capitals_is_the_same(files, tmp_path):
    folder = write(tmp_path / "vit", files[0])
    config = json.loads(files[0][CONFIG])
    config["kerasvit"]["weights_sha256"] = config["kerasvit"]["weights_sha256"].upper()
    (folder / CONFIG).write_text(json.dumps(config))
    assert weights_of(TinyViT(folder)) == weights_of(model(1))
