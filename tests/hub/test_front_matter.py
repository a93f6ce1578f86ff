"""README.md files that expand, or are deep or long, raise an error quickly."""

import subprocess
import sys

import pytest

import kerasvit
from kerasvit.hub.front_matter import DEEPEST, MAX_BLOCK, MAX_PAGE, split_page
from kerasvit.hub.upload import UploadError
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT

pytestmark = [on_last_backend, pytest.mark.slow]

# Eight levels of ten aliases each: 10^8 values from 268 bytes.
BOMB = "a: &a [" + ", ".join(10 * ["lol"]) + "]\n"
for one, two in zip("abcdefg", "bcdefgh"):
    BOMB += f"{two}: &{two} [" + ", ".join(10 * [f"*{one}"]) + "]\n"
DEEP = f"a: {'[' * (DEEPEST + 1)}{']' * (DEEPEST + 1)}\n"
LONG = f"a: {'x' * MAX_BLOCK}\n"
HOSTILE = {
    "alias": BOMB,
    "merge": "a: &a {b: 1}\nc:\n  <<: *a\n",
    "itself": "a: &a [*a]\n",
    "nested deeper": DEEP,
    "more than": LONG,
    "tag": "a: !!python/object/apply:os.system [true]\n",
    "not YAML": "a: [\n",
    "a name and a value": "1: x\n",
    "keys must be": "a: {2024-01-02: x}\n",
    "day is out of range": "a: 2024-02-31\n",
    "digits": f"a: {'9' * 5000}\n",
    "int too large": "a: " + 200 * "1:" + "2.5\n",
}


def page(block):
    return f"---\n{block}---\nMine.\n"


@pytest.mark.parametrize(("name", "block"), HOSTILE.items(), ids=HOSTILE)
def test_a_malicious_page_is_kept_with_a_warning(tmp_path, caplog, name, block):
    (tmp_path / "README.md").write_text(page(block))
    kerasvit.save_pretrained(TinyViT(image_size=8, num_classes=3), tmp_path)
    assert (tmp_path / "README.md").read_text() == page(block)
    reason = {"merge": "alias", "itself": "alias"}.get(name, name)
    assert "cannot be read: " in caplog.text and reason in caplog.text


@pytest.mark.parametrize(("name", "block"), HOSTILE.items(), ids=HOSTILE)
def test_a_malicious_card_raises(tmp_path, name, block):
    reason = {"merge": "alias", "itself": "alias"}.get(name, name)
    with pytest.raises(ValueError, match=f"(?s)head of `card`.*{reason}"):
        kerasvit.save_pretrained(
            TinyViT(image_size=8, num_classes=3), tmp_path / "vit", card=page(block)
        )
    assert not (tmp_path / "vit").exists()


def test_a_hostile_page_on_the_hub_is_kept(hub, monkeypatch, caplog):
    monkeypatch.setenv("HF_TOKEN", "good")
    repository = hub.add("me/vit", {"README.md": page(BOMB).encode()})
    kerasvit.push_to_hub(TinyViT(image_size=8, num_classes=3), "me/vit")
    assert repository.files["README.md"] == page(BOMB).encode()
    assert "*a; write the value" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kB there")
def test_a_page_of_a_few_bytes_takes_no_memory(tmp_path):
    (tmp_path / "README.md").write_text(page(BOMB))
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from kerasvit.hub.front_matter import split_page\n"
        "text = Path(sys.argv[1]).read_text()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    split_page(text)\n"
        "except ValueError:\n    pass\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert after - before < 50_000, (before, after)\n"
    )
    path = str(tmp_path / "README.md")
    subprocess.run([sys.executable, "-c", code, path], check=True)


def test_a_page_that_is_too_long_is_not_read(hub, tmp_path, monkeypatch):
    model = TinyViT(image_size=8, num_classes=3)
    with (tmp_path / "README.md").open("wb") as file:
        file.truncate(MAX_PAGE + 1)
    with pytest.raises(ValueError, match="has 16,000,001 bytes; a README.md may have"):
        kerasvit.save_pretrained(model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    monkeypatch.setenv("HF_TOKEN", "good")
    hub.add("me/vit", {"README.md": (tmp_path / "README.md").read_bytes()})
    with pytest.raises(UploadError, match="written: Its README.md has 16,000,001 b"):
        kerasvit.push_to_hub(model, "me/vit")
    assert hub.count("GET", "README.md") == 0


def test_ordinary_metadata_are_read():
    block = "license: mit\ntags: [a, 'b']\nmodel-index:\n- name: x\n  results: []\n"
    metadata, body = split_page(page(block))
    assert metadata == {
        "license": "mit",
        "tags": ["a", "b"],
        "model-index": [{"name": "x", "results": []}],
    }
    assert body == "Mine.\n"
    assert split_page("no block") == ({}, "no block")
