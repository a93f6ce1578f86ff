"""`weights.publish`: from a converted folder to the Hub and sources.toml."""

import dataclasses
import hashlib
import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

import kerasvit
from kerasvit.hub import manifest
from kerasvit.hub.hashes import file_hash
from tests.contract import to_numpy
from tests.once import once
from weights import convert, lock, parity, publish, verify
from weights.certificate import CERTIFICATE, HEADING, PASSED
from weights.originals import first

pytestmark = pytest.mark.slow

MODELS = Path(__file__).parents[1] / "golden" / "models"
TinyMixer = kerasvit.Variant(
    "TinyMixer",
    kerasvit.MLPMixer,
    **{"patch_size": 4, "width": 20, "depth": 2},
    **{"tokens_mlp_dim": 12, "channels_mlp_dim": 36},
)
BIGGER = np.random.default_rng(1).normal(size=(2, 16, 16, 3)).astype("float32")
IMAGES = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype("float32")


@pytest.fixture
def folder(
    public_entry, source, in_this_process, tmp_path, tmp_path_factory, monkeypatch
):
    """A converted and verified folder; the user has logged in."""
    monkeypatch.setenv("HF_TOKEN", "good")
    sha256 = file_hash(source / "model.safetensors")
    entry = public_entry(head="zeroed", sha256=sha256)

    def work(path):
        assert verify.verify(convert.convert(entry, path / "vit")) == PASSED

    path = once(tmp_path_factory, "verified", work)
    return shutil.copytree(path / "vit", tmp_path / "vit")


def test_a_published_folder_loads_by_name(folder, hub, capsys, monkeypatch):
    (folder / "notes.txt").touch()  # a file of the user
    publish.main([str(folder), "me/tiny", "--private"])
    repository = hub.repositories["me/tiny"]
    assert repository.private and set(repository.files) == set(convert.FILES)
    card = repository.files["README.md"].decode()
    assert "**PASSED**" in card and 'from_pretrained("hf://me/tiny")' in card
    certificate = json.loads(repository.files[CERTIFICATE])
    assert certificate["verdict"] == PASSED
    sha256 = hashlib.sha256(repository.files["model.safetensors"]).hexdigest()
    assert certificate["files"]["model.safetensors"] == sha256
    assert "USER" not in card and card == (folder / "README.md").read_text()

    output = capsys.readouterr().out
    assert output.startswith(f"{hub.endpoint}/me/tiny/commit/")
    toml = output[output.index("[[weights]]") : output.index("Then:")]
    (fields,) = tomllib.loads(toml)["weights"]
    assert fields["top1"] == {"percent": 80.5, "source": "measured by its authors"}
    assert fields["preprocessing"]["size"] == 8
    entry = manifest.Entry(**fields)
    tensors = repository.files["model.safetensors"]
    assert entry.revision == repository.branches["main"]
    assert entry.size == len(tensors)
    assert entry.sha256 == hashlib.sha256(tensors).hexdigest()
    assert (entry.source, entry.format, entry.classes) == ("me/tiny", "timm", 0)
    (before,) = manifest.entries()
    again = dataclasses.asdict(first(entry))  # equal except for rounded fields
    rest = {"preprocessing": entry.preprocessing, "megabytes": entry.megabytes}
    assert again == {**dataclasses.asdict(before), **rest}
    monkeypatch.setattr(manifest, "entries", lambda: (entry,))
    expected = to_numpy(kerasvit.from_pretrained(folder)(IMAGES))
    monkeypatch.setenv("HF_TOKEN", "good")
    found = kerasvit.TinyViT("sam")
    np.testing.assert_array_equal(to_numpy(found(IMAGES)), expected)
    assert found.record["preprocessing"]["size"] == [8, 8]


def test_a_branch_of_an_old_repository_whose_page_is_replaced(folder, hub):
    repository = hub.add("me/tiny", {"README.md": b"old", "model-1.safetensors": b""})
    publish.main([str(folder), "me/tiny", "--revision", "trial"])
    assert repository.files["README.md"] == b"old"
    trial = repository.commits[repository.branches["trial"]]
    assert set(trial) == set(convert.FILES) and b"PASSED" in trial["README.md"]
    card = trial["README.md"].decode()
    for part in ("# me/tiny@trial\n", "hf://me/tiny@trial", "hf-hub:me/tiny@trial"):
        assert part in card
    publish.main([str(folder), "me/tiny"])
    assert b"@trial" not in repository.files["README.md"]


