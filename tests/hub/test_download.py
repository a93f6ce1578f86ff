"""Downloads with the real client: faults give the right file or a clear error."""

import dataclasses
import json
import logging
import os
import shutil

import pytest
from huggingface_hub import constants, file_download

import kerasvit
from kerasvit.checkpoints import CheckpointError
from kerasvit.hub import download
from kerasvit.hub.download import DownloadError, fetch, fetch_repository, parse_address
from kerasvit.hub.manifest import Entry
from tests.checkpoints.torch_files import FILES as TORCH_FILES
from tests.checkpoints.torch_files import GOLDEN

from . import accidents
from .local_hub import in_three_threads
from .some_weights import CONTENT, FILES, SHA256, entry, pinned

pytestmark = pytest.mark.slow


def read(path):
    return (path / "model.safetensors").read_bytes()


def test_a_pinned_repository_is_requested_once(hub):
    repository = hub.add("timm/vit", FILES)
    commit = repository.branches["main"]
    folder = fetch(pinned("timm/vit", revision=commit))
    assert read(folder) == CONTENT
    assert (folder / "config.json").read_bytes() == FILES["config.json"]
    before = len(hub.requests)
    assert fetch(pinned("timm/vit", revision=commit)) == folder
    assert len(hub.requests) == before


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "copied"])
def test_a_missing_optional_file_is_requested_once(hub, noted, tmp_path):
    files = {**FILES, "config.json": b'{"model_type": "vit"}'}
    commit = hub.add("me/vit", files).branches["main"]
    folder = fetch_repository("me/vit", commit)
    before = len(hub.requests)
    if noted:
        assert fetch_repository("me/vit", commit) == folder
    else:  # a cache that was copied without the client's metadata
        shutil.rmtree(tmp_path / "cache" / "models--me--vit" / ".no_exist")
    assert fetch_repository("me/vit", local_files_only=True, revision=commit) == folder
    assert len(hub.requests) == before
    assert not (folder / "preprocessor_config.json").exists()


def test_a_failed_request_is_not_a_missing_optional_file(hub):
    files = {**FILES, "config.json": b'{"model_type": "vit"}'}
    hub.add("me/vit", files)
    down = accidents.status(503, ("head",))
    hub.faults = accidents.always(
        lambda handler, kind: "preprocessor" in handler.path and down(handler, kind)
    )
    with pytest.raises(DownloadError, match="preprocessor_config.json"):
        fetch_repository("me/vit")


def test_all_files_are_of_one_commit(hub):
    repository = hub.add("timm/vit", FILES)
    first = repository.branches["main"]

    def replaced_meanwhile(handler, kind):
        if kind == "body":
            repository.commit({**FILES, "config.json": b"{}"})

    hub.faults.append(replaced_meanwhile)
    folder = fetch_repository("timm/vit")
    assert folder.name == first
    assert (folder / "config.json").read_bytes() == FILES["config.json"]


def test_a_flipped_bit_is_detected_and_downloaded_again(hub, caplog):
    hub.add("timm/vit", FILES)
    hub.faults.append(accidents.flipped)
    with caplog.at_level(logging.WARNING, "kerasvit"):
        assert read(fetch(entry("timm/vit"))) == CONTENT
    assert "damaged" in caplog.text and "downloaded again" in caplog.text


@pytest.mark.parametrize(
    "accident",
    [
        accidents.shorter,
        accidents.longer,
        accidents.portal,
        accidents.ended,
        accidents.reset,
        accidents.status(429),
        accidents.status(500),
        accidents.status(503),
        accidents.status(503, ("head",)),
    ],
)
def test_a_fault_that_happens_once_is_retried(hub, accident):
    hub.add("timm/vit", FILES)
    hub.faults.append(accident)
    assert read(fetch(entry("timm/vit"))) == CONTENT
    assert not hub.faults


