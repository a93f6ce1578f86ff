import contextlib
import dataclasses
import importlib.util
import io
import mmap
import re
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest

import kerasvit
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT

BACKENDS = [
    name for name in ("tensorflow", "jax", "torch") if importlib.util.find_spec(name)
]


def table(printed):
    """Cells of the rows of a table."""
    rows = [line.split("│")[1:-1] for line in printed.splitlines()]
    return [[cell.strip() for cell in row] for row in rows if len(row) > 1]


@pytest.fixture
def config(monkeypatch):
    """Of a model that compiles in no time."""
    import benchmark

    def tiny(image_size):
        return keras.Sequential(
            [
                keras.Input((image_size, image_size, 3)),
                keras.layers.Flatten(),
                keras.layers.Dense(3),
            ]
        )

    tiny.numbers, tiny.defaults = {}, {"image_size": 8, "num_classes": 3}
    monkeypatch.setattr(kerasvit, "Tiny", tiny, raising=False)
    return benchmark.Config("sam", model="Tiny", batch_size=2, rounds=1, warmup=1)


def test_forward_prints_every_contender(config, capsys):
    import benchmark

    benchmark.main(dataclasses.replace(config, what="forward"))
    printed = capsys.readouterr().out
    assert "kerasvit" in printed and keras.backend.backend() in printed


def test_sam_prints_seconds_and_memory_of_every_method(config, capsys, monkeypatch):
    import benchmark

    bytes_of = {}

    def here(config, backend, name):
        assert backend == keras.backend.backend()
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            benchmark.main(dataclasses.replace(config, memory_of=name))
        bytes_of[name] = int(printed.getvalue())
        return printed.getvalue()

    monkeypatch.setattr(benchmark, "in_new_process", here)
    benchmark.main(config)
    names = ["plain step", "SAM", "LookSAM(k=5)", "SAM(every=5)"]
    assert list(bytes_of) == names
    rows = {row[0]: row[1:] for row in table(capsys.readouterr().out)}
    floors = ["2 passes", "1.2 passes"]
    assert list(rows) == names + floors
    floor, fifth, plain = (float(rows[name][3]) for name in [*floors, "plain step"])
    assert floor - plain == pytest.approx(5 * (fifth - plain), abs=0.05)
    for name in names:
        row = rows[name]
        *seconds, ratio, least, most, peak, more = map(float, row)
        assert all(s >= 0 for s in seconds) and ratio == least == most > 0
        assert peak == pytest.approx(bytes_of[name] / 2**20, abs=0.5) and peak > 0
        assert name != "plain step" or (ratio, more) == (1, 0)


def test_a_new_process_gets_all_settings(config, monkeypatch, tmp_path):
    import benchmark

    folder = Path(benchmark.__file__).parent
    script = tmp_path / "script.py"
    script.write_text(
        "import os, tyro, benchmark\n"
        "print(os.environ['KERAS_BACKEND'], tyro.cli(benchmark.Config))"
    )
    monkeypatch.setattr(benchmark, "__file__", str(script))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    config = dataclasses.replace(config, image_size=16, dtype="mixed_bfloat16")
    printed = benchmark.in_new_process(config, "jax", "LookSAM(k=5)")
    config = dataclasses.replace(config, memory_of="LookSAM(k=5)")
    assert printed.strip() == f"jax {config}"


def test_the_most_bytes_are_those_of_the_work_alone():
    import memory

    def take(size):
        # Not of what the C library keeps of earlier work.
        np.frombuffer(mmap.mmap(-1, size), "uint8")[:] = 1

    size = 2**27
    take(2 * size)  # before, and free again
    none = memory.most_bytes(lambda: None)
    assert memory.most_bytes(lambda: take(size)) - none == pytest.approx(size, rel=0.1)


def test_without_a_backend_sam_takes_every_installed_one(config, monkeypatch):
    import benchmark

    asked = []
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(benchmark, "in_new_process", lambda *args: asked.append(args))
    benchmark.main(config)
    assert asked == [(config, b, None) for b in BACKENDS]


