"""Downloads through Xet, the Hub's chunk storage, with its real client.

The client can keep a store on the disk, which is documented nowhere: a version without
it skips these tests.
"""

import time

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _xet

from kerasvit.hub.download import DownloadError, fetch

from .some_weights import CONTENT, FILES, SHA256, entry

pytestmark = pytest.mark.slow

hf_xet = pytest.importorskip("hf_xet")


@pytest.fixture
def store(hub, monkeypatch, tmp_path):
    """Folder of the store, which has the weights of "timm/vit"."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setenv("HF_XET_CACHE", str(tmp_path / "xet"))
    monkeypatch.setattr(_xet, "XET_CONNECTION_INFO_CACHE", {}, raising=False)
    folder = tmp_path / "store"
    folder.mkdir()
    hub.xet = f"local://{folder}"
    access = ("token", int(time.time()) + 3600)
    try:
        (made,) = hf_xet.upload_bytes([CONTENT], hub.xet, access, None, None, "model")
    except Exception as error:
        pytest.skip(f"this version of Xet keeps no store on the disk: {error}")
    hub.xet_hashes = {SHA256: made.hash}
    hub.add("timm/vit", FILES)
    return folder


def test_the_right_file_is_downloaded(hub, store):
    folder = fetch(entry("timm/vit"))
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    assert hub.count("GET", "/content/") == 0
    before = len(hub.requests)
    assert fetch(entry("timm/vit", revision=folder.name)) == folder
    assert len(hub.requests) == before


def test_a_damaged_store_is_detected(hub, store):
    (pieces,) = (
        path
        for path in store.glob("**/xorbs/default.*")
        if path.stat().st_size > len(CONTENT) // 2
    )
    pieces.chmod(0o644)
    content = bytearray(pieces.read_bytes())
    content[len(content) // 2] ^= 1
    pieces.write_bytes(content)
    with pytest.raises(DownloadError, match="timm/vit"):
        fetch(entry("timm/vit"))
    content[len(content) // 2] ^= 1
    pieces.write_bytes(content)
    folder = fetch(entry("timm/vit"))
    assert (folder / "model.safetensors").read_bytes() == CONTENT


def test_a_damaged_shared_blob_is_downloaded_again(hub, store):
    path = fetch(entry("timm/vit")) / "model.safetensors"
    path.resolve().chmod(0o644)
    path.resolve().write_bytes(CONTENT[:-1] + b"x")
    assert (fetch(entry("timm/vit")) / path.name).read_bytes() == CONTENT
