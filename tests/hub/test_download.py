"""Downloads by the real client: a fault ends in the right file or a plain error."""

import dataclasses
import hashlib
import logging
import os
import threading

import numpy as np
import pytest
from huggingface_hub import constants

from kerasvit.hub import download
from kerasvit.hub.download import DownloadError, fetch, fetch_repository, parse_address
from kerasvit.hub.manifest import Entry

CONTENT = np.random.default_rng(0).bytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILES = {"model.safetensors": CONTENT, "config.json": b'{"architecture": "x"}'}


def entry(source, **pins):
    return Entry("ViTTi16", "sam", source, "timm", 10, 3, "mit", {"size": 32}, **pins)


def pinned(source, **changes):
    return entry(source, **{"size": len(CONTENT), "sha256": SHA256, **changes})


def read(path):
    return (path / "model.safetensors").read_bytes()


def status(code, kinds=("body",), times=1, **headers):
    """A fault: answers with this status."""
    left = [times]

    def fault(handler, kind):
        if kind not in kinds:
            return False
        left[0] -= 1
        handler.send(code, **headers)
        return left[0] == 0 or "again"

    return fault


def always(code, kinds, **headers):
    return [status(code, kinds, **headers) for _ in range(20)]


def test_a_repository_comes_whole_and_is_not_asked_for_twice_when_pinned(hub):
    repository = hub.add("timm/vit", FILES)
    commit = repository.branches["main"]
    folder = fetch(pinned("timm/vit", revision=commit))
    assert read(folder) == CONTENT
    assert (folder / "config.json").read_bytes() == FILES["config.json"]
    before = len(hub.requests)
    assert fetch(pinned("timm/vit", revision=commit)) == folder
    assert len(hub.requests) == before


def test_all_files_are_of_one_commit(hub):
    repository = hub.add("timm/vit", FILES)
    first = repository.branches["main"]

    def replaced_meanwhile(handler, kind):
        if kind == "body":
            repository.commit({**FILES, "config.json": b"{}"})
        return False

    hub.faults.append(replaced_meanwhile)
    folder = fetch_repository("timm/vit")
    assert folder.name == first
    assert (folder / "config.json").read_bytes() == FILES["config.json"]


def flipped(handler, kind):
    if kind != "body":
        return False
    handler.send(200, CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    return True


def test_a_flipped_bit_is_noticed_and_mended(hub, caplog):
    hub.add("timm/vit", FILES)
    hub.faults.append(flipped)
    with caplog.at_level(logging.WARNING, "kerasvit"):
        assert read(fetch(entry("timm/vit"))) == CONTENT
    assert "damaged" in caplog.text and "downloaded again" in caplog.text


def test_a_bit_that_flips_twice_is_an_error(hub):
    hub.add("timm/vit", FILES)
    hub.faults += [flipped, flipped]
    with pytest.raises(DownloadError, match="downloaded twice.*hash is .* in place of"):
        fetch(entry("timm/vit"))


def test_a_cache_that_rots_is_mended(hub):
    hub.add("timm/vit", FILES)
    folder = fetch(entry("timm/vit"))
    blob = (folder / "model.safetensors").resolve()
    os.chmod(blob, 0o644)
    blob.write_bytes(CONTENT[:-1] + b"x")
    assert read(fetch(entry("timm/vit"))) == CONTENT


def test_a_pin_refuses_other_weights(hub):
    hub.add("timm/vit", {**FILES, "model.safetensors": CONTENT[::-1]})
    with pytest.raises(DownloadError, match="not what it should be"):
        fetch(pinned("timm/vit"))


def reset(handler, kind):
    if kind not in ("body", "file"):
        return False
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(CONTENT)))
    handler.end_headers()
    handler.wfile.write(CONTENT[: len(CONTENT) // 2])
    handler.wfile.flush()
    import socket
    import struct

    linger = struct.pack("ii", 1, 0)  # a reset, not an end
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.close_connection = True
    handler.connection.close()
    return True


@pytest.mark.parametrize("fault", [status(503), status(429), reset])
def test_what_passes_is_tried_again(hub, fault):
    hub.add("timm/vit", FILES)
    hub.faults.append(lambda handler, kind: bool(fault(handler, kind)))
    assert read(fetch(entry("timm/vit"))) == CONTENT


def test_a_stale_token_does_not_keep_from_public_weights(hub, monkeypatch, caplog):
    hub.add("timm/vit", FILES)
    monkeypatch.setenv("HF_TOKEN", "hf_stale_secret")
    with caplog.at_level(logging.DEBUG):
        assert read(fetch(entry("timm/vit"))) == CONTENT
    assert "not valid; trying without" in caplog.text
    assert "hf_stale_secret" not in caplog.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gated": True}, "asks for your consent"),
        ({"private": True}, "does not exist, or is private"),
    ],
)
def test_what_may_not_be_read_says_so(hub, options, said):
    hub.add("timm/vit", FILES, **options)
    with pytest.raises(DownloadError, match=said):
        fetch(entry("timm/vit"))


