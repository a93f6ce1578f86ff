"""`weights.publish_all`: all names of a catalogue, on the local Hub."""

import dataclasses
import errno
import json
import shutil
import tomllib
from collections import namedtuple

import pytest
from huggingface_hub import HfApi, constants, scan_cache_dir
from huggingface_hub.utils import validate_repo_id

import kerasvit
from kerasvit.hub import manifest
from kerasvit.hub.download import fetch
from kerasvit.hub.hashes import file_hash
from tests.once import on_last_backend
from weights import certificate, convert, hub_state, names, publish_all, verify

ADDITIONS = publish_all.ADDITIONS
pytestmark = [on_last_backend, pytest.mark.slow]

TAGS = ("sam", "augreg", "imagenet")
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def catalogue(public_entry, source, hub, in_this_process, monkeypatch):
    """Three pinned names of the same files, each in a repository; logged in as me."""
    monkeypatch.setenv("HF_TOKEN", "good")
    sha256 = file_hash(source / "model.safetensors")
    entry = public_entry(
        sha256=sha256, size=(source / "model.safetensors").stat().st_size
    )
    entries = []
    for tag in TAGS:
        files = hub.repositories["timm/tiny"].files
        hub.add(f"timm/{tag}", {**files, "README.md": tag.encode()})
        revision = hub.repositories[f"timm/{tag}"].branches["main"]
        entries.append(
            dataclasses.replace(entry, tag=tag, source=f"timm/{tag}", revision=revision)
        )
    monkeypatch.setattr(manifest, "entries", lambda: tuple(entries))
    return entries


@pytest.fixture
def run(tmp_path, capsys):
    """Runs the command; returns its exit code, stdout, and the error or None."""

    def run(*arguments, organisation="me"):
        try:
            publish_all.main([organisation, "--out", str(tmp_path / "zoo"), *arguments])
        except SystemExit as error:
            return 1, capsys.readouterr().out, str(error.code)
        return 0, capsys.readouterr().out, None

    return run


def rows(out):
    """{name: its cells} of the table."""
    lines = out[out.index("name ") :].split("\n\n")[0].splitlines()[1:]
    return {line.split()[0]: line.split()[1:] for line in lines}


def additions(tmp_path):
    text = (tmp_path / "zoo" / ADDITIONS).read_text()
    return {table["tag"]: table for table in tomllib.loads(text)["weights"]}


def uploads(hub):
    return hub.count("POST", "/commit/")


def test_all_names_are_published_once(catalogue, run, hub, tmp_path, monkeypatch):
    code, out, _ = run()
    assert code == 0 and uploads(hub) == 3
    found = rows(out)
    assert list(found) == [f"TinyViT/{tag}" for tag in TAGS]
    for tag in TAGS:
        repository = hub.repositories[f"me/tinyvit-{tag}"]
        assert repository.files.keys() == {*convert.FILES}
        name, commit, state, _ = found[f"TinyViT/{tag}"]
        assert (name, state) == (f"me/tinyvit-{tag}", "published")
        assert repository.branches["main"].startswith(commit) and len(commit) == 12
    assert list(additions(tmp_path)) == list(TAGS)
    assert {path.name for path in (tmp_path / "zoo").iterdir()} == {ADDITIONS}

    (tmp_path / "zoo" / ADDITIONS).unlink()  # the state is read from the server
    code, out, _ = run()
    assert code == 0 and uploads(hub) == 3
    assert {cells[2] for cells in rows(out).values()} == {"skipped"}
    tables = additions(tmp_path)
    entries = [manifest.Entry(**table) for table in tables.values()]
    monkeypatch.setattr(manifest, "entries", lambda: tuple(entries))
    assert kerasvit.TinyViT("augreg").output_shape == (None, 3)
    code, out, _ = run()  # with the tables in sources.toml
    assert code == 0 and uploads(hub) == 3 and additions(tmp_path) == tables


def test_a_stopped_run_continues(catalogue, run, hub, tmp_path, monkeypatch):
    def stop(handler, kind):
        if "tinyvit-augreg/commit/" in handler.path:
            handler.send(403, X_Error_Message="no")
        return "tinyvit-augreg/commit/" in handler.path

    hub.faults = [stop]
    code, out, error = run()
    assert code == 1 and "\n" not in error
    assert error.startswith(
        "Error: TinyViT/augreg, step publish: me/tinyvit-augreg was"
    )
    assert "Then run the same command again" in error
    assert (
        list(rows(out))
        == ["TinyViT/sam"]
        == [f"TinyViT/{t}" for t in additions(tmp_path)]
    )
    assert (tmp_path / "zoo" / "TinyViT-augreg").is_dir()

    converted = []
    monkeypatch.setattr(
        publish_all,
        "convert",
        lambda entry, out: converted.append(entry.tag) or convert.convert(entry, out),
    )
    code, out, _ = run(
        "--only", "*/sam"
    )  # keeps the table of a name that is not chosen
    assert code == 0 and rows(out)["TinyViT/sam"][2] == "skipped"
    code, out, _ = run()
    assert code == 0 and list(additions(tmp_path)) == list(TAGS)
    states = {name: cells[2] for name, cells in rows(out).items()}
    assert list(states.values()) == ["skipped", "published", "published"]
    assert converted == ["imagenet"]  # the folder of the other had passed


