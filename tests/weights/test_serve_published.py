"""The local server with a file for every name of the catalogue."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from kerasvit.hub.manifest import entries
from tests.once import on_last_backend
from tests.weights import published_files
from tests.weights.serve_published import serve

pytestmark = [on_last_backend, pytest.mark.slow]
SMALL = ["ViTTi16/augreg_in21k_ft_in1k", "MixerS32/gsam", "ViTL16/sam"]
# Loads each entry of a manifest by its name, or from a narrow copy.
CODE = """
import json, pathlib, sys
import kerasvit
from kerasvit.hub.download import fetch
from kerasvit.hub.manifest import Entry

tables = json.loads(pathlib.Path(sys.argv[1]).read_text())["weights"]
for table in tables:
    entry = Entry(**table)
    if f"{entry.model}/{entry.tag}" in sys.argv[2:]:
        model = kerasvit.from_pretrained(fetch(entry))
    else:
        model = getattr(kerasvit, entry.model)(entry)
    print(model.record["origin"], model.count_params())
"""


def load_all(served):
    """Loads all names in a process; returns [[format, number of weights]] of each."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, served.manifest, *served.narrow],
        env={**os.environ, **served.environment, "KERAS_BACKEND": "torch"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [origin for origin, _ in lines] == [each.format for each in served.entries]
    return lines


@pytest.mark.long
def test_names_load_from_the_server():
    with serve(SMALL) as served:
        assert served.narrow == {"ViTL16/sam"}
        assert {published_files.name_of(each) for each in served.entries} == {*SMALL}
        lines = load_all(served)
        folder = served.manifest.parent
    assert ["timm", "5717416"] in lines and ["vision_transformer", "19459304"] in lines
    assert not folder.exists()


@pytest.mark.long
def test_narrow_copies_of_all_large_files_load():
    large = [
        published_files.name_of(entry)
        for entry in entries()
        if published_files.is_large(entry)
    ]
    with serve(large) as served:
        assert served.narrow == {*large}
        assert len(load_all(served)) == len(large) > 15


def test_a_deleted_file_is_made_again_with_the_same_bytes():
    name = "MixerS32/gsam"
    with serve([name]) as served:
        (address,) = [entry.source for entry in served.entries]
        (body,) = served.hub.files.values()
        first = _read(address)
        body.delete()
        assert _read(address) == first
        body.delete()
        assert _read(address, Range="bytes=76000000-") == first[76_000_000:]


def test_the_oldest_files_are_deleted_beyond_the_limit():
    with serve(["MixerS32/gsam", "MixerS16/gsam"], disk=1_000_000) as served:
        one, other = served.hub.files.values()
        for entry in served.entries:
            _read(entry.source)
        assert not one.path.exists() and other.path.exists()


def test_the_catalogue_states_the_sizes_of_the_files():
    for entry in entries():
        _, sizes = published_files.layouts(entry)[0]
        assert sizes["classes"] == entry.classes, entry
        listed = [
            published_files.size_of(published_files.tensors_of(entry, i)) / 1e6
            for i in range(len(published_files.layouts(entry)))
        ]
        # Catalogue sizes such as 1.22 GB have three digits.
        allowed = max(1, 0.005 * entry.megabytes)
        assert any(abs(size - entry.megabytes) <= allowed for size in listed), entry


def test_every_entry_has_a_list():
    known = json.loads((published_files.FOLDER / "entries.json").read_text())
    assert known.keys() == {published_files.name_of(entry) for entry in entries()}


def _read(address, **headers):
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return answer.read()
