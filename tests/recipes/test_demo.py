"""`python -m recipes.exporting.demo`: a page that classifies photographs."""

import contextlib
import http.client
import json
import os
import re
import shutil
import threading

import export
import numpy as np
import pytest
from command import command_line
from exporting.demo import __main__ as demo
from exporting.demo import server
from exporting.settings import Config
from PIL import Image, PngImagePlugin

import kerasvit
from tests.models.tiny import tiny
from tests.once import on_last_backend
from tests.random_weights import randomised

from . import chromium

NAMES = ["cat", "dog & <b>puppy</b>", "a bird", "fish", "fox", "hen"]
ABOUT = {
    "model": "runs/pets",
    "format": "onnx",
    "input": {"shape": [None, None, None, 3], "values": "photo"},
    "output": {"name": "probabilities", "shape": [None, 6], "label_names": NAMES},
    "preprocessing": kerasvit.Preprocessing(16).to_config(),
    "compared": {"runtime": "ONNX Runtime 1.32.0"},
}


def exported(path, **changes):
    """The folder of an export, as far as the server reads it."""
    path.mkdir()
    (path / "export.json").write_text(json.dumps({**ABOUT, **changes}))
    for name in "model.onnx", "model.tflite":
        (path / name).write_bytes(b"a graph")
    return path


@contextlib.contextmanager
def served(folder, runtime):
    """Yields the port at which a folder is served."""
    with server.page_server(folder, runtime, 0) as page:
        thread = threading.Thread(target=page.serve_forever)
        thread.start()
        try:
            yield page.server_port
        finally:
            page.shutdown()
            thread.join()


@pytest.mark.slow
@on_last_backend
def test_it_serves_the_files_of_the_page_and_no_others(tmp_path):
    folder, runtime = exported(tmp_path / "web"), tmp_path / "runtime"
    (tmp_path / "secret").write_text("secret")
    runtime.mkdir()
    for name in server.RUNTIME:
        (runtime / name).write_text(name)
    (runtime / "other.mjs").write_text("not of the page")
    kinds = {
        "/": "text/html; charset=utf-8",
        "/export.json": "application/json",
        "/model.onnx": "application/octet-stream",
        "/ort.wasm.bundle.min.mjs": "text/javascript",
        "/ort-wasm-simd-threaded.wasm": "application/wasm",
    }
    others = ["/secret", "/../secret", "/%2e%2e/secret", "//secret", "/web/", "/.."]
    others += [f"/{tmp_path}/secret", str(tmp_path / "secret"), "/other.mjs", "/page"]
    with served(folder, runtime) as port:

        def get(address):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", address)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

        for address, kind in kinds.items():
            status, headers, body = get(address)
            assert (status, headers["Content-Type"]) == (200, kind)
            assert int(headers["Content-Length"]) == len(body)
            assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
            assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
            assert headers["Cache-Control"] == "no-store"
        assert get("/model.onnx")[2] == b"a graph"
        assert get("/?again")[2] == server.PAGE.read_bytes()
        assert {get(address)[0] for address in others} == {404}
        with pytest.raises(ValueError, match=rf"`port`: {port} cannot be used"):
            server.page_server(folder, runtime, port)


ADVICE = "shows classes. Export a model with a head"
BAD = [
    ({"format": "litert"}, "--format onnx, and .* has litert"),
    ({"input": {**ABOUT["input"], "values": "pixels"}}, "--inputs photo.*has pixels"),
    ({"input": {**ABOUT["input"], "shape": [8, 1, 1, 3]}}, "--batch 1, and .* has 8"),
    ({"output": {**ABOUT["output"], "name": "logits"}}, "--outputs probabilities"),
    *(
        ({"output": {**ABOUT["output"], "name": name}}, f"returns {name}, .* {ADVICE}")
        for name in ("features", "maps")
    ),
    ({"output": {}}, "must have the parts that export.py writes"),
]


@on_last_backend
@pytest.mark.parametrize(("changes", "message"), BAD)
def test_exports_that_it_does_not_show(changes, message, tmp_path):
    with pytest.raises(command_line.BadInput, match=message) as error:
        demo.main([str(exported(tmp_path / "web", **changes))])
    if "--" in message:
        command = f"runs/pets --format onnx --inputs photo --out {tmp_path / 'web'}"
        assert f"{command} --replace" in str(error.value)


@on_last_backend
def test_a_folder_that_is_no_export(tmp_path):
    with pytest.raises(command_line.BadInput, match="has no export.json. Give the"):
        demo.main([str(tmp_path)])
    with pytest.raises(command_line.BadInput, match="`port`.*at most 65535"):
        demo.main([str(tmp_path), "--port", "65536"])
    for text, message in (("{", "export.json is damaged: "), ("[]", "must have the")):
        (tmp_path / "export.json").write_text(text)
        with pytest.raises(command_line.BadInput, match=message):
            demo.main([str(tmp_path)])
    (tmp_path / "export.json").write_text(json.dumps(ABOUT))
    with pytest.raises(command_line.BadInput, match="has no model.onnx. Write the"):
        demo.main([str(tmp_path)])


