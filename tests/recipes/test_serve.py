"""`serve.py`: photographs in, classes out, and clear answers to everything else."""

import contextlib
import http.client
import importlib.util
import io
import json
import platform
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import export
import numpy as np
import pytest
import serve
from command import command_line
from exporting import runtime
from exporting.formats import FORMATS
from exporting.settings import Config as ExportConfig
from PIL import Image
from serving import models, server
from serving.settings import Config

import kerasvit
from tests.models.tiny import tiny
from tests.once import on_last_backend, rest_long
from tests.random_weights import randomised

NAMES = ["cat", "dog", "a bird"]


def photograph(seed=0, size=(30, 20), kind="PNG", **options):
    """The bytes of a photograph."""
    pixels = np.random.default_rng(seed).integers(0, 256, size=(*size, 3))
    file = io.BytesIO()
    Image.fromarray(pixels.astype("uint8")).save(file, kind, **options)
    return file.getvalue()


def saved(path):
    kerasvit.save_pretrained(
        randomised(tiny("VisionTransformer")), path, label_names=NAMES
    )
    return str(path)


class Running:
    """A server in a thread; `ask` sends a request."""

    def __init__(self, model, **changes):
        self.server = server.Server(model, Config("model", port=0, **changes))
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def ask(self, body=None, path="/classify", method="POST", headers=None):
        """Returns the status and the answer."""
        connection = http.client.HTTPConnection(*self.server.server_address, timeout=30)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    def send(self, text):
        """Sends bytes and returns what comes back until the end."""
        with socket.create_connection(self.server.server_address, timeout=30) as line:
            line.sendall(text)
            line.shutdown(socket.SHUT_WR)
            return line.makefile("rb").read().decode()


def brightness(images):
    """A model: the mean of an image as its class."""
    return [[(f"{image.mean():.0f}", 1.0)] for image in images]


BRIGHTNESS = models.Served(np.asarray, brightness, {"model": "brightness"})


def grey(value):
    file = io.BytesIO()
    Image.new("RGB", (4, 4), (value,) * 3).save(file, "PNG")
    return file.getvalue()


@pytest.mark.slow
def test_the_classes_of_a_model(tmp_path):
    config = Config(saved(tmp_path / "vit"), port=0)
    with Running(models.load(config)) as running:
        running.server.batches.warm_up()
        status, about = running.ask(path="/", method="GET")
        assert status == 200 and about["classes"] == 3
        assert about["image_size"] == [16, 16]
        model = kerasvit.from_pretrained(tmp_path / "vit")
        turned = Image.Exif()
        turned[0x0112] = 6
        for seed, kind in enumerate(("PNG", "JPEG", "WEBP")):
            body = photograph(seed, kind=kind, exif=turned)
            status, answer = running.ask(body)
            expected = kerasvit.classify(model, Image.open(io.BytesIO(body)))
            found = [(row["name"], row["probability"]) for row in answer["classes"]]
            assert status == 200 and [name for name, _ in found] == [
                name for name, _ in expected
            ]
            np.testing.assert_allclose(
                [p for _, p in found], [p for _, p in expected], atol=1e-5
            )


@pytest.mark.slow
@pytest.mark.only_on("torch", reason="it writes ONNX")
@pytest.mark.parametrize(
    ("inputs", "batch"), rest_long([("pixels", None), ("photo", 2)])
)
def test_the_classes_of_an_export(inputs, batch, tmp_path):
    pytest.importorskip("onnxruntime")
    folder, out = saved(tmp_path / "vit"), str(tmp_path / "out")
    export.export(ExportConfig(folder, "onnx", out, inputs=inputs, batch=batch))
    model = kerasvit.from_pretrained(folder)
    with Running(models.load(Config(out)), top=2) as running:
        running.server.batches.warm_up()
        body = photograph(1)
        status, answer = running.ask(body)
        expected = kerasvit.classify(model, Image.open(io.BytesIO(body)), 5)
        assert [row["name"] for row in answer["classes"]] == [x for x, _ in expected]
        for row, (_, share) in zip(answer["classes"], expected, strict=True):
            assert row["probability"] == pytest.approx(share, abs=0.01)


@pytest.mark.slow
@on_last_backend
def test_mixed_requests_at_the_same_time_are_all_answered():
    requests = [(grey(i % 256), 200, str(i % 256)) for i in range(300)]
    requests += [(b"no photograph", 415, "no photograph")] * 30
    requests += [(photograph()[:900], 415, "is damaged")] * 30
    requests += [(b"x" * 200_001, 413, "at most 0.2 MB. Received: 0.2 MB")] * 30
    order = np.random.default_rng(0).permutation(len(requests))
    with (
        Running(BRIGHTNESS, megabytes=0.2, queue=1000) as running,
        ThreadPoolExecutor(24) as threads,
    ):
        found = threads.map(lambda i: running.ask(requests[i][0]), order)
        for i, (status, answer) in zip(order, found, strict=True):
            _, expected, text = requests[i]
            assert status == expected
            if status == 200:
                assert answer == {"classes": [{"name": text, "probability": 1.0}]}
            else:
                assert text in answer["error"]


