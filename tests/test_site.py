"""The documentation site: its pages, its reference, and what a browser shows."""

import importlib.util
import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import kerasvit
from tests.once import on_last_backend
from tests.recipes import chromium
from tests.test_house import imports
from tests.test_pages import PAGES

ROOT = Path(__file__).parents[1]
SITE = ROOT / ".github/site"
AXE = "axe-core@4.14.1"
pytestmark = on_last_backend


@pytest.fixture(scope="module")
def reference():
    return module("reference")


@pytest.fixture(scope="module")
def as_rst():
    convert = module("docstrings").as_rst
    return lambda text: "\n".join(convert(text.strip("\n").split("\n")))


def module(name):
    """A file of the site's folder that does not need Sphinx."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", SITE / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_every_page_is_in_one_section_or_left_out():
    site = module("pages")
    pages = [site.START, *(x for each in site.sections().values() for x in each)]
    files = [path.relative_to(ROOT).as_posix() for path in PAGES]
    assert sorted([*pages, *site.left_out()]) == sorted(files)


def test_the_place_of_a_page_leads_to_its_file():
    site = module("pages")
    pages = [site.START, *(x for each in site.sections().values() for x in each)]
    assert [site.original(site.staged(page)) for page in pages] == pages
    assert site.original("reference/sam.rst") == "reference/sam.rst"


def test_speeds_of_one_machine_are_gathered(tmp_path):
    speeds = module("speeds")
    about = {"model": "ViTS16", "device": "CPU", "batch_size": 8, "dtype": "float32"}
    for backend, speed in {"jax": "20.1", "torch": "19.5"}.items():
        result = {
            "columns": ["median s", "images/s"],
            "rows": [["timm", "0.1", "9"], ["kerasvit", "0.4", speed]],
            "date": "2026-11-30",
            "about": {**about, "backend": backend},
        }
        (tmp_path / f"{backend}.json").write_text(json.dumps(result))
    found = speeds.gathered(tmp_path)
    known = json.loads((SITE / "speeds.json").read_text())
    assert found["images/s"] == {"ViTS16": {"jax": "20.1", "torch": "19.5"}}
    assert found.keys() == known.keys() and found["batch"] == 8
    assert known["images/s"].keys() <= set(kerasvit.list_models())
    (tmp_path / "x.json").write_text(json.dumps({**result, "date": "2026-12-01"}))
    with pytest.raises(ValueError, match="Expected results of one machine"):
        speeds.gathered(tmp_path)


def test_every_public_name_has_one_page(reference):
    reference.check(reference.PAGES)
    names = [name for page in reference.PAGES for name in reference.names_of(page)]
    assert len(names) == len(set(names))
    assert {f"kerasvit.{name}" for name in kerasvit.list_models()} <= {*names}
    assert {"kerasvit.SAM", "kerasvit.data.from_folder", "kerasvit.layers.MLP"} <= {
        *names
    }


@pytest.mark.slow
def test_what_the_recipes_import_is_in_the_reference(reference):
    files = [*(ROOT / "recipes").rglob("*.py")]
    seen = {name for path in files for name in imports(path)}
    rooms = {name for name in seen if name.startswith("kerasvit.")}
    found = {name.rpartition(".")[0] for name in reference.public()}
    assert {room for room in rooms if reference.source(room).is_file()} <= found


BAD = [
    ([{"file": "sam", "names": ["SAMM"]}], r"'sam': \['kerasvit.SAMM'\] are no public"),
    ([{"file": "sam", "names": ["SAM"]}], r"on no page .*'kerasvit.ASAM'"),
]


@pytest.mark.parametrize(("pages", "message"), BAD)
def test_an_unknown_name_and_a_name_without_page_are_errors(pages, message, reference):
    with pytest.raises(ValueError, match=message):
        reference.check(pages)


DOCSTRING = """
Returns a, *b* and c_ of `model`s (arXiv 2010.01412).

    kerasvit.SAM(model)  # `this` stays

- one
  more

Args:
    model: Built `keras.Model`:
        any.
    a, b: Two
        lines.
    **rest: Others.

Returns:
    {path: array}.

Raises:
    ValueError: It is wrong.
"""
RST = r"""
Returns a, \*b\* and c\_ of ``model``\ s (`arXiv 2010.01412 <https://arxiv.org/abs/2010.01412>`__).

