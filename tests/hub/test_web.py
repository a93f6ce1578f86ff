"""Files from the authors' servers: a fault ends in the right file or a plain error."""

import threading

import pytest
from huggingface_hub import constants

from kerasvit.hub import web
from kerasvit.hub.download import DownloadError, fetch

from . import accidents
from .some_weights import CONTENT, entry, pinned


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
def test_what_happens_once_is_got_over(hub, accident):
    hub.faults.append(accident)
    assert fetch(entry(npz(hub))).read_bytes() == CONTENT
    assert not hub.faults


@pytest.mark.parametrize(
    ("accident", "tries", "said"),
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
def test_what_never_passes_is_an_error_and_leaves_nothing(
    hub, accident, tries, said, tmp_path
):
    source = npz(hub)
    hub.faults = accidents.always(accident)
    with pytest.raises(DownloadError, match=said):
        fetch(entry(source))
    assert hub.count("GET") == tries
    left = [p.name for p in (tmp_path / "assets").rglob("*") if p.is_file()]
    assert left in ([], ["lock"])
    hub.faults = []
    assert fetch(entry(source)).read_bytes() == CONTENT


def test_a_broken_connection_goes_on_where_it_was(hub):
    asked = []

    def listen(handler, kind):
        asked.append(handler.headers.get("Range"))
        return False

    hub.faults = [listen, accidents.ended]
    assert fetch(entry(npz(hub))).read_bytes() == CONTENT
    assert asked == [None, f"bytes={len(CONTENT) // 2}-"]


def test_a_pin_refuses_another_file(hub):
    with pytest.raises(DownloadError, match="not the file that was published"):
        fetch(pinned(npz(hub, CONTENT[::-1])))


def test_a_silent_server_is_not_waited_for(hub, monkeypatch):
    monkeypatch.setattr(web, "PATIENCE", 0.1)
    source = npz(hub)
    fault, _, go = accidents.hanging()
    hub.faults.append(fault)
    assert fetch(entry(source)).read_bytes() == CONTENT
    go.set()
    hub.close()
    assert fetch(entry(source)).read_bytes() == CONTENT  # nobody is asked
    with pytest.raises(DownloadError, match="refused.*pass the path"):
        fetch(entry(source + "x"))


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT[:-9], b""], ids=len)
def test_a_file_that_rots_is_downloaded_again(hub, content, monkeypatch):
    source = npz(hub)
    path = fetch(entry(source))
    path.write_bytes(content)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="not in the cache.*HF_HUB_OFFLINE.*pass"):
        fetch(entry(source))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert fetch(entry(source)).read_bytes() == CONTENT
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(entry(source)).read_bytes() == CONTENT


@pytest.mark.parametrize("note", ["", "{", "[1]", "{}"])
def test_a_note_that_is_cut_short_is_made_again(hub, note):
    path = fetch(entry(npz(hub)))
    path.with_name(path.name + ".json").write_text(note)
    assert fetch(entry(npz(hub))).read_bytes() == CONTENT
    assert hub.count("GET") == 2


def test_what_a_killed_process_left_is_of_no_account(hub):
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
    ("code", "said"), [(28, "disk of the cache is full.*HF_HOME"), (13, "not be writt")]
)
def test_a_disk_that_refuses_says_how(hub, monkeypatch, code, said):
    source = npz(hub)

    def refuse(*_):
        raise OSError(code, "the system's words", "a/file")

    monkeypatch.setattr(web.os, "replace", refuse)
    with pytest.raises(DownloadError, match=said):
        fetch(entry(source))


def test_several_at_once_download_once(hub):
    source, found = npz(hub), []
    threads = [
        threading.Thread(target=lambda: found.append(fetch(entry(source))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and len(set(found)) == 1
    assert hub.count("GET") == 1