@pytest.mark.parametrize(
    ("accident", "message"),
    [
        (accidents.flipped, "downloaded twice.*hash is .* in place of.*proxy"),
        (accidents.shorter, r"Consistency check failed.*[^.]\. Download"),
        (accidents.portal, "Consistency check failed.*elsewhere"),
        (accidents.ended, "RemoteProtocolError.*elsewhere"),
        (accidents.reset, "ReadError.*elsewhere"),
        (accidents.status(429), "the server answers 429. Try later.*elsewhere"),
        (accidents.status(503), "the server answers 503. Try later.*elsewhere"),
        (accidents.status(500, ("head",)), "not in the cache.*500.*elsewhere"),
    ],
)
def test_a_lasting_fault_raises_and_keeps_files(hub, accident, message):
    hub.add("timm/vit", FILES)
    hub.faults = accidents.always(accident)
    with pytest.raises(DownloadError, match=message):
        fetch(entry("timm/vit"))
    hub.faults = []
    assert read(fetch(entry("timm/vit"))) == CONTENT


def damaged(folder, content):
    blob = (folder / "model.safetensors").resolve()
    os.chmod(blob, 0o644)
    blob.write_bytes(content)


ROTTEN = [CONTENT[:-1] + b"x", CONTENT[:-9], b""]


@pytest.mark.parametrize("content", ROTTEN, ids=len)
def test_a_damaged_cache_is_downloaded_again(hub, content):
    hub.add("timm/vit", FILES)
    damaged(fetch(entry("timm/vit")), content)
    assert read(fetch(entry("timm/vit"))) == CONTENT


@pytest.mark.parametrize("content", ROTTEN, ids=len)
def test_a_damaged_cache_is_detected_offline(hub, content, monkeypatch):
    hub.add("timm/vit", FILES)
    folder = fetch(entry("timm/vit"))
    damaged(folder, content)
    for name in ("HF_HUB_OFFLINE", "silent"):
        if name == "HF_HUB_OFFLINE":
            monkeypatch.setattr(constants, name, True)
        else:
            monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
            hub.close()
        with pytest.raises(DownloadError, match="damaged.*not be downloaded again"):
            fetch(entry("timm/vit"))
    damaged(folder, CONTENT)
    assert fetch(entry("timm/vit")) == folder  # nothing was lost


def test_a_cache_without_links_is_checked_too(hub, monkeypatch, caplog):
    monkeypatch.setattr(file_download, "are_symlinks_supported", lambda _: False)
    hub.add("timm/vit", FILES)
    hub.faults.append(accidents.flipped)
    folder = fetch_repository("timm/vit")
    path = folder / "model.safetensors"
    assert not path.is_symlink()
    assert read(folder) == CONTENT
    path.write_bytes(CONTENT[:-1] + b"!")
    assert read(fetch_repository("timm/vit", folder.name)) == CONTENT
    assert caplog.text.count("It is downloaded again") == 2
    path.write_bytes(CONTENT[:-1] + b"!")
    monkeypatch.setenv("HF_TOKEN", "hf_stale")
    assert read(fetch_repository("timm/vit", folder.name)) == CONTENT
    # If no server answers, the cached files are used.
    path.write_bytes(CONTENT[:-1] + b"!")
    assert fetch_repository("timm/vit", folder.name, local_files_only=True) == folder
    hub.faults = accidents.always(accidents.status(503, ("head",)))
    assert fetch_repository("timm/vit", folder.name) == folder


def test_without_links_a_damaged_file_is_kept_until_replaced(hub, monkeypatch):
    monkeypatch.setattr(file_download, "are_symlinks_supported", lambda _: False)
    commit = hub.add("timm/vit", FILES).branches["main"]
    folder = fetch(pinned("timm/vit", revision=commit))
    (folder / "model.safetensors").write_bytes(CONTENT[::-1])
    hub.faults = accidents.always(accidents.status(503))
    with pytest.raises(DownloadError, match="damaged.*not be downloaded again"):
        fetch(pinned("timm/vit", revision=commit))
    assert read(folder) == CONTENT[::-1]
    hub.faults = []
    assert read(fetch(pinned("timm/vit", revision=commit))) == CONTENT
    assert {path.name for path in folder.iterdir()} == set(FILES)