def test_downloads_are_deleted_after_the_upload(catalogue, run, hub, tmp_path):
    mine = fetch(catalogue[1])
    assert run()[0] == 0
    cached = {
        repository.repo_id
        for repository in scan_cache_dir(constants.HF_HUB_CACHE).repos
        if repository.repo_id.startswith("timm/")
    }
    assert cached == {catalogue[1].source} and mine.exists()


def test_a_folder_of_a_run_that_was_killed_is_removed(
    catalogue, run, hub, tmp_path, monkeypatch
):
    def killed(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(publish_all, "_remove", killed)
        run("--only", "*/sam")
    assert uploads(hub) == 1 and (tmp_path / "zoo" / "TinyViT-sam").is_dir()
    assert rows(run("--only", "*/sam")[1])["TinyViT/sam"][2] == "skipped"
    assert not (tmp_path / "zoo" / "TinyViT-sam").exists()


def test_tables_of_another_organisation_are_kept(catalogue, run, tmp_path):
    path = tmp_path / "zoo" / ADDITIONS
    assert run("--only", "*/sam")[0] == 0
    path.write_text(path.read_text().replace("me/tinyvit", "others/tinyvit"))
    assert run("--only", "*/sam", "*/augreg")[0] == 0
    tables = tomllib.loads(path.read_text())["weights"]
    assert [table["source"] for table in tables] == [
        "me/tinyvit-sam",
        "others/tinyvit-sam",
        "me/tinyvit-augreg",
    ]


def test_changed_files_on_the_server_are_published_again(catalogue, run, hub):
    run("--only", "tinyvit/SAM")
    repository = hub.repositories["me/tinyvit-sam"]
    good = repository.files
    proof = json.loads(good[certificate.CERTIFICATE])
    other = proof | {"converted_from": proof["converted_from"] | {"sha256": "f" * 64}}
    damage = {
        "model.safetensors": b"other weights",
        "config.json": b"{}",
        "certificate.json": b"no JSON",
    }
    cases = [{**good, name: body} for name, body in damage.items()]
    cases.append({**good, "certificate.json": json.dumps(other).encode()})
    cases.append({k: v for k, v in good.items() if k != "certificate.json"})
    cases.append({})
    client = HfApi(endpoint=hub.endpoint)
    for files in cases:
        repository.commit(files)
        assert hub_state.find_published(client, "me/tinyvit-sam", catalogue[0]) is None
    assert rows(run("--only", "*/sam")[1])["TinyViT/sam"][2] == "published"
    assert repository.files.keys() == {*convert.FILES}
    repository.commit({**repository.files, "README.md": b"my own card"})
    assert rows(run("--only", "*/sam")[1])["TinyViT/sam"][2] == "skipped"


def nothing_was_done(hub, tmp_path):
    return not uploads(hub) and not (tmp_path / "zoo").exists()


def test_a_token_is_needed(catalogue, run, hub, tmp_path, monkeypatch):
    for token, message in {
        "": "There is no token for http.* Run `hf auth login`",
        "bad": "does not accept the token.*hf auth login",
    }.items():
        monkeypatch.setenv("HF_TOKEN", token)
        code, _, error = run()
        assert code == 1 and "\n" not in error
        pytest.raises(ValueError, _raise, error).match(message)
    assert nothing_was_done(hub, tmp_path)


def _raise(message):
    raise ValueError(message)


SCOPE = {"entity": {"type": "org", "name": "Zoo"}, "permissions": ["repo.write"]}
FINE = {"role": "fineGrained", "fineGrained": {"scoped": [SCOPE]}}
RIGHTS = {  # (role in the organisation or None, token): what the error says or None
    "write": ("write", {"role": "write"}, None),
    "contributor": ("contributor", {"role": "write"}, None),
    "fine": ("admin", FINE, None),
    "no member": (None, {"role": "write"}, "its user me is not a member"),
    "reader": ("read", {"role": "write"}, "the role of its user me there is read"),
    "read token": ("admin", {"role": "read"}, "its role is read"),
    "other scope": (
        "admin",
        {"role": "fineGrained", "fineGrained": {"scoped": []}},
        "it is a fine-grained token, and its list does not name it",
    ),
}


@pytest.mark.parametrize("case", RIGHTS)
def test_the_token_must_be_allowed_to_write(catalogue, run, hub, tmp_path, case):
    role, token, reason = RIGHTS[case]
    organisations = [{"name": "zoo", "roleInOrg": role}] if role else []

    def account(handler, kind):
        answer = {"name": "me", "orgs": organisations, "auth": {"accessToken": token}}
        return handler.path.endswith("whoami-v2") and (
            lambda: handler.send(200, answer)
        )

    hub.faults = [account]
    code, _, error = run("--only", "*/sam", organisation="Zoo")
    if reason:
        assert code == 1 and f"may not write to Zoo: {reason}" in error
        assert nothing_was_done(hub, tmp_path)
    else:  # the local Hub knows only the user me
        assert "step publish" in error


def test_files_without_a_pin_are_listed_first(catalogue, run, hub, tmp_path):
    catalogue[1:] = [dataclasses.replace(e, sha256=None) for e in catalogue[1:]]
    code, _, error = run()
    assert code == 1 and "2 of 3 names are not pinned: TinyViT/augreg, Tiny" in error
    assert error.endswith("weights.lock --pin TinyViT/augreg TinyViT/imagenet")
    assert nothing_was_done(hub, tmp_path) and not hub.requests
    assert run("--only", "*/sam")[0] == 0


def test_a_newer_manifest_is_an_error(run, tmp_path, monkeypatch):
    path = tmp_path / "manifest.json"
    path.write_text('{"format_version": 2, "weights": []}')
    monkeypatch.setattr(manifest, "MANIFEST", path)
    code, _, error = run()
    assert code == 1 and "this kerasvit reads 1: update kerasvit" in error
    assert "\n" not in error


def test_a_pattern_must_match_a_name(catalogue, run, hub, tmp_path):
    code, _, error = run("--only", "TinyVit/same")
    assert code == 1 and "Similar names: TinyViT/sam" in error and "\n" not in error
    assert nothing_was_done(hub, tmp_path)
    found = names.chosen(manifest.entries(), ["tinyvit"])
    assert [e.tag for e in found] == list(TAGS)
    for name in ("a/b", "a b", ""):
        assert "must be" in run(organisation=name)[2]


def test_the_largest_file_must_fit(catalogue, run, hub, tmp_path, monkeypatch):
    catalogue[2] = dataclasses.replace(catalogue[2], size=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 10**9))
    code, _, error = run()
    assert code == 1 and "TinyViT/imagenet, the largest file, needs 2.00 GB" in error
    assert "1.00 GB are free. Make room, or set --out and HF_HOME" in error
    assert nothing_was_done(hub, tmp_path)
    assert run("--only", "*/sam")[0] == 0


