"""`weights.disputed`: top-1 with every preprocessing that may explain a number."""

import json

import numpy as np
import pytest
from PIL import Image

import kerasvit
from kerasvit.hub import manifest
from kerasvit.hub.hashes import file_hash
from tests.once import on_last_backend
from weights import disputed, status_facts, status_page
from weights.contact.results import Result, write
from weights.labelled_images import top1
from weights.status_facts import merge_all

pytestmark = [on_last_backend, pytest.mark.slow]

NAME = "TinyViT/sam"
TABLE = {
    "name": NAME,
    "numbers": [{"percent": 77.4, "source": "the paper", "preprocessing": "unknown"}],
    "preprocessing": {"catalogue": {}, "wide": {"mode": "squash", "crop": 1.0}},
}


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Two images of one class; TinyViT/sam is disputed."""
    monkeypatch.setattr(disputed, "disputed", lambda: {NAME: TABLE})
    monkeypatch.setattr(status_page, "disputed", lambda: {NAME: TABLE})
    (tmp_path / "val" / "ant").mkdir(parents=True)
    for i in range(2):
        pixels = np.random.default_rng(i).integers(0, 255, (9, 12, 3)).astype("uint8")
        Image.fromarray(pixels).save(tmp_path / "val" / "ant" / f"{i}.png")
    return tmp_path / "val"


@pytest.fixture
def run(photos, tmp_path):
    """Runs the command; returns its error or None."""

    def run():
        out = str(tmp_path / "contact")
        try:
            return disputed.main(["--images", str(photos), "--out", out])
        except SystemExit as error:
            return error.code

    return run


def test_each_preprocessing_is_measured(
    public_entry, source, run, tmp_path, monkeypatch
):
    sha256 = file_hash(source / "model.safetensors")
    entry = public_entry(sha256=sha256)
    used = []

    def stop(model, folder):
        used.append(model.record["preprocessing"]["mode"])
        if len(used) == 2:
            raise KeyboardInterrupt
        return top1(model, folder)

    monkeypatch.setattr(disputed, "top1", stop)
    with pytest.raises(KeyboardInterrupt):
        run()
    contact = tmp_path / "contact"
    assert list(disputed.read_measured(contact)[NAME]["top1"]) == ["catalogue"]
    assert run() is None and used == ["center", "squash", "squash"]
    measured = disputed.read_measured(contact)[NAME]
    assert measured["sha256"] == sha256 and measured["top1"]["wide"]["images"] == 2
    assert run() is None and len(used) == 3

    facts, unused = merge_all({}, contact, [entry])
    assert unused == [f"{NAME}: disputed.json is not of the file that was loaded"]
    pins = {"revision": None, "size": 1, "sha256": sha256}
    hub = "https://huggingface.co"
    write(contact, Result(name=NAME, server=hub, pins=pins, loaded=True))
    facts, unused = merge_all({}, contact, [entry])
    assert unused == [f"{NAME}: disputed.json is not of all ImageNet classes"]
    classes = measured["top1"]["wide"]["classes"]
    monkeypatch.setattr(status_facts, "IMAGENET_CLASSES", classes)
    facts, unused = merge_all({}, contact, [entry])
    page = status_page.page(manifest.entries(), facts)
    assert not unused and "kerasvit has measured the file" in page
    percent = measured["top1"]["wide"]["percent"]
    assert f"| wide | mode squash, crop 1.0 | {percent:.2f} of 2 images" in page
    assert "not measured" not in page and "disputed](#disputed-numbers)" in page


def test_the_model_keeps_its_preprocessing(public_entry, source, photos, tmp_path):
    model = kerasvit.from_pretrained(source)
    before = dict(model.record["preprocessing"])
    disputed.measure(NAME, model, "a", photos, tmp_path)
    disputed.measure(NAME, model, "b", photos, tmp_path)  # another file: all again
    assert model.record["preprocessing"] == before
    assert disputed.read_measured(tmp_path)[NAME]["sha256"] == "b"


def test_wrong_input_raises_one_line(public_entry, source, run, tmp_path):
    public_entry()
    error = run()
    assert (
        error
        == f"Error: {NAME} is not pinned. Run: python -m weights.lock --pin {NAME}"
    )
    public_entry(sha256=file_hash(source / "model.safetensors"))
    (tmp_path / "contact").mkdir()
    for content in (
        {"format_version": 2, "measured": {}},
        {"format_version": 1, "measured": []},
        {"format_version": 1, "measured": {NAME: {"sha256": "a", "top1": {"x": 1}}}},
    ):
        (tmp_path / "contact" / disputed.MEASURED).write_text(json.dumps(content))
        error = run()
        assert "disputed.json is damaged" in error and "\n" not in error