def test_a_full_disk_is_explained(hub, monkeypatch):
    hub.add("timm/vit", FILES)
    write = file_download.http_get

    def full(url, file, **options):
        file.write(CONTENT[:1000])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_download, "http_get", full)
    with pytest.raises(DownloadError, match="disk of the cache is full.*HF_HOME"):
        fetch(entry("timm/vit"))
    monkeypatch.setattr(file_download, "http_get", write)
    assert read(fetch(entry("timm/vit"))) == CONTENT


def test_a_read_only_cache_is_an_error(hub, monkeypatch, tmp_path):
    hub.add("timm/vit", FILES)
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DownloadError, match="file"):
        fetch(entry("timm/vit"))


def test_the_newest_commit_is_loaded_without_a_pin(hub):
    repository = hub.add("timm/vit", FILES)
    fetch(entry("timm/vit"))
    before = len(hub.requests)
    fetch(entry("timm/vit"))
    asked = hub.requests[before:]  # the configuration is of the commit found: cached
    assert [method for method, path in asked if "/resolve/" in path] == ["HEAD"]
    repository.commit({**FILES, "model.safetensors": CONTENT[::-1]})
    assert read(fetch(entry("timm/vit"))) == CONTENT[::-1]


def test_a_pin_raises_for_other_weights(hub):
    hub.add("timm/vit", {**FILES, "model.safetensors": CONTENT[::-1]})
    with pytest.raises(DownloadError, match="not the expected file"):
        fetch(pinned("timm/vit"))


@pytest.mark.parametrize("faults", [[], accidents.always(accidents.expired)], ids=len)
def test_an_expired_token_does_not_block_public_weights(
    hub, monkeypatch, caplog, faults
):
    hub.add("timm/vit", FILES)
    hub.faults = faults.copy()
    monkeypatch.setenv("HF_TOKEN", "hf_stale_secret")
    with caplog.at_level(logging.DEBUG):
        folder = fetch(entry("timm/vit"))
    assert read(folder) == CONTENT
    assert caplog.text.count("not valid; the download continues without") == 1
    assert "hf_stale_secret" not in caplog.text
    damaged(folder, CONTENT[:-1] + b"!")
    assert read(fetch(entry("timm/vit"))) == CONTENT


@pytest.mark.parametrize(
    "message", ["Invalid credentials in Authorization header", "No"]
)
def test_a_missing_token_gives_no_hint_to_wait(hub, message, caplog):
    hub.faults = accidents.always(
        accidents.status(401, ("head",), X_Error_Message=message)
    )
    with pytest.raises(DownloadError, match="hf auth login") as caught:
        fetch(entry("timm/vit"))
    assert "Try later" not in str(caught.value)
    assert "token is not valid" not in caplog.text  # none was sent


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gated": True}, "asks for your consent"),
        ({"private": True}, "does not exist, or is private"),
    ],
)
def test_an_unreadable_file_is_an_error(hub, options, message):
    hub.add("timm/vit", FILES, **options)
    with pytest.raises(DownloadError, match=message):
        fetch(entry("timm/vit"))


def test_dinov3_behind_metas_gate_names_open_copies(hub):
    hub.add("facebook/dinov3-vitb16-pretrain-lvd1689m", FILES, gated=True)
    message = r"asks for your consent.*hf://timm/vit_base_patch16_dinov3\.lvd1689m"
    with pytest.raises(DownloadError, match=message):
        fetch_repository("facebook/dinov3-vitb16-pretrain-lvd1689m", None)


@pytest.mark.parametrize("token", ["hf_valid", "hf_stale", ""])
def test_a_missing_repository_is_not_a_token_error(hub, monkeypatch, token, caplog):
    hub.tokens = {"hf_valid"}
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(DownloadError) as caught:
        fetch_repository("timm/none")
    message = str(caught.value)
    assert "does not exist, or is private" in message and "Check the name" in message
    assert f"{hub.endpoint}/timm/none" in message and "`hf auth login`" in message
    assert "token is not valid" not in caplog.text


