"""Downloads from the authors' servers: faults give the right file or a clear error."""

import base64
import functools

import pytest
from huggingface_hub import constants

from kerasvit.checkpoints import folder
from kerasvit.hub import servers
from kerasvit.hub.download import DownloadError, fetch
from kerasvit.hub.hashes import LANE, POLYNOMIAL, crc32c

from . import accidents
from .local_hub import in_three_threads
from .some_weights import CONTENT, entry, pinned

pytestmark = pytest.mark.slow


def npz(hub, content=CONTENT):
    hub.files["a/ViT%2BB.npz".replace("%2B", "+")] = content
    return hub.address("a/ViT%2BB.npz")


def test_an_address_is_downloaded_once_with_its_file_name(hub):
    source = npz(hub)
    path = fetch(entry(source))
    assert path.name == "ViT+B.npz" and path.read_bytes() == CONTENT
    assert fetch(entry(source)) == path
    assert hub.count("GET") == 1


def test_a_copy_is_found_under_the_name_that_a_browser_gives(
    hub, monkeypatch, tmp_path
):
    wanted = entry("https://host.example/a%2Bb/R26%2BViT-B_32.npz?alt=media")
    directory = tmp_path / "by_hand" / wanted.model / wanted.tag
    directory.mkdir(parents=True)
    (directory / "R26+ViT-B_32.npz").write_bytes(CONTENT)
    monkeypatch.setenv("KERASVIT_WEIGHTS_DIR", str(tmp_path / "by_hand"))
    assert fetch(wanted) == directory / "R26+ViT-B_32.npz"


def test_the_same_name_elsewhere_is_another_file(hub):
    hub.files["a/ViT-B_16.npz"], hub.files["b/ViT-B_16.npz"] = b"a", b"b"
    contents = {
        fetch(entry(hub.address(f"{directory}/ViT-B_16.npz"))).read_bytes()
        for directory in "ab"
    }
    assert contents == {b"a", b"b"}


@pytest.mark.parametrize(
    "accident",
    [
        accidents.flipped,
        accidents.shorter,
        accidents.longer,
        accidents.portal,
        accidents.ended,
        accidents.reset,
        accidents.status(429),
        accidents.status(503),
    ],
)
def test_a_fault_that_happens_once_is_retried(hub, accident):
    hub.faults.append(accident)
    assert fetch(entry(npz(hub))).read_bytes() == CONTENT
    assert not hub.faults


@pytest.mark.parametrize(
    ("accident", "tries", "message"),
    [
        (accidents.flipped, 3, "not the file that was published.*pass the path"),
        (accidents.shorter, 3, "not the file that was published"),
        (accidents.longer, 3, "not the file that was published"),
        (accidents.portal, 3, "a page to log in"),
        (accidents.ended, 3, "bytes came in place of"),
        (accidents.reset, 3, "Connection reset"),
        (accidents.status(429), 3, "the server answers 429"),
        (accidents.status(503), 3, "the server answers 503"),
        (accidents.status(404), 1, "the server answers 404"),
    ],
)
def test_a_lasting_fault_raises_and_leaves_no_files(
    hub, accident, tries, message, tmp_path
):
    source = npz(hub)
    hub.faults = accidents.always(accident)
    with pytest.raises(DownloadError, match=message):
        fetch(entry(source))
    assert hub.count("GET") == tries
    left = [p.name for p in (tmp_path / "assets").rglob("*") if p.is_file()]
    assert left in ([], ["lock"])
    hub.faults = []
    assert fetch(entry(source)).read_bytes() == CONTENT


def test_a_broken_download_is_resumed(hub):
    asked = []

    def listen(handler, kind):
        asked.append(handler.headers.get("Range"))

    hub.faults = [listen, accidents.ended]
    assert fetch(entry(npz(hub))).read_bytes() == CONTENT
    assert asked == [None, f"bytes={len(CONTENT) // 2}-"]