def test_publish_without_timm(
    hub, in_this_process, public_entry, monkeypatch, tmp_path
):
    """All five steps, then all five again from the published kerasvit folder."""
    monkeypatch.setattr(kerasvit, "TinyMixer", TinyMixer, raising=False)
    monkeypatch.setenv("HF_TOKEN", "good")
    hub.files["mixer.npz"] = (MODELS / "mixer" / "checkpoint.npz").read_bytes()
    changes = {"model": "TinyMixer", "format": "vision_transformer", "classes": 7}
    changes |= {"source": hub.address("mixer.npz"), "preprocessing": {"size": 16}}
    original = dataclasses.asdict(public_entry(**changes))
    found = [{k: fact for k, fact in original.items() if fact is not None}]
    assert lock.pin_all(found, again=False, manifest=tmp_path / "manifest.json") == []
    entry, folder = manifest.Entry(**found[0]), tmp_path / "mixer"
    expected = None
    for repository in ("me/mixer", "me/again"):
        monkeypatch.setattr(manifest, "entries", lambda: (entry,))  # noqa: B023
        logits = to_numpy(kerasvit.TinyMixer("sam")(BIGGER))
        expected = logits if expected is None else expected
        np.testing.assert_array_equal(logits, expected)
        convert.main(["TinyMixer/sam", "--out", str(folder)])
        verify.main([str(folder)])
        info, new = publish.publish(folder, repository)
        (tmp_path / "sources.toml").write_text(publish.as_toml(new))
        (fields,) = lock.lock(tmp_path / "sources.toml", tmp_path / "manifest.json")
        entry = manifest.Entry(**fields)
        assert entry == new and first(entry).source == changes["source"]
        assert (entry.source, entry.format) == (repository, "kerasvit")
        assert list(parity.golden_cases(first(entry))) == ["mixer", "mixer_patch8"]
        card = hub.repositories[repository].files["README.md"].decode()
        assert f'base_model: "{repository}"' not in card and changes["source"] in card


def test_files_without_a_pin_are_not_published(folder, hub, public_entry):
    pinned = manifest.entries()[0].sha256
    convert.convert(public_entry(), folder)
    assert verify.verify(folder) == PASSED
    with pytest.raises(SystemExit, match="lock --pin TinyViT/sam, then .*convert"):
        publish.main([str(folder), "me/tiny"])
    entry = public_entry(sha256=pinned)
    assert verify.verify(folder) == PASSED  # its source is not recorded
    with pytest.raises(SystemExit, match="known to be timm/tiny.* Run python -m .*con"):
        publish.main([str(folder), "me/tiny"])
    assert not any("me/tiny" in path for _, path in hub.requests)
    convert.convert(entry, folder)
    assert verify.verify(folder) == PASSED
    publish.main([str(folder), "me/tiny"])


def test_a_folder_without_certificate_is_not_uploaded(folder, hub, public_entry):
    convert.convert(public_entry(), folder)
    with pytest.raises(SystemExit, match="no parity certificate.*weights.verify"):
        publish.main([str(folder), "me/tiny"])
    assert not any("me/tiny" in path for _, path in hub.requests)


def test_no_command_reads_the_card(folder, hub, public_entry):
    card = folder / "README.md"
    card.write_text(card.read_text().replace(f"## {HEADING}", "## Removed"))
    publish.main([str(folder), "me/tiny"])
    convert.convert(manifest.entries()[0], folder)
    card.write_text(f"{card.read_text()}\n## {HEADING}\n\n**PASSED**\n")
    with pytest.raises(SystemExit, match="no parity certificate"):
        publish.main([str(folder), "me/tiny"])


DAMAGE = {
    "has no certificate.json. Run: .*weights.convert": lambda content: None,
    "is not JSON": lambda content: "{",
    "must hold a JSON object": lambda content: "[]",
    "format_version 1. Received: 2": {"format_version": 2},
    "is damaged, or was changed by hand": {"verdict": "FAILED"},
    "or was changed by hand. Run: ": {"checks": []},
    "changed by hand. Run: python": {"checks": ["x"]},
    "changed by hand. Run: python -m": {"notes": None},
    "by hand. Run: python -m weights.convert": {"converted_from": {"source": 1}},
    "changed since it was compared.*weights.verify": {"files": {}},
    "not compared with all .*: no timm": {"missing": ["no timm"]} | {"verdict": None},
    "no parity certificate": {"compared_with": None, "verdict": "UNVERIFIED"},
}


@pytest.mark.parametrize("message", DAMAGE)
def test_an_invalid_certificate_raises(folder, hub, message):
    path, damage = folder / CERTIFICATE, DAMAGE[message]
    content = json.loads(path.read_text())
    if callable(damage):
        text = damage(content)
    else:
        damaged = content | damage
        damaged["verdict"] = damaged["verdict"] or "INCOMPLETE"
        text = json.dumps(damaged)
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(SystemExit, match=message):
        publish.main([str(folder), "me/tiny"])
    assert not any("me/tiny" in path for _, path in hub.requests)


def test_a_token_without_permission_is_explained(folder, hub):
    before = (folder / "README.md").read_text()
    with pytest.raises(SystemExit, match="may not write to 'other'"):
        publish.main([str(folder), "other/tiny"])
    assert (folder / "README.md").read_text() == before


def test_an_upload_that_fails_leaves_the_card_as_it_was(folder, hub):
    before = (folder / "README.md").read_text()

    def refuse(handler, kind):
        if "/commit/" in handler.path:
            handler.send(403)
        return "/commit/" in handler.path

    hub.faults = [refuse]
    with pytest.raises(SystemExit, match="may not write to 'me'"):
        publish.main([str(folder), "me/tiny"])
    assert not hub.faults and (folder / "README.md").read_text() == before