@pytest.mark.parametrize("code", [400, 403, 404, 409, 451])
@pytest.mark.parametrize("kind", ["head", "body"])
def test_another_server_or_a_proxy_is_not_a_hub_out_of_reach(hub, code, kind):
    hub.add("timm/vit", FILES)
    hub.faults = accidents.always(accidents.status(code, (kind,)))
    with pytest.raises(DownloadError) as caught:
        fetch_repository("timm/vit")
    message = str(caught.value)
    assert (
        "cannot be reached" not in message and f"the server answers {code}" in message
    )
    assert "but not as a Hub does" in message and "HF_ENDPOINT" in message
    assert ("legal reasons" in message) == (code == 451)
    assert hub.count("HEAD") + hub.count("GET", "/content") < 5  # no retries


@pytest.mark.parametrize("code", [200, 301, 302, 307])
def test_a_login_page_is_not_an_unreachable_hub(hub, code):
    hub.add("timm/vit", FILES)
    login = accidents.status(code, ("head",), Location="http://localhost:9/login")
    hub.faults = accidents.always(login)
    with pytest.raises(DownloadError, match="but not as a Hub does.*page to log in at"):
        fetch_repository("timm/vit")


def test_errors_contain_the_hubs_message(hub):
    hub.add("timm/vit", FILES)
    refuse = accidents.status(403, ("head",), X_Error_Message="Region not allowed.")
    hub.faults = accidents.always(refuse)
    with pytest.raises(DownloadError, match="403 and says: Region not allowed. Downlo"):
        fetch_repository("timm/vit")


def test_errors_name_the_missing_repository_revision_or_file(hub):
    with pytest.raises(DownloadError, match="timm/none does not exist"):
        fetch_repository("timm/none")
    hub.add("timm/vit", {"weights.pth": b"", "config.json": b"{}"})
    with pytest.raises(DownloadError, match="has no revision 'v9'"):
        fetch_repository("timm/vit", "v9")
    with pytest.raises(DownloadError, match="safetensors, nor pytorch_model.bin. Down"):
        fetch_repository("timm/vit")
    hub.add("timm/bare", {"model.safetensors": CONTENT})
    with pytest.raises(DownloadError, match="no config.json, which.*ViTB16"):
        fetch_repository("timm/bare")
    hub.add("me/parts", {"model.safetensors.index.json": b"{}", "config.json": b"{}"})
    with pytest.raises(CheckpointError, match="index.json must have an obj"):
        fetch_repository("me/parts")


def test_shards_are_downloaded(hub):
    index, names = "model.safetensors.index.json", []
    for i in (1, 2):
        names.append(f"model-0000{i}-of-00002.safetensors")
    places = json.dumps({"weight_map": dict(zip("ab", names, strict=True))}).encode()
    files = {names[0]: CONTENT, index: places, "config.json": b"{}"}
    hub.add("me/parts", files)
    with pytest.raises(DownloadError, match=f"has no {names[1]}"):
        fetch_repository("me/parts")
    hub.add("me/all", {**files, names[1]: CONTENT})
    folder = fetch_repository("me/all")
    assert {path.name for path in folder.iterdir()} == {*names, index, "config.json"}
    assert fetch_repository("me/all", local_files_only=True) == folder


def test_other_weights_are_downloaded_where_there_are_no_others(hub):
    config = {"config.json": b"{}"}
    for name in ("pytorch_model.bin", "tf_model.h5"):
        hub.add(f"old/{name}", {**config, name: CONTENT})
        folder = fetch_repository(f"old/{name}")
        assert (folder / name).read_bytes() == CONTENT
        assert fetch_repository(f"old/{name}", local_files_only=True) == folder
    hub.add("timm/both", {**FILES, "pytorch_model.bin": CONTENT})
    folder = fetch_repository("timm/both")
    assert not (folder / "pytorch_model.bin").exists() and read(folder) == CONTENT
    names = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
    places = json.dumps({"weight_map": dict(zip("ab", names, strict=True))}).encode()
    index = {"pytorch_model.bin.index.json": places}
    hub.add("me/parts", {**config, **index, **dict.fromkeys(names, CONTENT)})
    folder = fetch_repository("me/parts")
    assert {path.name for path in folder.iterdir()} == {*names, *index, *config}