::

    kerasvit.SAM(model)  # `this` stays


- one
  more


:Parameters:
    - **model**: Built ``keras.Model``:
      any.
    - **a, b**: Two
      lines.
    - **\*\*rest**: Others.


:Returns:
    {path: array}.



:Raises:
    - **ValueError**: It is wrong.
"""  # noqa: E501


def test_docstrings_become_restructured_text(as_rst):
    assert as_rst(DOCSTRING).strip() == RST.strip()


def built(folder, sources=None):
    """Builds the site, or one of other sources with its settings."""
    if importlib.util.find_spec("myst_parser") is None:
        pytest.skip('the packages of ".[docs]" are not installed')
    command = [str(SITE / "build.py"), str(folder)]
    if sources:
        command = ["-m", "sphinx", "-qW", "-c", str(SITE), str(sources), str(folder)]
    process = [sys.executable, *command]
    return subprocess.run(process, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "out"
    result = built(folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gone](#gone)", "'gone'"),
        ("[gone](other.md#gone)", "'gone'"),
        ("[gone](gone.md)", "'gone.md'"),
    ],
)
def test_bad_pages_are_errors(text, message, tmp_path):
    (tmp_path / "other.md").write_text("---\norphan: true\n---\n# Other\n")
    (tmp_path / "index.md").write_text(f"# Page\n\n{text}\n")
    result = built(tmp_path / "out", tmp_path)
    assert result.returncode != 0
    assert "index.md:3: WARNING" in result.stderr and message in result.stderr


@pytest.mark.long
def test_the_site_is_not_written_over_a_file(tmp_path):
    out = tmp_path / "out"
    out.write_text("")
    result = built(out)
    assert result.returncode != 0
    assert result.stderr.endswith(f"{out} is a file: choose a folder.\n")


def test_warnings_name_the_files_of_the_repository(tmp_path, monkeypatch, capsys):
    pytest.importorskip("myst_parser", reason='the packages of ".[docs]" are missing')
    monkeypatch.syspath_prepend(SITE)
    build = module("build")
    warnings = build.Warnings(tmp_path)
    warnings.write(f"{tmp_path}/index.md:3: WARNING: one\n")
    warnings.write(f"{tmp_path}/sam.md: WARNING: two\n")
    warnings.write(f"{tmp_path}/new.md: WARNING: {build.IN_NO_SECTION} [toc]\n")
    assert capsys.readouterr().err.splitlines() == [
        "README.md:3: WARNING: one",
        ".github/site/sam.md: WARNING: two",
        "new.md: WARNING: the page is in no section: add it to "
        ".github/site/pages.toml [toc]",
    ]


def test_a_former_site_is_replaced_and_other_files_stay(tmp_path, monkeypatch):
    pytest.importorskip("myst_parser", reason='the packages of ".[docs]" are missing')
    monkeypatch.syspath_prepend(SITE)
    new, out = tmp_path / "new", tmp_path / "out"
    for folder, text in ((new, "<pre>"), (out, "former")):
        (folder / "reference").mkdir(parents=True)
        (folder / "index.html").write_text(text)
    (out / "reference/gone.html").touch()
    (out / "CNAME").write_text("theirs")
    module("build")._put(new, out)
    assert (out / "index.html").read_text() == '<pre tabindex="0">'
    assert not list((out / "reference").iterdir())
    assert (out / "CNAME").read_text() == "theirs"


@pytest.mark.slow
def test_a_build_that_fails_leaves_the_former_site(tmp_path, monkeypatch):
    pytest.importorskip("myst_parser", reason='the packages of ".[docs]" are missing')
    monkeypatch.syspath_prepend(SITE)
    build = module("build")
    monkeypatch.setattr(build, "build_main", lambda options: 2)
    for name in (".buildinfo", "index.html"):
        (tmp_path / name).write_text("former")
    assert build.main(tmp_path, execute=False) == 2
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        ".buildinfo": "former",
        "index.html": "former",
    }


class Page(HTMLParser):
    """The links of a page, and the places in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.ids = set(), {""}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src"):
                self.links.add(value)
            elif name == "id":
                self.ids.add(value)