NPM = """#!/bin/sh
[ -z "$BROKEN" ] || { echo "no network" >&2; exit 1; }
while [ "$1" != --prefix ]; do shift; done
cd "$2"
mkdir -p node_modules/onnxruntime-web/dist
cd node_modules/onnxruntime-web/dist
for name in {names} other.mjs; do echo "$3" > $name; done
"""


@on_last_backend
@pytest.mark.skipif(os.name == "nt", reason="npm is a script of sh")
def test_npm_fetches_the_runtime_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(ValueError, match="install Node.js"):
        server.runtime()
    (programs / "npm").write_text(NPM.replace("{names}", " ".join(server.RUNTIME)))
    (programs / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.defpath]))
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(ValueError, match="(?s)npm cannot fetch.*no network"):
        server.runtime()
    monkeypatch.delenv("BROKEN")
    found = server.runtime()
    assert {each.name: each.read_text() for each in found.iterdir()} == dict.fromkeys(
        server.RUNTIME, f"onnxruntime-web@{server.VERSION}\n"
    )
    (programs / "npm").unlink()
    assert server.runtime() == found
    assert [*found.parent.iterdir()] == [found]


@on_last_backend
def test_the_page_names_no_other_host():
    assert not re.findall(r"(?:https?:)?//[\w.]+", server.PAGE.read_text("utf-8"))


def photographs(folder):
    """Files that a browser must read as Pillow does, numbers of the pixels included."""
    random = np.random.default_rng(0)
    small = random.integers(0, 256, size=(3, 9, 9, 3), dtype="uint8")
    wide, turned, bright = (
        Image.fromarray(each).resize(size, Image.Resampling.BICUBIC)
        for each, size in zip(small, [(301, 233), (80, 47), (64, 64)])
    )
    wide.save(folder / "wide.png")
    exif, chunks = Image.Exif(), PngImagePlugin.PngInfo()
    exif[0x0112] = 6
    turned.save(folder / "turned.png", exif=exif)
    chunks.add(b"gAMA", (100_000).to_bytes(4, "big"))  # a profile, which is ignored
    bright.save(folder / "bright.png", pnginfo=chunks)
    bright.convert("L").save(folder / "grey.png")
    return sorted(folder.glob("*.png"))


READY = "document.querySelector('main')?.ariaBusy === 'false'"
SHOWN = """[...document.querySelectorAll("#classes li")].map((line) => [
    line.querySelector("span").textContent, Number(line.querySelector("data").value),
])"""


@pytest.mark.long
@pytest.mark.only_on("torch", reason="which writes ONNX")
@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")
@pytest.mark.skipif(not chromium.PROGRAM, reason="Chromium is not installed")
def test_the_browser_classifies_as_python(tmp_path):
    for module in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(module)
    model = randomised(tiny("VisionTransformer", num_classes=len(NAMES)))
    transform = kerasvit.Preprocessing(16, 0.8, std=[0.2, 0.3, 0.4])
    model.record["preprocessing"] = transform.to_config()
    kerasvit.save_pretrained(model, tmp_path / "vit", label_names=NAMES)
    out = str(tmp_path / "out")
    config = Config(str(tmp_path / "vit"), "onnx", out, inputs="photo")
    folder = server.checked_export(export.export(config))
    photos = photographs(tmp_path)
    expected = kerasvit.classify(kerasvit.from_pretrained(tmp_path / "vit"), photos)
    assert len({tuple(name for name, _ in best) for best in expected}) > 1
    (tmp_path / "notes.txt").write_text("no photograph")
    with (
        served(folder, server.runtime()) as port,
        chromium.tab(tmp_path / "profile") as tab,
    ):
        tab.call("Page.navigate", url=f"http://127.0.0.1:{port}")
        tab.wait(READY)
        for i, (photo, best) in enumerate(zip(photos, expected)):
            tab.drop(photo) if i else tab.choose("#photo", photo)
            tab.wait(f"picture.alt.includes('{photo.name}') && {READY}")
            shown = tab.value(SHOWN)
            assert [name for name, _ in shown] == [name for name, _ in best], photo
            shares = [share for _, share in best]
            np.testing.assert_allclose([p for _, p in shown], shares, atol=1e-3)
        tab.choose("#photo", tmp_path / "notes.txt")
        tab.wait(f"problem.textContent && {READY}")
        assert "notes.txt is no photograph" in tab.value("problem.textContent")
        assert tab.value("picture.hidden") and tab.value(SHOWN) == []
        assert tab.value("self.crossOriginIsolated")  # its threads need that