@pytest.mark.slow
@on_last_backend
def test_files_that_are_no_photographs():
    heic = b"\0\0\0\x18ftypheic" + bytes(100)
    with Running(BRIGHTNESS) as running:
        for body in (b"", b"text", heic, photograph(kind="ICO")):
            status, answer = running.ask(body, headers={"Content-Length": len(body)})
            assert status == 415 and " 0x" not in answer["error"]
            assert "no photograph of JPEG, PNG" in answer["error"]


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("exif", [b"Exif\0\0MM\0*", b"Exif\0\0XX\0*\0\0\0\x08"])
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_damaged_exif_data(kind, exif):
    with Running(BRIGHTNESS) as running:
        assert running.ask(photograph(kind=kind, exif=exif))[0] == 415


class Waiting:
    """A model that answers when it may."""

    def __init__(self):
        self.counts, self.may, self.begun = [], threading.Event(), threading.Event()

    def classify(self, images):
        self.counts.append(len(images))
        self.begun.set()
        assert self.may.wait(30)
        return brightness(images)

    @property
    def served(self):
        return models.Served(np.asarray, self.classify, {})


@pytest.mark.slow
@on_last_backend
def test_images_that_came_while_the_model_ran_are_one_batch():
    model = Waiting()
    with Running(model.served, batch_size=4) as running, ThreadPoolExecutor(8) as pool:
        first = pool.submit(running.ask, grey(0))
        assert model.begun.wait(30)
        others = [pool.submit(running.ask, grey(i)) for i in range(1, 6)]
        while len(running.server.batches._waiting) < 5:
            time.sleep(0.01)
        model.may.set()
        for value, each in enumerate([first, *others]):
            assert each.result()[1]["classes"][0]["name"] == str(value)
        assert model.counts == [1, 4, 1]


@pytest.mark.slow
@on_last_backend
def test_too_many_and_too_slow():
    model = Waiting()
    with (
        Running(model.served, batch_size=1, queue=1, timeout=1.0) as running,
        ThreadPoolExecutor(8) as pool,
    ):
        first = pool.submit(running.ask, grey(0))
        assert model.begun.wait(30)
        second = pool.submit(running.ask, grey(1))
        while not running.server.batches._waiting:
            time.sleep(0.01)
        status, answer = running.ask(grey(2))
        assert status == 503 and "1 images wait already" in answer["error"]
        for each in (first, second):
            status, answer = each.result()
            assert status == 503 and "did not answer within 1 s" in answer["error"]
        model.may.set()
    assert model.counts == [1]  # the second was left out


@pytest.mark.slow
@on_last_backend
def test_images_of_several_sizes_and_batches_of_one_number():
    seen = []

    def classify(images):
        seen.append(images.shape)
        return brightness(images)

    fixed = models.Served(np.asarray, classify, {}, batch=3)
    with Running(fixed) as running:
        assert running.ask(photograph(size=(5, 6)))[0] == 200
        assert running.ask(photograph(size=(7, 6)))[0] == 200
    assert seen == [(3, 5, 6, 3), (3, 7, 6, 3)]


@pytest.mark.slow
@on_last_backend
def test_wrong_requests():
    with Running(BRIGHTNESS, timeout=30.0, megapixels=0.001) as running:
        assert running.ask(path="/other", method="GET")[0] == 404
        assert running.ask(b"x", path="/other")[0] == 404
        status, answer = running.ask(photograph(size=(100, 50)))
        assert status == 413 and "Received: 50 × 100" in answer["error"]
        head = "POST /classify HTTP/1.1\r\nHost: me\r\n"
        for line in ("", "Content-Length: \xb2\r\n", "Content-Length: -1\r\n"):
            assert " 411 " in running.send(f"{head}{line}\r\n".encode("latin-1"))
        long = running.send(f"{head}Content-Length: {'9' * 5000}\r\n\r\n".encode())
        assert " 413 " in long and "at most 20 MB. Received: inf MB" in long
        short = running.send(f"{head}Content-Length: 9\r\n\r\nabc".encode())
        assert " 400 " in short and "ended 6 bytes before" in short
        status, answer = running.ask(b"x", method="PUT")
        assert status == 501 and "'PUT'" in answer["error"]
        assert '{"error": "Bad request' in running.send(b"nonsense\r\n\r\n")
        assert running.ask(grey(3))[0] == 200
    with Running(BRIGHTNESS, timeout=0.2) as running:
        with socket.create_connection(running.server.server_address) as line:
            line.sendall(f"{head}Content-Length: 9\r\n\r\nabc".encode())
            slow = line.makefile("rb").read().decode()
        assert " 408 " in slow and "did not come within 0.2 s" in slow


def trickle(address, text):
    """Sends a byte every 0.1 s, until the server closes; returns the seconds."""
    start = time.monotonic()
    with socket.create_connection(address) as line, contextlib.suppress(OSError):
        for i in range(100):
            line.sendall(text[i : i + 1] or b"x")
            time.sleep(0.1)
    return time.monotonic() - start


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("text", [b"", b"POST /classify HTTP/1.1\r\nHost: "])
def test_a_head_that_comes_slowly_has_an_end(text):
    with Running(BRIGHTNESS, timeout=0.5) as running:
        assert trickle(running.server.server_address, text) < 4


