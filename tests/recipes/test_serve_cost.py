"""`python -m recipes.benchmarks serve`: each way answers in a process of its own."""

import numpy as np
import pytest

import recipes.benchmarks.__main__ as benchmarks
from recipes.benchmarks import results, serve_cost, serve_ways, settings
from tests.once import on_last_backend

SMALL = settings.Config("serve", ("ViTTi16",), image_size=32, rounds=1, warmup=0)


@on_last_backend
def test_the_cells_of_a_way_are_beside_those_of_another():
    base = {1: [[0.1, 0.2, 0.3]] * 3, 8: [[0.8]] * 3, 32: [[3.2], [3.2], [6.4]]}
    half = {n: [[t / 2 for t in each] for each in rounds] for n, rounds in base.items()}
    cells = serve_cost.speeds(half, base)
    assert cells == ["100", "150", "10.0", "2.00", "20.0", "2.00", "20.0", "2.00"]
    assert serve_cost.speeds(base, None)[2:] == ["5.0", "", "10.0", "", "10.0", ""]


@pytest.mark.long
@pytest.mark.only_on("torch", reason="timm is compared with, in one process")
@pytest.mark.usefixtures("timm")
def test_all_ways_return_the_same_logits(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    wanted = (
        *(f"kerasvit, PyTorch, {each}" for each in ("predict", "predict_on_batch")),
        *(serve_cost.BASE, "timm, ONNX", "onnx, float32", "torch, float32"),
    )
    every = serve_ways.found("ViTTi16")
    monkeypatch.setattr(
        serve_ways, "found", lambda name: {each: every[each] for each in wanted}
    )
    ways = serve_ways.write(SMALL, tmp_path)
    images = np.load(tmp_path / serve_ways.IMAGES)
    assert images.shape == (32, 32, 32, 3)
    logits = {
        name: np.asarray(way.load(tmp_path)(images)) for name, way in ways.items()
    }
    expected = logits[serve_cost.BASE]
    assert expected.shape == (32, 1000)
    for found in logits.values():
        np.testing.assert_allclose(found, expected, atol=1e-4 * abs(expected).max())


@pytest.mark.long
@on_last_backend
def test_serve_times_processes_on_one_core_and_on_all(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    wanted = "kerasvit, PyTorch, predict_on_batch", serve_cost.BASE
    every = serve_ways.found("ViTTi16")
    monkeypatch.setattr(
        serve_ways,
        "found",
        lambda name: {each: every[each] for each in wanted if each in every},
    )
    benchmarks.main(SMALL)
    [found] = results.saved(results.FOLDER)
    names = [row[0] for row in found.rows]
    assert names[0] == wanted[0] and len(names) % len(wanted) == 0
    for row in found.rows:
        cores, start, megabytes, middle, most = map(float, row[1:6])
        assert cores >= 1 and start > 0.1 and megabytes > 100 and 0 < middle <= most
        assert all(float(cell) > 0 for cell in row[6:])
