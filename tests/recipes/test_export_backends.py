"""`export.py` takes a backend that writes the format."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import export
import keras
import numpy as np
import pytest
from exporting import formats, runtime

from tests.once import on_last_backend
from tests.recipes.test_export import pixels, saved, served

BACKEND = keras.backend.backend()
OTHERS = "savedmodel" if BACKEND == "torch" else "torch"  # written elsewhere


@on_last_backend
@pytest.mark.parametrize(("name", "form"), formats.FORMATS.items())
def test_each_backend_writes_a_format_or_another_takes_its_place(
    name, form, monkeypatch
):
    monkeypatch.setattr(importlib.util, "find_spec", bool)  # all are installed
    for backend in ("tensorflow", "jax", "torch"):
        able = backend in form.backends
        expected = backend if able else form.backends[0]
        assert formats.backend_for(name, "float32", backend) == expected
        if not able:
            with pytest.raises(ValueError, match=f"KERAS_BACKEND={form.backends[0]}"):
                formats.check(name, "float32", backend)
    assert formats.backend_for(name, "float32", None) == form.backends[0]


@on_last_backend
def test_a_precision_may_need_another_backend(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", bool)  # all are installed
    assert formats.backend_for("openvino", "int4", "torch") == "tensorflow"
    assert formats.backend_for("openvino", "int8", "torch") == "torch"
    assert formats.backend_for("onnx", "int4", "jax") == "torch"  # refused later


@pytest.mark.parametrize("backend", [BACKEND, "openvino"])
def test_the_command_takes_a_backend_that_writes_the_format(
    backend, tmp_path, monkeypatch
):
    [writer, *_] = formats.FORMATS[OTHERS].backends
    pytest.importorskip(writer)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    command = [str(tmp_path), "--format", OTHERS, "--out", str(tmp_path / "x")]
    assert export.start(command).batch is None
    assert os.environ["KERAS_BACKEND"] == writer


@pytest.mark.long
def test_a_model_of_this_backend_in_a_format_of_another(tmp_path):
    pytest.importorskip(formats.FORMATS[OTHERS].backends[0])
    folder, out = saved(tmp_path / "vit"), str(tmp_path / "out")
    command = [export.__file__, folder, "--format", OTHERS, "--out", out]
    process = subprocess.run(
        [sys.executable, *command, "--batch", "2", "--outputs", "logits"],
        env={**os.environ, "KERAS_BACKEND": BACKEND},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert f"Written on {formats.FORMATS[OTHERS].backends[0]}: " in process.stdout
    found = runtime.READERS[OTHERS](out)(pixels())
    expected = keras.ops.convert_to_numpy(
        served(folder, outputs="logits").model(pixels())
    )
    np.testing.assert_allclose(found, expected, atol=1e-5 * abs(expected).max())


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_sigterm_leaves_nothing(tmp_path):
    name = formats.FORMATS["torch"].backends[0]
    pytest.importorskip(name)
    folder, out = saved(tmp_path / "vit"), tmp_path / "exports" / "vit"
    command = [export.__file__, folder, "--format", "torch", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, *command], env={**os.environ, "KERAS_BACKEND": name}
    )
    while not [*out.parent.glob(".vit-*/vit")] and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert not [*out.parent.iterdir()]


@on_last_backend
def test_a_missing_package_has_its_pip_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install onnx onnxscript onnxruntime, or"):
        formats.check("onnx", "float32", "torch")
    line = r'torch is written on torch, which is .*pip install -e "\.\[torch,recipes\]"'
    with pytest.raises(ValueError, match=line):
        formats.backend_for("torch", "float32", "jax")
