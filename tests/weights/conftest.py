"""Public weights of a tiny ViT, on a local Hub."""

import functools
import json
import types
from pathlib import Path

import keras
import pytest

import kerasvit
from kerasvit.hub import manifest
from tests.hub.conftest import hub as hub
from tests.random_weights import randomised
from tests.tiny_vit import TinyViT
from weights import certificate, parity, timm_reference, verify


@pytest.fixture
def public_entry(hub, monkeypatch):
    """A function that replaces the manifest by one entry for timm/tiny on `hub`."""
    monkeypatch.setattr(kerasvit, "TinyViT", TinyViT, raising=False)

    def only(**changes):
        fields = {"source": "timm/tiny", "format": "timm", "classes": 3, "megabytes": 1}
        top1 = {"percent": 80.5, "source": "measured by its authors"}
        fields |= {"license": "mit", "top1": top1, "preprocessing": {"size": 8}}
        fields |= {"model": "TinyViT", "tag": "sam"}
        entry = manifest.Entry(**{**fields, **changes})
        monkeypatch.setattr(manifest, "entries", lambda: (entry,))
        return entry

    return only


@pytest.fixture
def source(hub, tmp_path):
    """A folder in timm's format, which is also the repository timm/tiny on `hub`."""
    model = randomised(TinyViT(image_size=8, num_classes=3))
    model.record["label_names"] = ["ant", "bee", "cat, tabby"]
    folder = kerasvit.save_pretrained(model, tmp_path / "source")
    config = json.loads((folder / "config.json").read_text())
    del config["kerasvit"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "README.md").unlink()
    hub.add("timm/tiny", {path.name: path.read_bytes() for path in folder.iterdir()})
    return folder


@pytest.fixture
def in_this_process(monkeypatch):
    """Verifies in this process. The check of small models passes; kerasvit is timm."""

    def run_parity(backend, work):
        parity.main(work)
        answer = Path(work, "answer.json")
        return json.loads(answer.read_text())

    check = certificate.Check("small models", "torch", 0.0, 1.0, 1e-5, {})
    monkeypatch.setattr(parity, "check_golden_cases", lambda entry: check)
    monkeypatch.setattr(verify, "run_parity", run_parity)
    # Skip the garbage collection: it is slow after many tests.
    quick = functools.partial(keras.utils.clear_session, free_memory=False)
    monkeypatch.setattr(keras.utils, "clear_session", quick)
    monkeypatch.setattr(verify, "installed_backends", lambda: ["torch"])

    def timm_logits(folder, images, record, double=False):
        classes = record["kwargs"]["num_classes"]
        model = kerasvit.from_pretrained(folder, num_classes=classes)
        return parity.logits(model, images)

    timm = types.SimpleNamespace(__version__="1.2.3")
    monkeypatch.setattr(timm_reference, "import_timm", lambda: timm)
    monkeypatch.setattr(timm_reference, "timm_logits", timm_logits)