@pytest.mark.parametrize(
    ("content", "expected"),
    # RFC 3720, B.4, and the check value of the catalogue of CRCs.
    [(bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (b"123456789", 0xE3069283)],
    ids=["zeros", "ones", "digits"],
)
def test_crc32c(hub, tmp_path, content, expected):
    file = tmp_path / "file"
    file.write_bytes(content)
    assert crc32c(file) == expected


@pytest.mark.parametrize("length", [0, 1, LANE, 3 * LANE + 5])
def test_crc32c_equals_the_bitwise_computation(hub, tmp_path, length):
    file = tmp_path / "file"
    file.write_bytes(CONTENT[:length])
    state = 0xFFFFFFFF
    for byte in CONTENT[:length]:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (POLYNOMIAL if state & 1 else 0)
    assert crc32c(file) == state ^ 0xFFFFFFFF


def in_parts(content, promise):
    """The response for an object uploaded in parts: it has no MD5."""

    def fault(handler, kind):
        return functools.partial(handler.send, 200, content, x_goog_hash=promise)

    return fault


def test_without_an_md5_the_crc32c_is_checked(hub, tmp_path):
    source = npz(hub)
    (tmp_path / "file").write_bytes(CONTENT)
    crc = crc32c(tmp_path / "file").to_bytes(4, "big")
    header = f"crc32c={base64.b64encode(crc).decode()}"
    hub.faults = [in_parts(CONTENT[:-1] + b"x", header), in_parts(CONTENT, header)]
    assert fetch(entry(source)).read_bytes() == CONTENT
    assert hub.count("GET") == 2


@pytest.mark.parametrize("promise", ["", "sha1=AAAA"])
def test_a_download_without_a_known_hash_raises(hub, promise):
    hub.faults = [in_parts(CONTENT, promise)] * 3
    with pytest.raises(DownloadError, match="not from the storage"):
        fetch(entry(npz(hub)))


def test_a_cached_file_is_kept_until_a_correct_one_arrives(hub, monkeypatch):
    source = npz(hub)
    path = fetch(entry(source))
    assert servers.fetch_address(source, again=True) == path
    assert hub.count("GET") == 2
    hub.faults = accidents.always(accidents.portal)
    with pytest.raises(OSError, match="a page to log in"):
        servers.fetch_address(source, again=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="must be downloaded again, and HF_HUB_OFFLINE"):
        servers.fetch_address(source, again=True)
    assert fetch(pinned(source)) == path


def test_a_pin_raises_for_another_file(hub):
    with pytest.raises(DownloadError, match="not the file that was published"):
        fetch(pinned(npz(hub, CONTENT[::-1])))


def test_a_silent_server_times_out(hub, monkeypatch):
    monkeypatch.setattr(servers, "PATIENCE", 0.1)
    source = npz(hub)
    fault, _, go = accidents.hanging()
    hub.faults.append(fault)
    assert fetch(entry(source)).read_bytes() == CONTENT
    go.set()
    hub.close()
    assert fetch(entry(source)).read_bytes() == CONTENT  # without a request
    with pytest.raises(DownloadError, match="refused.*pass the path"):
        fetch(entry(source + "x"))


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT[:-9], b""], ids=len)
def test_a_damaged_file_is_downloaded_again(hub, content, monkeypatch, caplog):
    source = npz(hub)
    path = fetch(entry(source))
    path.write_bytes(content)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    message = (
        "damaged in the cache, .*: its hash is .* in place of .*HF_HUB_OFFLINE.*pass"
    )
    with pytest.raises(DownloadError, match=message):
        fetch(entry(source))
    assert path.read_bytes() == content
    with pytest.raises(DownloadError, match="x is not in the cache.*HF_HUB_OFFLINE"):
        fetch(entry(source + "x"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert fetch(entry(source)).read_bytes() == CONTENT
    assert caplog.text.count("It is downloaded again") == 1
    assert f"damaged in the cache, {path}: its hash is" in caplog.text
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(entry(source)).read_bytes() == CONTENT


@pytest.mark.parametrize("note", ["", "{", "[1]", "{}", '{"sha256": 3}'])
def test_a_damaged_cache_record_is_written_again(hub, note, caplog):
    path = fetch(entry(npz(hub)))
    path.with_name(path.name + ".json").write_text(note)
    assert fetch(entry(npz(hub))).read_bytes() == CONTENT
    assert hub.count("GET") == 2
    assert "is damaged in the cache" in caplog.text


def test_the_pin_is_checked_without_the_cache_record(hub, monkeypatch):
    source = npz(hub)
    path = fetch(entry(source))
    note = path.with_name(path.name + ".json")
    text = note.read_text()
    note.unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="the note with its hash is missing, and"):
        fetch(entry(source))
    for damage in ("{", None):
        note.write_text(damage) if damage else note.unlink()
        assert fetch(pinned(source)) == path
        assert note.read_text() == text
    assert fetch(entry(source)) == path
    note.unlink()

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder.os, "replace", refuse)
    assert fetch(pinned(source)) == path and not note.exists()


def test_files_of_a_killed_process_are_ignored(hub):
    source = npz(hub)
    path = fetch(entry(source))
    path.rename(path.with_name(f".{path.name}")).write_bytes(b"of another file")
    assert fetch(entry(source)).read_bytes() == CONTENT
    assert {p.name for p in path.parent.iterdir()} == {
        path.name,
        f"{path.name}.json",
        "lock",
    }


@pytest.mark.parametrize(
    ("code", "message"),
    [(28, "disk of the cache is full.*HF_HOME"), (13, "not be writt")],
)
def test_disk_errors_are_explained(hub, monkeypatch, code, message):
    source = npz(hub)

    def refuse(*_):
        raise OSError(code, "the system's words", "a/file")

    monkeypatch.setattr(servers.os, "replace", refuse)
    with pytest.raises(DownloadError, match=message):
        fetch(entry(source))


def test_several_at_once_download_once(hub):
    source = npz(hub)
    assert len(set(in_three_threads(lambda: fetch(entry(source))))) == 1
    assert hub.count("GET") == 1
