"""Saving converts one tensor at a time, so that it takes little memory."""

import os
import subprocess
import sys
import weakref
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit.checkpoints import format_of
from kerasvit.hub import writing
from tests.random_weights import randomised
from tests.tiny_vit import TinyViT

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def small(**changes):
    return randomised(TinyViT(image_size=8, num_classes=3, **changes))


@pytest.fixture
def alive(monkeypatch):
    """Numbers of tensors in memory at each conversion of a tensor."""
    arrays, counts = [], []
    make = writing.ModelTensors.__getitem__

    def counted(self, name):
        counts.append(sum(array() is not None for array in arrays))
        made = make(self, name)
        arrays.append(weakref.ref(made))
        # Transposed views keep the array of the variable.
        if made.base is not None:
            arrays.append(weakref.ref(made.base))
        return made

    monkeypatch.setattr(writing.ModelTensors, "__getitem__", counted)
    return counts


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_one_tensor_at_a_time(tmp_path, alive, dtype):
    kerasvit.save_pretrained(small(), tmp_path, dtype=dtype)
    assert alive == [0] * len(load_file(tmp_path / "model.safetensors"))


def test_one_tensor_at_a_time_to_the_hub(hub, alive):
    kerasvit.push_to_hub(small(), "me/vit", token="good")
    assert len(alive) > 10 and not any(alive)


@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16"])
@pytest.mark.parametrize("changes", [{}, {"representation_size": 5}], ids=str)
def test_the_file_is_the_one_of_the_library(tmp_path, changes, dtype):
    """With timm's tensor names and with kerasvit's."""
    model = small(**changes)
    kerasvit.save_pretrained(model, tmp_path, dtype=dtype)
    arrays = {v.path: keras.ops.convert_to_numpy(v) for v in model.weights}
    source = format_of(model.record)[0]
    expected = source.key_map(model.record["kwargs"]).write(arrays)
    kind = writing.dtype_of(dtype or "float32")
    expected = {
        name: np.ascontiguousarray(array.astype(kind))
        for name, array in expected.items()
    }
    save_file(expected, tmp_path / "expected.safetensors", {"format": "pt"})
    content = (tmp_path / "model.safetensors").read_bytes()
    assert content == (tmp_path / "expected.safetensors").read_bytes()


def test_a_weight_that_is_not_finite_creates_no_folder(tmp_path):
    model = small()
    model.set_weights([np.full(w.shape, np.nan) for w in model.weights])
    with pytest.raises(ValueError, match="the model is damaged.*Nothing was written"):
        kerasvit.save_pretrained(model, tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


def test_a_weight_that_is_not_finite_sends_no_request(hub):
    model = small()
    model.set_weights([np.full(w.shape, np.nan) for w in model.weights])
    with pytest.raises(ValueError, match="Nothing was written"):
        kerasvit.push_to_hub(model, "me/vit", token="good")
    assert not hub.requests


MEASURE = """
import gc, sys
import kerasvit
from kerasvit import saving

def kilobytes(key):
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(key)))

def save(way):
    open("/proc/self/clear_refs", "w").write("5")  # VmHWM begins anew
    way()
    return (kilobytes("VmHWM") - built) * 1024

name, folder = sys.argv[1:]
model = getattr(kerasvit, name)()
gc.collect()
built = kilobytes("VmRSS")
print(save(lambda: kerasvit.save_pretrained(model, folder)))
saving.prepare = lambda *_, **__: (None, None)
saving.upload = lambda *_, **__: None
print(save(lambda: kerasvit.push_to_hub(model, "me/vit")))
"""


@pytest.mark.long
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="Linux")
@pytest.mark.parametrize(("name", "needs"), [("ViTL16", 4e9), ("BiTR152x4", 10e9)])
def test_the_peak_of_saving(tmp_path, name, needs):
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
    if int(found) * 1024 < needs:
        pytest.skip(f"needs {needs / 1e9:g} GB of memory")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, name, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    size = (tmp_path / "model.safetensors").stat().st_size
    saved, pushed = map(int, done.stdout.split())
    assert saved < 0.3 * size and pushed < 0.3 * size