def test_a_disk_that_becomes_full(catalogue, run, hub, tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(kerasvit, "save_pretrained", full)
        code, _, error = run("--only", "*/sam")
    assert code == 1 and "TinyViT/sam, step convert: [Errno 28] No space" in error
    assert [path.name for path in (tmp_path / "zoo").iterdir()] == ["downloads.json"]
    assert run("--only", "*/sam")[0] == 0
    assert not (tmp_path / "zoo" / "downloads.json").exists()


def test_weights_that_differ_are_not_uploaded(catalogue, run, hub, monkeypatch):
    bad = certificate.Check("small models", "torch", 1.0, 1.0, 1e-5, {})
    with monkeypatch.context() as patch:
        patch.setattr("weights.parity.check_golden_cases", lambda entry: bad)
        code, out, error = run()
    assert code == 1 and not uploads(hub) and "repository" not in out
    assert "TinyViT/sam, step verify: FAILED: the table in" in error

    def missing():
        raise ImportError("no timm")

    with monkeypatch.context() as patch:
        patch.setattr("weights.timm_reference.import_timm", missing)
        assert "step verify: INCOMPLETE: not all could be compared: " in run()[2]

    def fails(backend, work):
        raise ValueError("On torch: Traceback\n" + "x\n" * 1000 + "KeyError: 'head'")

    with monkeypatch.context() as patch:
        patch.setattr(verify, "run_parity", fails)
        error = run()[2]
    assert "On torch: Traceback" in error and "KeyError: 'head'. Then run" in error
    assert len(error) < 1000 and "\n" not in error and not uploads(hub)


def test_a_damaged_file_of_tables(catalogue, run, hub, tmp_path):
    (tmp_path / "zoo").mkdir()
    for content in ("[[weights", "x = 1", "[[weights]]\nmodel = 1"):
        (tmp_path / "zoo" / ADDITIONS).write_text(content)
        code, _, error = run()
        assert code == 1 and f"{ADDITIONS} is damaged" in error and "\n" not in error
    assert not hub.requests


def test_repositories_of_the_catalogue_have_valid_names():
    names = [publish_all.repository_of("Zoo", e) for e in manifest.entries()]
    assert len({*names}) == len(names) > 100
    for name in names:
        validate_repo_id(name)
        assert name == f"Zoo/{name.removeprefix('Zoo/').lower()}"