@pytest.mark.long
def test_all_links_lead_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    broken, others = [], set()
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)) if parts.path else path
            if parts.scheme:
                others.add(parts.scheme)
            elif not target.is_file() or (
                (found := pages.get(target.resolve()))
                and unquote(parts.fragment) not in found.ids
            ):
                broken.append((path.relative_to(site).as_posix(), link))
    assert broken == []
    assert others == {"https"}  # nothing that a page loads: see the browser


WIDTHS, SCHEMES = (390, 1280), ("light", "dark")
# It may not preload style sheets, which are files here.
RULES = """axe.run({preload: false, runOnly: ["wcag2a", "wcag2aa", "wcag21a",
    "wcag21aa", "best-practice"]}).then((found) => JSON.stringify(found.violations.map(
    (each) => [each.id, each.nodes.slice(0, 3).map((node) => node.html)])))"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """The program of axe-core, which npm fetches."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("axe")
    install = ["npm", "install", "--prefix", str(folder), "--ignore-scripts", AXE]
    if subprocess.run(install, capture_output=True).returncode:
        pytest.skip("npm cannot fetch axe-core")
    return (folder / "node_modules/axe-core/axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    if not chromium.PROGRAM:
        pytest.skip("Chromium is not installed")
    with chromium.tab(tmp_path_factory.mktemp("profile")) as found:
        for domain in ("Page", "Network", "Log", "Runtime"):
            found.call(f"{domain}.enable")
        yield found


def opened(tab, address):
    """Opens a page of a folder; returns its problems."""
    tab.events.clear()
    tab.call("Page.navigate", url=address)
    tab.wait(f"document.URL === {json.dumps(address)}")
    tab.wait("document.readyState === 'complete'")
    problems = []
    for event in tab.events:
        if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown"):
            problems.append(event["params"])
        if event["method"] == "Network.requestWillBeSent":
            asked = event["params"]["request"]["url"]
            problems += [] if asked.startswith(("file:", "data:")) else [asked]
    if tab.value("document.documentElement.scrollWidth > innerWidth"):
        problems.append("scrolls sideways")
    return problems


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_finds_no_fault(width, scheme, site, tab, axe):
    """axe sees each page in both widths and both schemes, in two of the four runs."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1}
    tab.call("Emulation.setDeviceMetricsOverride", mobile=width < 500, **size)
    preferred = [{"name": "prefers-color-scheme", "value": scheme}]
    tab.call("Emulation.setEmulatedMedia", features=preferred)
    found = {}
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        if name.startswith(("_downloads/", "_modules/")) and "sam" not in name:
            continue  # reports, and code like that of sam.html
        problems = opened(tab, path.as_uri())
        if (width < 500) == (scheme == "dark"):
            tab.value(f"{axe}; 0")
            call = {"awaitPromise": True, "returnByValue": True}
            answer = tab.call("Runtime.evaluate", expression=RULES, **call)
            problems += json.loads(answer["result"]["value"])
        if problems:
            found[name] = problems
    assert found == {}


@pytest.mark.long
def test_the_search_of_a_folder_finds_a_name(site, tab):
    assert opened(tab, f"{(site / 'search.html').as_uri()}?q=push_to_hub") == []
    tab.wait("document.querySelector('#search-results li a')?.href")
    first = tab.value("document.querySelector('#search-results li a').href")
    assert first == f"{(site / 'reference/saving.html').as_uri()}#kerasvit.push_to_hub"


@pytest.mark.long
def test_the_table_of_models_is_searched_and_sorted(site, tab):
    assert opened(tab, (site / "catalogue.html").as_uri()) == []
    shown = """[...document.querySelectorAll("table.catalogue tbody tr")].filter(
        (row) => !row.hidden).map((row) => row.cells[{}].textContent)"""
    assert len(tab.value(shown.format(0))) == len(kerasvit.list_models()) + len(
        kerasvit.list_weights()
    )
    tab.value("""{ const field = document.querySelector(".catalogue-search input");
        field.value = "vitb16 SAM"; field.dispatchEvent(new Event("input")); }""")
    assert "sam" in tab.value(shown.format(1))
    assert all("ViTB16" in name for name in tab.value(shown.format(0)))
    tab.value("""{ const field = document.querySelector(".catalogue-search input");
        field.value = ""; field.dispatchEvent(new Event("input"));
        document.querySelectorAll(".catalogue th button")[3].click(); }""")
    sizes = [float(size) for size in tab.value(shown.format(3))]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