def test_pickled_weights_from_the_hub_are_loaded(hub):
    pickled = (TORCH_FILES / "zip.pth").read_bytes()
    config = json.dumps({"model_args": {"num_heads": 3}}).encode()
    hub.add("timm/old", {"pytorch_model.bin": pickled, "config.json": config})
    model = kerasvit.from_pretrained("hf://timm/old")
    assert model.record["base"] == {"source": "timm/old", "license": None}


def test_presets_of_keras_hub_from_the_hub_are_loaded(hub):
    files = {
        path.name: path.read_bytes() for path in (GOLDEN / "keras_hub_vit").glob("*.*")
    }
    hub.add("keras/vit", files)
    model = kerasvit.from_pretrained("hf://keras/vit")
    assert model.output_shape == (None, 5)
    assert model.record["base"] == {"source": "keras/vit", "license": None}
    assert model.record["preprocessing"]["antialias"] is False


def test_errors_name_the_endpoint(hub):
    with pytest.raises(DownloadError, match="not requested from .*: .*127.0.0.1.*/x "):
        fetch_repository("timm/x", local_files_only=True)
    with pytest.raises(DownloadError, match="https://mirror.example/timm/x "):
        fetch_repository(
            "timm/x", local_files_only=True, endpoint="https://mirror.example"
        )


def test_offline(hub, monkeypatch):
    hub.add("timm/vit", FILES)
    folder = fetch(entry("timm/vit"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    before = len(hub.requests)
    assert fetch(entry("timm/vit")) == folder
    assert len(hub.requests) == before
    with pytest.raises(DownloadError, match="not in the cache.*HF_HUB_OFFLINE.*elsewh"):
        fetch(entry("timm/other"))


def test_cached_files_need_no_server(hub, monkeypatch):
    hub.add("timm/vit", FILES)
    folder = fetch(entry("timm/vit"))
    hub.faults = accidents.always(accidents.status(500, ("head",)))
    assert fetch(entry("timm/vit")) == folder
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.1)
    fault, reached, go = accidents.hanging(("head",))
    hub.faults = [fault]
    assert fetch(entry("timm/vit")) == folder and reached.is_set()
    go.set()
    hub.close()
    assert fetch(entry("timm/vit")) == folder
    shutil.rmtree(folder)
    with pytest.raises(DownloadError, match=r"in the cache.*Connect.*[a-z]\. Downl"):
        fetch(entry("timm/vit"))


def test_weights_that_were_copied_by_hand(hub, monkeypatch, tmp_path):
    folder = tmp_path / "by_hand" / "ViTTi16" / "sam"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(CONTENT)
    monkeypatch.setenv("KERASVIT_WEIGHTS_DIR", str(tmp_path / "by_hand"))
    assert fetch(pinned("timm/vit")) == folder / "model.safetensors"
    assert not hub.requests
    (folder / "model.safetensors").write_bytes(CONTENT[:-1])
    with pytest.raises(DownloadError, match="damaged: it has 299999 bytes"):
        fetch(pinned("timm/vit"))


def test_a_copy_is_checked_with_its_hash_file(hub, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("KERASVIT_WEIGHTS_DIR", str(tmp_path))

    def copied(tag, note=None, content=CONTENT):
        path = tmp_path / "ViTTi16" / tag / "model.safetensors"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        if note is not None:
            path.with_name("model.safetensors.sha256").write_text(note)
        for _ in range(2):
            assert fetch(dataclasses.replace(entry("timm/vit"), tag=tag)) == path

    copied("right", f"{SHA256}  model.safetensors\n")
    copied("upper_case", SHA256.upper())
    assert not caplog.text
    copied("none")
    assert caplog.text.count("is not checked: no hash is pinned") == 1
    with pytest.raises(DownloadError, match="damaged: its hash is .* Copy it again"):
        copied("other", SHA256, CONTENT[::-1])
    with pytest.raises(DownloadError, match="64 hex digits, as sha256sum .* 'no hash'"):
        copied("no_note", "no hash")


def test_several_at_once_download_once(hub):
    commit = hub.add("timm/vit", FILES).branches["main"]
    found = in_three_threads(lambda: fetch(pinned("timm/vit", revision=commit)))
    assert len(set(found)) == 1
    assert hub.count("GET", "/content/") == 1


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