def test_a_missing_repository_revision_and_file_say_which(hub):
    with pytest.raises(DownloadError, match="timm/none does not exist"):
        fetch_repository("timm/none")
    hub.add("timm/vit", {"pytorch_model.bin": b"", "config.json": b"{}"})
    with pytest.raises(DownloadError, match="has no revision 'v9'"):
        fetch_repository("timm/vit", "v9")
    with pytest.raises(DownloadError, match="no model.safetensors. Pickled"):
        fetch_repository("timm/vit")


def test_offline(hub, monkeypatch):
    hub.add("timm/vit", FILES)
    folder = fetch(entry("timm/vit"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    before = len(hub.requests)
    assert fetch(entry("timm/vit")) == folder
    assert len(hub.requests) == before
    with pytest.raises(DownloadError, match="not in the cache.*HF_HUB_OFFLINE.*elsewh"):
        fetch(entry("timm/other"))


def test_a_server_that_is_down(hub, monkeypatch):
    hub.add("timm/vit", FILES)
    folder = fetch(entry("timm/vit"))
    hub.faults += always(500, ("head",))
    assert fetch(entry("timm/vit")) == folder  # from the cache


def test_weights_that_were_copied_by_hand(hub, monkeypatch, tmp_path):
    place = tmp_path / "by_hand" / "ViTTi16" / "sam"
    place.mkdir(parents=True)
    (place / "model.safetensors").write_bytes(CONTENT)
    monkeypatch.setenv("KERASVIT_WEIGHTS_DIR", str(tmp_path / "by_hand"))
    assert fetch(pinned("timm/vit")) == place / "model.safetensors"
    assert not hub.requests
    (place / "model.safetensors").write_bytes(CONTENT[:-1])
    with pytest.raises(DownloadError, match="damaged: it has 2999999 bytes"):
        fetch(pinned("timm/vit"))


def test_several_at_once_download_once(hub):
    commit = hub.add("timm/vit", FILES).branches["main"]
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(fetch(pinned("timm/vit", revision=commit)))
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and len(set(found)) == 1
    assert hub.count("GET", "/content/") == 1


# Files behind an address.


def npz(hub, content=CONTENT):
    hub.files["a/ViT%2BB.npz".replace("%2B", "+")] = content
    return hub.address("a/ViT%2BB.npz")


def test_an_address_comes_under_its_name_and_once(hub):
    source = npz(hub)
    path = fetch(entry(source))
    assert path.name == "ViT+B.npz" and path.read_bytes() == CONTENT
    assert fetch(entry(source)) == path
    assert hub.count("GET") == 1


def test_the_same_name_elsewhere_is_another_file(hub):
    hub.files["a/ViT-B_16.npz"], hub.files["b/ViT-B_16.npz"] = b"a", b"b"
    contents = {
        fetch(entry(hub.address(f"{place}/ViT-B_16.npz"))).read_bytes()
        for place in "ab"
    }
    assert contents == {b"a", b"b"}


def test_a_file_that_rots_is_downloaded_again(hub):
    source = npz(hub)
    path = fetch(entry(source))
    path.write_bytes(CONTENT[:-1] + b"x")
    assert fetch(entry(source)).read_bytes() == CONTENT


def test_an_address_goes_on_after_a_reset(hub):
    hub.faults.append(reset)
    assert fetch(entry(npz(hub))).read_bytes() == CONTENT


def test_an_address_with_a_flipped_bit_is_tried_again_and_then_refused(hub):
    def flip(handler, kind):
        right = hashlib.md5(CONTENT).digest()
        import base64

        said = f"md5={base64.b64encode(right).decode()}"
        handler.send(200, CONTENT[:-1] + b"x", x_goog_hash=said)
        return True

    source = npz(hub)
    hub.faults.append(flip)
    assert fetch(entry(source)).read_bytes() == CONTENT
    other = source.replace("/a/", "/c/")
    hub.faults += [flip, flip, flip]
    with pytest.raises(DownloadError, match="not the file that was published.*pass"):
        fetch(entry(other))


def test_an_address_pinned_to_another_file(hub):
    with pytest.raises(DownloadError, match="not the file that was published"):
        fetch(pinned(npz(hub, CONTENT[::-1])))


@pytest.mark.parametrize(("code", "tries"), [(404, 1), (503, 3)])
def test_an_address_that_fails_says_how(hub, code, tries):
    source = npz(hub)
    hub.faults += always(code, ("file",))
    with pytest.raises(DownloadError, match=f"the server answers {code}"):
        fetch(entry(source))
    assert hub.count("GET") == tries


def test_nothing_half_written_is_left(hub, tmp_path):
    hub.faults += [reset, reset, reset]
    with pytest.raises(DownloadError):
        fetch(entry(npz(hub)))
    left = [p.name for p in (tmp_path / "assets").rglob("*") if p.is_file()]
    assert set(left) <= {"lock"}


def test_addresses_of_the_hub():
    assert parse_address("hf://me/vit") == ("me/vit", None)
    assert parse_address("hf://models/me/vit@v1.0") == ("me/vit", "v1.0")
    for wrong in ("hf://vit", "hf://me/vit/model.safetensors", "hf://me/../x"):
        with pytest.raises(ValueError, match="hf://user/repository"):
            parse_address(wrong)


def test_a_token_is_in_no_repr(hub):
    files = download.HubFiles("me/vit", None, {"token": "hf_secret"})
    assert "hf_secret" not in repr(files)
    assert dataclasses.is_dataclass(Entry)
