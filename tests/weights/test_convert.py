"""`weights.convert`: from a name to a model folder."""

import dataclasses
import os
import re
from pathlib import Path

import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints import CheckpointError
from kerasvit.hub.hashes import file_hash
from tests.contract import to_numpy
from tests.tiny_vit import TinyViT
from weights import convert

IMAGES = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype("float32")


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_converted_folder_equals_the_original(public_entry, source, tmp_path, capsys):
    entry = public_entry(preprocessing={"size": 8, "crop": 0.5})
    convert.main(["TinyViT/sam", "--out", str(tmp_path / "vit")])
    assert capsys.readouterr().out.strip() == str(tmp_path / "vit")
    assert names(tmp_path / "vit") == set(convert.FILES)
    model = kerasvit.from_pretrained(tmp_path / "vit")
    expected = to_numpy(TinyViT(source)(IMAGES))
    np.testing.assert_array_equal(to_numpy(model(IMAGES)), expected)
    assert model.record["preprocessing"]["crop"] == 0.5
    card = (tmp_path / "vit" / "README.md").read_text()
    for part in ('license: "mit"', 'base_model: "timm/tiny"', "timm/tiny", "80.50 %"):
        assert part in card
    assert "measured by its authors" in card and 'TinyViT("sam")' in card
    assert "xperimental" not in card and entry.head is None
    assert names(tmp_path) >= {"vit", "source"} and ".vit" not in str(names(tmp_path))


def test_a_local_file_needs_no_request(public_entry, source, hub, tmp_path):
    public_entry()
    hub.requests.clear()
    for i, path in enumerate((source, source / "model.safetensors")):
        out = str(tmp_path / f"vit{i}")
        convert.main(["TinyViT/sam", "--from", str(path), "--out", out])
        labels = kerasvit.from_pretrained(out).record["label_names"]
        assert labels == ["ant", "bee", "cat, tabby"]
    assert not hub.requests
    assert "KERASVIT_WEIGHTS_DIR" not in os.environ


def test_a_local_file_is_checked_with_its_hash_file(
    public_entry, source, tmp_path, caplog
):
    entry, path = public_entry(), source / "model.safetensors"
    convert.convert(entry, tmp_path / "vit")
    note = source / "model.safetensors.sha256"
    note.write_text(f"{file_hash(path)}  model.safetensors\n")
    convert.convert(entry, tmp_path / "vit", source)
    assert not caplog.text
    note.write_text("f" * 64)
    message = f"{re.escape(str(path))} is not what .*sha256 beside it says"
    with pytest.raises(ValueError, match=message):
        convert.convert(entry, tmp_path / "vit", source)
    note.unlink()
    convert.convert(entry, tmp_path / "vit", source)
    (record,) = caplog.records
    assert f"{path} is not checked: no hash is pinned" in record.getMessage()


def test_the_card_states_the_original_file(
    public_entry, source, hub, tmp_path, monkeypatch
):
    sha256 = file_hash(source / "model.safetensors")
    commit = hub.repositories["timm/tiny"].branches["main"]

    def origin(entry, path=None):
        folder = convert.convert(entry, tmp_path / "vit", path)
        return (folder / "README.md").read_text().split(f"## {convert.ORIGIN}\n")[1]

    pinned = f"from timm/tiny, revision {commit}, SHA-256 `{sha256}`, as pinned."
    entry = public_entry(revision=commit, sha256=sha256)
    assert pinned in origin(entry) and pinned in origin(entry, source)
    there = f"from timm/tiny, revision {commit}, SHA-256 `{sha256}`, not pinned."
    assert there in origin(public_entry())
    local = (
        f"a local file in place of timm/tiny, SHA-256 `{sha256}`, not pinned: nothing"
    )
    assert local in origin(public_entry(), source)
    monkeypatch.setenv("KERASVIT_WEIGHTS_DIR", str(tmp_path))
    (tmp_path / "TinyViT").mkdir()
    (tmp_path / "TinyViT" / "sam").symlink_to(source)
    assert local in origin(public_entry())


