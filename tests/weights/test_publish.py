"""From a converted folder to the Hub, and to what sources.toml says of it."""

import hashlib
import tomllib

import numpy as np
import pytest

import kerasvit
from kerasvit.hub import manifest
from tests.contract import to_numpy
from weights import convert, publish, verify

IMAGES = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype("float32")


@pytest.fixture
def folder(publics, source, here_alone, tmp_path, monkeypatch):
    """Converted and verified; the user has logged in."""
    monkeypatch.setenv("HF_TOKEN", "good")
    folder = convert.convert(publics(head="zeroed"), tmp_path / "vit")
    assert verify.verify(folder)
    return folder


def test_there_and_back_by_name(folder, hub, capsys, monkeypatch):
    (folder / "notes.txt").touch()  # the user's own
    publish.main([str(folder), "me/tiny", "--private"])
    repository = hub.repositories["me/tiny"]
    assert repository.private and set(repository.files) == set(convert.FILES)
    card = repository.files["README.md"].decode()
    assert "**PASSED**" in card and 'from_pretrained("hf://me/tiny")' in card
    assert "USER" not in card and card == (folder / "README.md").read_text()

    said = capsys.readouterr().out
    assert said.startswith(f"{hub.endpoint}/me/tiny/commit/")
    toml = said[said.index("[[weights]]") : said.index("Then:")]
    (fields,) = tomllib.loads(toml)["weights"]
    assert fields["top1"] == {"percent": 80.5, "source": "measured by its authors"}
    assert fields["preprocessing"]["size"] == 8
    entry = manifest.Entry(**fields)
    tensors = repository.files["model.safetensors"]
    assert entry.revision == repository.branches["main"]
    assert entry.size == len(tensors)
    assert entry.sha256 == hashlib.sha256(tensors).hexdigest()
    assert (entry.source, entry.format, entry.classes) == ("me/tiny", "timm", 0)
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


def test_without_a_certificate_nothing_is_uploaded(folder, hub, publics):
    convert.convert(publics(), folder)
    with pytest.raises(SystemExit, match="no parity certificate.*weights.verify"):
        publish.main([str(folder), "me/tiny"])
    assert not any("me/tiny" in path for _, path in hub.requests)


def test_a_token_that_may_not_is_explained(folder, hub):
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
