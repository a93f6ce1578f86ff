"""`weights.status`: the page of what is proven for each name."""

import dataclasses
import re
from pathlib import Path

import pytest

from kerasvit.hub import manifest
from tests.once import on_last_backend
from weights import disputed, status, status_page
from weights.contact.results import Result, write
from weights.lock import lock
from weights.status_facts import merge_all, read_facts, valid_facts

pytestmark = [on_last_backend, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
AGAIN = "run: python -m weights.lock; python -m weights.status"
PAGES = (
    "README.md",
    "weights/README.md",
    "tests/README.md",
    "kerasvit/models/README.md",
)
NAME, NPZ = "ViTB16/augreg_in1k", "MixerB16/sam"  # on the Hub, and at an address
HUB, GOOGLE, HERE = (
    "https://huggingface.co",
    "https://storage.googleapis.com",
    "http://127.0.0.1:8000",
)
PINS = {"revision": "c" * 40, "size": 9, "sha256": "a" * 64}
EQUAL = {"reference": "timm 1.0.31", "error": 3e-7, "allowed": 1e-5, "note": None}
NOT_COMPARED = {
    "reference": "published logits",
    "error": None,
    "allowed": 1e-4,
    "note": "not compared: no photograph",
}
TOP1 = {
    "percent": 79.0,
    "images": 50000,
    "classes": 1000,
    "digest": "d" * 64,
    "labels": None,
    "published": 79.15,
    "real_percent": None,
    "passed": True,
}


def result(name=NAME, **changes):
    """A result of the real Hub that passed."""
    fields = {"server": HUB, "pins": PINS, "loaded": True, "date": "2026-12-01"}
    fields |= {"kerasvit": "0.1.0", "backend": "torch", "name": name, "entry": {}}
    return Result(**{**fields, **changes})


@pytest.fixture
def merged(tmp_path):
    """Merges results in order; returns (facts, sentences of the last merge)."""

    def merged(*results):
        facts, unused = {}, []
        for each in results:
            write(tmp_path, each)
            facts, unused = merge_all(facts, tmp_path, manifest.entries())
        return facts, unused

    return merged


def counted(facts):
    return status_page.counts(manifest.entries(), facts)


def row(facts, name=NAME):
    page = status_page.page(manifest.entries(), facts)
    (line,) = re.findall(rf"(?m)^\| {name} \|(.*)\|$", page.split("## Names")[1])
    return [cell.strip() for cell in line.split(" | ")]


def test_the_page_is_up_to_date():
    assert lock() == [
        {k: v for k, v in dataclasses.asdict(e).items() if v is not None}
        for e in manifest.entries()
    ], f"sources.toml was edited; {AGAIN}"
    page = status_page.page(manifest.entries(), read_facts())
    assert status.PAGE.read_text(encoding="utf-8") == page, f"STATUS.md is old; {AGAIN}"
    assert valid_facts(read_facts(), manifest.entries()).keys() >= read_facts().keys()


def test_no_other_page_claims_more():
    numbers, total = counted(read_facts()), len(manifest.entries())
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        for found in re.findall(r"(\d+) of (\d+) names", text):
            assert (int(found[0]), int(found[1])) in [
                (number, total) for number in numbers.values()
            ], f"{name}: STATUS.md has other counts"
        if numbers[status_page.LOADED]:
            assert not re.search(r"(?i)no public (file|checkpoint)", text), name
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(weights/STATUS.md)" in readme
    if not numbers[status_page.LOADED]:
        assert "no public file has been loaded yet" in readme


def test_every_name_has_a_row_and_golden_cases():
    page = status_page.page(manifest.entries(), {})
    for entry in manifest.entries():
        assert f"| {entry.model}/{entry.tag} | " in page
    numbers = counted({})
    assert numbers.pop(status_page.GOLDEN) == len(manifest.entries())
    assert set(numbers.values()) == {0}
    assert row({})[0].endswith("of timm VisionTransformer")
    assert status_page.COMMAND in page and "## Failures" not in page


def test_a_local_server_proves_only_names_and_shapes(merged):
    facts, unused = merged(result(server=HERE, comparisons=[EQUAL], top1=TOP1))
    assert not unused and facts[NAME].keys() == {"source", "random"}
    numbers = counted(facts)
    assert (numbers[status_page.RANDOM], numbers[status_page.LOADED]) == (1, 0)
    assert numbers[status_page.RANDOM_EQUAL] == 1
    random = "2026-12-01, 0.1.0, torch; timm 1.0.31: 3e-07"
    assert row(facts)[1:] == [random, "–", "–", "(79.15)"]
    facts, _ = merged(result(server=HERE, comparisons=[NOT_COMPARED]))
    assert row(facts)[1] == "2026-12-01, 0.1.0, torch"
    assert counted(facts)[status_page.RANDOM_EQUAL] == 0
    failure = {"kind": "format", "message": "a tensor is missing"}
    bad = result(server=HERE, failure=failure, loaded=False)
    facts, unused = merged(result(server=HERE), bad)
    assert counted(facts)[status_page.RANDOM] == 0
    assert unused == [f"{NAME}: the file of random values: a tensor is missing"]


def test_the_real_server_proves_the_file(merged):
    comparisons = [EQUAL, NOT_COMPARED]
    npz = result(NPZ, server=GOOGLE, top1=TOP1 | {"passed": False})
    facts, unused = merged(result(comparisons=comparisons, top1=TOP1), npz)
    assert not unused
    assert row(facts)[2:] == [
        "2026-12-01, 0.1.0, torch",
        "timm 1.0.31: 3e-07 (2026-12-01, 0.1.0, torch)",
        "79.00 of 50000 images, 2026-12-01, 0.1.0, torch (79.15)",
    ]
    numbers = counted(facts)
    assert numbers[status_page.LOADED] == numbers[status_page.MEASURED] == 2
    assert numbers[status_page.EQUAL] == 1 and numbers[status_page.FAILED] == 0
    assert "79.00 **too low** of 50000 images" in row(facts, NPZ)[-1]
    page = status_page.page(manifest.entries(), facts)
    assert "kerasvit has measured the file" in page
    assert "| catalogue | nothing | 79.00 of 50000 images" in page


def test_another_server_proves_nothing(merged):
    facts, unused = merged(result(server="https://hf-mirror.com"))
    assert "loaded" not in facts[NAME] and "is neither its server nor" in unused[0]
    facts, unused = merged(result(NPZ, server=HUB))
    assert "loaded" not in facts[NPZ] and len(unused) == 2
    facts, unused = merged(result("ViTB16/none"))
    assert "ViTB16/none: the catalogue has no such name" in unused


def test_older_proofs_are_kept_for_the_same_file_only(merged):
    first = result(comparisons=[EQUAL], top1=TOP1)
    some = result(top1=TOP1 | {"images": 9}, date="2026-12-02")
    facts, _ = merged(some)
    assert (
        counted(facts)[status_page.MEASURED] == 0 and " of 9 images" in row(facts)[-1]
    )
    assert merged(first, some)[0][NAME]["top1"]["images"] == 50000
    few = result(top1=TOP1 | {"classes": 3}, comparisons=[EQUAL])
    facts, unused = merged(few)
    assert "top1" not in facts[NAME] and facts[NAME].keys() >= {"loaded", "equal"}
    assert unused == [f"{NAME}: top-1, of 3 classes only"]
    local = result(server=HERE, date="2026-12-02")
    facts, _ = merged(first, local, result(date="2026-12-03"))
    assert facts[NAME]["loaded"]["date"] == "2026-12-03"
    assert facts[NAME]["equal"][0]["date"] == facts[NAME]["top1"]["date"] == first.date
    assert facts[NAME]["random"]["date"] == "2026-12-02"
    facts, unused = merged(result(date="2026-12-03"), first)
    assert facts[NAME]["loaded"]["date"] == "2026-12-03" and "newer" in unused[0]
    old = result(failure={"kind": "name", "message": "404"}, pins=None, loaded=False)
    facts, unused = merged(result(date="2026-12-03"), old)
    assert "failure" not in facts[NAME] and "newer" in unused[0]
    other = result(pins=PINS | {"sha256": "b" * 64}, date="2026-12-04")
    facts, _ = merged(first, local, other)
    assert facts[NAME].keys() == {"source", "random", "pins", "loaded"}


def test_pins_and_sources_of_the_catalogue_decide(merged, monkeypatch):
    facts, _ = merged(result(server=HERE), result())
    entries = {f"{e.model}/{e.tag}": e for e in manifest.entries()}

    def changed(**changes):
        return [dataclasses.replace(entries[NAME], **changes)]

    for changes, kept in (
        ({"sha256": PINS["sha256"]}, {"random", "pins", "loaded"}),
        ({"sha256": "b" * 64}, {"random"}),
        ({"source": "timm/other"}, set()),
    ):
        assert valid_facts(facts, changed(**changes))[NAME].keys() - {"source"} == kept
    entries = changed(sha256="b" * 64)
    monkeypatch.setattr(manifest, "entries", lambda: tuple(entries))
    facts, unused = merged(result())
    assert "loaded" not in facts[NAME] and "another file than the man" in unused[0]


def test_failures_are_listed_until_the_next_success(merged):
    failure = {"kind": "licence", "message": "the card says mit | not apache-2.0"}
    facts, unused = merged(result(), result(failure=failure, date="2026-12-02"))
    assert not unused and counted(facts)[status_page.FAILED] == 1
    assert row(facts)[2] == "2026-12-02, 0.1.0, torch, **failed**"
    assert counted(facts)[status_page.LOADED] == 0
    page = status_page.page(manifest.entries(), facts)
    assert (
        f"| {NAME} | licence | the card says mit \\| not apache-2.0 | 2026-12-02"
        in page
    )
    gone = result(failure={"kind": "name", "message": "404"}, pins=None, loaded=False)
    facts, _ = merged(gone)
    assert facts[NAME]["failure"]["kind"] == "name" and "loaded" not in facts[NAME]
    busy = result(failure={"kind": "server", "message": "503"}, pins=None, loaded=False)
    facts, unused = merged(result(), busy)
    assert "failure" not in facts[NAME] and "loaded" in facts[NAME]
    assert unused == [f"{NAME}: 503"]
    numbers = {"kind": "numbers", "message": "the difference is 1"}
    differs = result(failure=numbers, comparisons=[EQUAL | {"error": 1.0}])
    facts, _ = merged(result(comparisons=[EQUAL]), differs)
    assert facts[NAME]["failure"]["kind"] == "numbers" and "equal" not in facts[NAME]
    facts, _ = merged(result(failure=failure), result(date="2026-12-02"))
    assert "failure" not in facts[NAME]


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command on files of the test; returns its error or None."""
    monkeypatch.setattr(status, "FACTS", tmp_path / "status.json")
    monkeypatch.setattr(status, "PAGE", tmp_path / "STATUS.md")

    def command(*arguments):
        try:
            return status.main([*map(str, arguments)])
        except SystemExit as error:
            return error.code

    return command


def test_the_command_keeps_the_facts(command, tmp_path, capsys):
    write(tmp_path / "contact", result())
    write(tmp_path / "contact", result("ViTB16/none"))
    assert command("--contact", tmp_path / "contact") is None
    out = capsys.readouterr().out
    assert "Not used: ViTB16/none: the catalogue has no such name.\n" in out
    assert f"   1 of {len(manifest.entries())}: the real file loads" in out
    page = (tmp_path / "STATUS.md").read_text()
    assert read_facts(tmp_path / "status.json")[NAME]["pins"] == PINS
    assert command() is None  # without new results
    assert (tmp_path / "STATUS.md").read_text() == page
    assert "| 2026-12-01, 0.1.0, torch |" in page


def test_wrong_files_raise_one_line(command, tmp_path):
    error = command("--contact", tmp_path)
    assert "must be the --out of weights.first_contact" in error and "\n" not in error
    path = write(tmp_path, result())
    for content, message in {
        "{": "is damaged.* Remove it",
        '{"format_version": 9}': "update kerasvit",
        '{"format_version": 1}': "is damaged",
    }.items():
        path.write_text(content)
        error = command("--contact", tmp_path)
        assert re.search(message, error) and path.name in error and "\n" not in error
    assert not (tmp_path / "status.json").exists()
    for content in (
        '{"format_version": 2}',
        '{"format_version": 1, "names": {"a": 1}}',
    ):
        (tmp_path / "status.json").write_text(content)
        error = command()
        assert "status.json is damaged" in error and "\n" not in error


def test_disputed_numbers_have_both_sides():
    names = {f"{e.model}/{e.tag}" for e in manifest.entries()}
    assert disputed.disputed().keys() <= names
    page = status_page.page(manifest.entries(), {})
    for part in ("68.9", "77.4", "vision_transformer/issues/134", "2106.01548"):
        assert part in page
    assert "kerasvit has measured none of these numbers" in page
    assert page.count("| not measured |") == 5
    assert row({}, NPZ)[-1] == "(77.36) [disputed](#disputed-numbers)"