def test_a_backend_that_fails_stops_no_other(config, monkeypatch, capsys):
    import benchmark

    def run(config, backend, memory_of):
        if backend == BACKENDS[0]:
            raise subprocess.CalledProcessError(1, "benchmark.py")
        return "12\n"

    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(benchmark, "in_new_process", run)
    with pytest.raises(SystemExit, match=f"failed on {BACKENDS[0]};"):
        benchmark.main(dataclasses.replace(config, memory_of="SAM"))
    assert capsys.readouterr().out == "".join(f"{b}: 12\n" for b in BACKENDS[1:])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"memory_of": "LookSAM"}, "no row 'LookSAM'; there are plain step, SAM, Look"),
        ({"rounds": 0}, "`--rounds` must be at least 1. Received: 0."),
        ({"warmup": -1}, "`--warmup` must be at least 0. Received: -1."),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(config, changes, said):
    import benchmark

    with pytest.raises(SystemExit, match=re.escape(said)):
        benchmark.main(dataclasses.replace(config, **changes))


def test_load_prints_seconds_and_memory(config, capsys, monkeypatch):
    import benchmark
    import rivals

    bytes_of = {}

    def here(config, backend, name):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            benchmark.main(dataclasses.replace(config, memory_of=name))
        bytes_of[name] = int(printed.getvalue())
        return printed.getvalue()

    monkeypatch.setattr(benchmark, "in_new_process", here)
    monkeypatch.setattr(rivals, "installed", lambda package: False)
    monkeypatch.setattr(kerasvit, "Tiny", TinyViT)
    benchmark.main(dataclasses.replace(config, what="load", image_size=8))
    (row,) = table(capsys.readouterr().out)
    name, *seconds, ratio, peak, share = row
    assert name == "kerasvit" and all(float(s) > 0 for s in seconds) and ratio == ""
    assert list(bytes_of) == ["kerasvit"] and float(share) >= 0
    assert float(peak) == pytest.approx(bytes_of["kerasvit"] / 1e6, abs=0.5)


@on_last_backend
def test_import_prints_what_we_add(config, capsys, monkeypatch):
    import benchmark
    import loading

    ran = []

    def run(command, **_):
        ran.append(command[-1])
        return subprocess.CompletedProcess(command, 0, stderr=b"")

    monkeypatch.setattr(loading.subprocess, "run", run)
    config = dataclasses.replace(config, what="import", model=None, rounds=3)
    benchmark.main(config)
    assert ran == ["import keras", "import keras, kerasvit"] * 4
    alone, both = table(capsys.readouterr().out)
    assert alone[-1] == "" and abs(float(both[-1])) < 0.1


def test_a_cycle_counts_each_kind_of_step_as_often_as_it_comes():
    import sam_cost

    times = {
        ("SAM", 0.2): [10.0, 20.0],
        ("SAM", 0.8): [5.0, 6.0],
        (sam_cost.PLAIN, 1.0): [4.0, 5.0],
        (sam_cost.PASS, 1.0): [2.5, 5.0],
    }
    assert sam_cost.mean_over_cycles(times) == {
        "SAM": [6.0, 8.8],
        sam_cost.PLAIN: [4.0, 5.0],
        "2 passes": [6.5, 10.0],
        "1.2 passes": [4.5, 6.0],
    }


def test_a_cycle_begins_with_the_step_that_looks_uphill(config, monkeypatch):
    import sam_cost

    seen = []

    def watched(full):
        before = getattr(kerasvit.SAM, full)

        def gradients(self, *arguments):
            seen.append(full)
            return before(self, *arguments)

        monkeypatch.setattr(kerasvit.SAM, full, gradients)

    watched("step_gradients")
    watched("gradients_between")
    config = dataclasses.replace(config, image_size=16)
    kinds = sam_cost.kinds_of_step(config, "SAM(every=5)")
    assert list(kinds) == pytest.approx([1 / 5, 4 / 5])
    for share, name in ((0.2, "step_gradients"), (0.8, "gradients_between")):
        seen.clear()
        kinds[share]()
        assert set(seen) == {name}