def test_a_file_with_a_hash_other_than_the_pin_raises(public_entry, source, tmp_path):
    entry = public_entry(sha256="f" * 64)
    with pytest.raises(ValueError, match="not what was pinned of timm/tiny: its hash"):
        convert.convert(entry, tmp_path / "vit", source)
    with pytest.raises(ValueError, match="model.safetensors is expected.*vit.npz"):
        convert.convert(entry, tmp_path / "vit", tmp_path / "vit.npz")
    wrong = tmp_path / "model.safetensors"
    wrong.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=f"{re.escape(str(wrong))} .*damaged"):
        convert.convert(
            dataclasses.replace(entry, sha256=None), tmp_path / "vit", wrong
        )
    with pytest.raises(CheckpointError, match="not the expected file"):
        convert.convert(entry, tmp_path / "vit")
    assert not (tmp_path / "vit").exists()


def test_a_zeroed_head_is_omitted_and_experimental_weights_are_marked(
    public_entry, source, tmp_path
):
    entry = public_entry(head="zeroed", experimental="nobody measured them")
    folder = convert.convert(entry, tmp_path / "vit")
    assert kerasvit.from_pretrained(folder).output_shape == (None, 16)
    card = (folder / "README.md").read_text()
    assert "without a head" in card and "for 3 classes was zeroed" in card
    assert "**Experimental:** nobody measured them." in card and "classify" not in card


def test_several_names_have_a_folder_each(public_entry, source, tmp_path, capsys):
    public_entry()
    out = str(tmp_path / "zoo")
    convert.main(["TinyViT/sam", "TinyViT/sam", "--out", out])
    assert (
        capsys.readouterr().out.splitlines() == [os.path.join(out, "TinyViT-sam")] * 2
    )
    assert names(tmp_path / "zoo") == {"TinyViT-sam"}


def test_a_wrong_name_lists_the_right_ones(public_entry, tmp_path):
    public_entry()
    for name, message in {
        "TinyVit/sam": "MODEL/TAG.*weights of TinyViT.*Received: 'TinyVit/sam'",
        "TinyViT/same": "Did you mean 'sam'",
        "TinyViT": 'Published: "sam"',
    }.items():
        with pytest.raises(SystemExit, match=message):
            convert.main([name, "--out", str(tmp_path / "vit")])


def test_a_path_that_cannot_be_written_raises(public_entry, source, tmp_path):
    public_entry()
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="Error: .*(File|already) exists.*file"):
        convert.main(["TinyViT/sam", "--out", str(tmp_path / "file" / "vit")])


def test_files_of_the_user_are_not_changed(public_entry, source, tmp_path, monkeypatch):
    entry, out = public_entry(), tmp_path / "vit"
    out.mkdir()
    (out / "photo.jpg").touch()
    with pytest.raises(ValueError, match="holds other files. Nothing was written"):
        convert.convert(entry, out)
    assert names(out) == {"photo.jpg"}
    (out / "photo.jpg").unlink()  # an empty folder may be replaced
    (convert.convert(entry, out) / "README.md").write_text("old")

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(kerasvit, "save_pretrained", full)
        convert.convert(entry, out)
    assert (out / "README.md").read_text() == "old"
    convert.convert(entry, out)
    assert "sam" in (out / "README.md").read_text()
    assert not [name for name in names(tmp_path) if name.startswith(".")]


@pytest.mark.slow
@pytest.mark.parametrize("moved", [0, 1, 2])
def test_an_interrupted_replacement_of_a_folder(
    public_entry, source, tmp_path, monkeypatch, moved
):
    entry, out = public_entry(), tmp_path / "vit"
    (convert.convert(entry, out) / "README.md").write_text("old")
    replace, left = os.replace, [moved]

    def stop(old, new):
        if Path(new).parent == out:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        replace(old, new)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", stop)
        convert.convert(entry, out)
    # The tensors are the same; a folder with other tensors would be refused.
    assert kerasvit.from_pretrained(out).record["variant"] == "TinyViT"
    assert convert.read_record(out)["variant"] == "TinyViT"
    assert names(out) == {*convert.FILES}
    assert (out / "README.md").read_text() == "old"
    (out / f".kerasvit-saving-{'0' * 32}").touch()  # left by a killed run
    convert.convert(entry, out)
    assert "sam" in (out / "README.md").read_text()