@pytest.mark.slow
@on_last_backend
def test_requests_without_end_on_one_connection_do_not_keep_the_server():
    with Running(BRIGHTNESS) as running:
        line = http.client.HTTPConnection(*running.server.server_address, timeout=30)
        line.request("GET", "/")
        line.getresponse().read()
        ending = threading.Thread(target=running.__exit__)
        ending.start()
        while not running.server.ending:
            time.sleep(0.01)
        line.request("GET", "/")
        assert line.getresponse().read()
        ending.join(5)
        assert not ending.is_alive()
        line.close()


@pytest.mark.slow
@on_last_backend
def test_photographs_that_the_model_does_not_take_and_errors(capsys):
    def prepare(image):
        raise ValueError("The image has more than 8 bits.")

    with Running(models.Served(prepare, brightness, {})) as running:
        status, answer = running.ask(grey(1))
        assert (status, answer) == (422, {"error": "The image has more than 8 bits."})

    def broken(images):
        raise ZeroDivisionError("a bug")

    with Running(models.Served(np.asarray, broken, {})) as running:
        status, answer = running.ask(grey(1))
        assert status == 500 and "log says why" in answer["error"]
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err


ABOUT = {
    "format": "onnx",
    "input": {"shape": [None, 16, 16, 3], "values": "pixels"},
    "output": {"name": "probabilities", "label_names": NAMES},
    "preprocessing": kerasvit.Preprocessing(16).to_config(),
    "compared": {"runtime": "ONNX Runtime"},
}


def of(name):
    """The export.json of a model that returns something else."""
    return json.dumps({**ABOUT, "output": {**ABOUT["output"], "name": name}})


@on_last_backend
@pytest.mark.parametrize(
    ("about", "message"),
    [
        ("{", "export.json is damaged: "),
        ("{}", "export.json must have the parts that export.py writes: format"),
        (json.dumps(ABOUT), "has no model.onnx. Write the export again"),
        (of("logits"), "returns logits. Export the model with names"),
        (of("maps"), "shows classes. Export a model with a head"),
    ],
)
def test_exports_that_cannot_be_served(about, message, tmp_path):
    if "no model.onnx" not in message:
        (tmp_path / "model.onnx").touch()
    (tmp_path / "export.json").write_text(about)
    with pytest.raises(ValueError, match=message):
        models.load(Config(str(tmp_path)))


@on_last_backend
@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_damaged_files_and_runtimes_that_are_not_installed(name, tmp_path, monkeypatch):
    (tmp_path / "export.json").write_text(json.dumps({**ABOUT, "format": name}))
    file, package = tmp_path / FORMATS[name].file, runtime.PACKAGES[name][0]
    file.write_bytes(bytes(1000))
    if importlib.util.find_spec(package):
        damaged = rf"{re.escape(str(file))} cannot be loaded \("
        with pytest.raises(ValueError, match=damaged):
            models.load(Config(str(tmp_path)))
    monkeypatch.setitem(sys.modules, package, None)  # its import fails
    with pytest.raises(ValueError, match=f"`model`: {package}, .*: pip install"):
        models.load(Config(str(tmp_path)))
    assert runtime.PACKAGES.keys() == FORMATS.keys()


ALLOCATIONS = """
import resource, sys
import numpy as np
from command import startup

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(2**20, "f8") for _ in range(12)]  # 8 MiB each
    del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "kept":
    startup.keep_freed_memory()
faults()
print(faults())
"""


@pytest.mark.slow
@on_last_backend
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc")
def test_memory_of_large_arrays_is_kept():
    without, kept = (
        int(
            subprocess.check_output(
                [sys.executable, "-c", ALLOCATIONS, mode], cwd=serve.__file__[:-9]
            )
        )
        for mode in ("", "kept")
    )
    assert without > 10 * max(kept, 100)


@pytest.mark.slow
@on_last_backend
def test_settings_and_models_that_cannot_be_served(tmp_path):
    for options, message in (
        (["none"], "no file or folder none"),
        ([str(tmp_path), "--port", "70000"], "`port` must be at least 0 and at most"),
        ([str(tmp_path), "--timeout", "0"], "`timeout` must be at least 0.001"),
    ):
        with pytest.raises(command_line.BadInput, match=message):
            serve.start(options)
    headless = tiny("VisionTransformer", num_classes=0)
    kerasvit.save_pretrained(headless, tmp_path / "features")
    with pytest.raises(ValueError, match="shapes .*Give a model with a head"):
        models.load(Config(str(tmp_path / "features")))
    for host in ("a..b", "nosuchhost.invalid", "::1"):
        with pytest.raises(ValueError, match="`host`: .*Give another --host"):
            server.Server(BRIGHTNESS, Config("model", host, port=0))
    with Running(BRIGHTNESS) as running:
        port = running.server.server_address[1]
        with pytest.raises(ValueError, match="cannot be listened to.*another --port"):
            server.Server(BRIGHTNESS, Config("model", port=port))
