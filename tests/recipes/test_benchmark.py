import contextlib
import dataclasses
import importlib.util
import io
import json
import mmap
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from command import command_line
from PIL import Image
from training import dry_run

import kerasvit
import recipes.benchmarks.__main__ as benchmarks
from kerasvit.quantization import METHODS
from recipes.benchmarks import (
    hessian_cost,
    input_pipeline,
    libraries,
    loading,
    results,
    rivals,
    sam_cost,
    settings,
    simulated,
    timing,
)
from tests.once import on_last_backend
from tests.random_weights import randomised
from tests.tiny_vit import TinyViT

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BACKENDS = [
    name for name in ("tensorflow", "jax", "torch") if importlib.util.find_spec(name)
]


def table(printed):
    """Cells of the rows of a table."""
    rows = [line.split("│")[1:-1] for line in printed.splitlines()]
    return [[cell.strip() for cell in row] for row in rows if len(row) > 1]


@pytest.fixture
def config(monkeypatch, tmp_path):
    """Settings for a model that compiles fast; saves results in the test's folder."""
    monkeypatch.chdir(tmp_path)

    def tiny(image_size):
        return keras.Sequential(
            [
                keras.Input((image_size, image_size, 3)),
                keras.layers.Flatten(),
                keras.layers.Dense(3),
            ]
        )

    tiny.numbers, tiny.defaults = {}, {"image_size": 8, "num_classes": 3}
    tiny.multiply_adds = None
    monkeypatch.setattr(kerasvit, "Tiny", tiny, raising=False)
    monkeypatch.setattr(libraries, "SIDE", 64)
    return settings.Config("sam", model=("Tiny",), batch_size=2, rounds=1, warmup=1)


def test_forward_prints_every_library(config, capsys):
    config = dataclasses.replace(config, what="forward", image_size=8)
    benchmarks.main(config)
    printed = capsys.readouterr().out
    assert "kerasvit" in printed and keras.backend.backend() in printed
    [found] = results.saved(results.FOLDER)
    settings = ("Tiny", 8, 2, "float32", 1, keras.backend.backend())
    names = ("model", "image_size", "batch_size", "dtype", "rounds", "backend")
    assert tuple(found.about[name] for name in names) == settings
    assert found.about["versions"]["keras"] == keras.__version__
    assert f"{found.seconds['kerasvit'][0]:.3f}" == found.rows[0][1]
    assert found.about["products"].endswith("GFLOP/s")


@pytest.mark.long
def test_sam_prints_seconds_and_memory_of_every_method(config, capsys, monkeypatch):
    bytes_of = {}

    def in_this_process(config, backend, name):
        assert backend == keras.backend.backend()
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            benchmarks.main(dataclasses.replace(config, memory_of=name))
        bytes_of[name] = int(printed.getvalue())
        return printed.getvalue()

    monkeypatch.setattr(timing, "in_new_process", in_this_process)
    benchmarks.main(config)
    names = ["plain step", "SAM", "LookSAM(k=5)", "SAM(every=5)"]
    assert list(bytes_of) == names
    rows = {row[0]: row[1:] for row in table(capsys.readouterr().out)}
    floors = ["2 passes", "1.2 passes"]
    assert list(rows) == names + floors
    floor, fifth, plain = (float(rows[name][3]) for name in [*floors, "plain step"])
    assert floor - plain == pytest.approx(5 * (fifth - plain), abs=0.05)
    for name in names:
        row = rows[name]
        *seconds, ratio = map(float, row[:4])
        peak, more = map(float, row[-2:])
        assert all(s >= 0 for s in seconds) and ratio > 0
        if name != "plain step":
            assert float(row[4]) > 0
        assert peak == pytest.approx(bytes_of[name] / 2**20, abs=0.5) and peak > 0
        assert name != "plain step" or (ratio, more) == (1, 0)


def test_a_new_process_gets_all_settings(config, monkeypatch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, tyro; from recipes.benchmarks.settings import Config\n"
        "print(os.environ['KERAS_BACKEND'], tyro.cli(Config))"
    )
    monkeypatch.setattr(timing, "COMMAND", (str(script),))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    given = {"image_size": 16, "dtype": "mixed_bfloat16", "rivals": ("timm", "Flax")}
    given |= {"jit_compile": True, "memory": False}
    config = dataclasses.replace(config, **given)
    printed = timing.in_new_process(config, "jax", "LookSAM(k=5)")
    config = dataclasses.replace(config, memory_of="LookSAM(k=5)")
    assert printed.strip() == f"jax {config}"


@on_last_backend
def test_an_interval_covers_the_median_by_ranks():
    assert timing.interval(range(1, 16)) == (4, 12)  # 96 %, of ranks 5 and 11 88 %
    assert timing.interval(range(1, 7)) == (1, 6)
    assert timing.interval([3.0]) == (3.0, 3.0)


@on_last_backend
@pytest.mark.parametrize(
    ("model", "backend", "names"),
    [
        ("ViTS16", "torch", ["keras-hub", "KerasFormers", "timm"]),
        ("ViTS16", "jax", ["keras-hub", "KerasFormers", "Flax"]),
        ("MixerB16", "jax", ["Flax"]),
        ("BiTR50x1", "tensorflow", ["ResNet50V2"]),
    ],
)
def test_rivals_of_a_model(monkeypatch, model, backend, names):
    monkeypatch.setattr(rivals, "installed", lambda package: True)
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    folders = {"flax_source": ".", "kerasformers_source": "."}
    config = settings.Config("train", model=(model,), **folders)
    assert list(rivals.found(config)) == names
    compiled = ("timm-compiled", "kerasvit-compiled")
    config = dataclasses.replace(config, rivals=compiled)
    assert list(rivals.found(config)) == list(compiled) * ("timm" in names)


@on_last_backend
def test_a_source_must_be_a_checkout(tmp_path):
    for option, package in settings.SOURCES.items():
        flag = f"--{option.replace('_', '-')}"
        with pytest.raises(command_line.BadInput, match=f"the package {package}"):
            settings.read(["train", flag, str(tmp_path)])


def test_most_bytes_measures_only_the_function():
    def take(size):
        # A new mapping, which reuses no freed memory of the C library.
        np.frombuffer(mmap.mmap(-1, size), "uint8")[:] = 1

    size = 2**27
    take(2 * size)  # allocated and freed before the measurement
    none = dry_run.most_bytes(lambda: None)
    assert dry_run.most_bytes(lambda: take(size)) - none == pytest.approx(size, rel=0.1)


def test_without_a_backend_sam_takes_every_installed_one(config, monkeypatch):
    asked = []
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(timing, "in_new_process", lambda *args: asked.append(args))
    benchmarks.main(config)
    assert asked == [(config, b, None) for b in BACKENDS]


def test_a_backend_that_fails_stops_no_other(config, monkeypatch, capsys):
    def run(config, backend, memory_of):
        if backend == BACKENDS[0]:
            raise subprocess.CalledProcessError(1, "benchmarks")
        return "12\n"

    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(timing, "in_new_process", run)
    with pytest.raises(SystemExit, match=f"failed on {BACKENDS[0]};"):
        benchmarks.main(dataclasses.replace(config, memory_of="SAM"))
    assert capsys.readouterr().out == "".join(f"{b}: 12\n" for b in BACKENDS[1:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory_of": "LookSAM"}, "no row 'LookSAM'; there are plain step, SAM, Look"),
        ({"rounds": 0}, "`--rounds` must be at least 1. Received: 0."),
        ({"warmup": -1}, "`--warmup` must be at least 0. Received: -1."),
    ],
)
def test_impossible_arguments_are_explained(config, changes, message):
    with pytest.raises(SystemExit, match=re.escape(message)):
        benchmarks.main(dataclasses.replace(config, **changes))


def test_load_prints_seconds_and_memory(config, capsys, monkeypatch):
    bytes_of = {}

    def in_this_process(config, backend, name):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            benchmarks.main(dataclasses.replace(config, memory_of=name))
        bytes_of[name] = int(printed.getvalue())
        return printed.getvalue()

    monkeypatch.setattr(timing, "in_new_process", in_this_process)
    monkeypatch.setattr(rivals, "installed", lambda package: False)
    monkeypatch.setattr(kerasvit, "Tiny", TinyViT)
    benchmarks.main(dataclasses.replace(config, what="load", image_size=8))
    (row,) = table(capsys.readouterr().out)
    name, *seconds, ratio, interval, peak, share = row
    assert name == "kerasvit" and all(float(s) > 0 for s in seconds)
    assert ratio == interval == ""
    assert list(bytes_of) == ["kerasvit"] and float(share) >= 0
    assert float(peak) == pytest.approx(bytes_of["kerasvit"] / 1e6, abs=0.5)


@on_last_backend
def test_hessian_prints_products_and_memory(config, capsys, monkeypatch):
    monkeypatch.setattr(
        timing, "in_new_process", lambda *_: hessian_cost.weight_bytes()
    )
    monkeypatch.setattr(rivals, "installed", lambda package: False)
    monkeypatch.setattr(hessian_cost, "IMAGES", 3)
    monkeypatch.setattr(kerasvit, "Tiny", TinyViT)
    config = dataclasses.replace(config, what="hessian", image_size=8, rounds=40)
    benchmarks.main(config)
    ours, gradient, *memories = table(capsys.readouterr().out)
    assert (ours[0], gradient[0]) == ("kerasvit", "a gradient")
    assert 1 < int(ours[1]) < 40 and int(gradient[1]) == hessian_cost.GRADIENTS
    assert float(ours[6]) <= hessian_cost.TOLERANCE and float(ours[7]) != 0
    copies = [row[1] for row in memories if row[1]]  # long names have several lines
    assert copies == ["1.00"] * len(hessian_cost.PEAKS)


@pytest.mark.long
@on_last_backend
def test_import_prints_the_additional_time(config, capsys, monkeypatch):
    ran = []

    def run(command, **_):
        ran.append(command[-1])
        return subprocess.CompletedProcess(command, 0, stderr=b"")

    monkeypatch.setattr(loading.subprocess, "run", run)
    config = dataclasses.replace(config, what="import", model=(), rounds=3)
    benchmarks.main(config)
    assert ran == ["import keras", "import keras, kerasvit"] * 4
    alone, both = table(capsys.readouterr().out)
    assert alone[-1] == "" and abs(float(both[-1])) < 0.1


def test_a_cycle_weights_steps_by_their_frequency():
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


def test_a_cycle_begins_with_the_sam_step(config, monkeypatch):
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


@pytest.mark.long
@on_last_backend
def test_data_prints_images_a_second(config, capsys, monkeypatch, images):
    monkeypatch.setattr(input_pipeline, "IMAGES", 5)
    images("cat", 8)
    folder = str(images("dog", 8))
    config = dataclasses.replace(config, what="data", image_size=32, folder=folder)
    benchmarks.main(config)
    rows = {name: speeds for name, *speeds in table(capsys.readouterr().out)}
    names = ["training, none", "training, photo", "training, photo_mixed", "evaluation"]
    assert list(rows) == ["decoding alone", *names, "training step, Tiny"]
    assert all(float(speed) > 0 for speeds in rows.values() for speed in speeds[:3])
    assert [float(rows[name][3]) > 0 for name in names] == [True] * 4
    assert [float(rows[name][5]) > 0 for name in names] == [True] * 4
    assert (
        rows["decoding alone"][3::2] == ["1.00"] * 2
        and not rows["training step, Tiny"][3]
    )


@pytest.mark.long
def test_a_round_of_data_makes_all_its_batches(config, images):
    images("cat", 8)
    config = dataclasses.replace(config, folder=str(images("dog", 8)), image_size=16)
    with input_pipeline.files(config) as found:
        assert len(found) == 10  # the training images of the folder
        for pipeline in input_pipeline.pipelines(config, found).values():
            count = input_pipeline.batches(config)
            assert count * config.batch_size == input_pipeline.IMAGES
            assert all(n > 0 for n in input_pipeline.round_of(pipeline, count))


@on_last_backend
def test_data_needs_jpeg_files(config, images):
    images("cat", 8)
    root = images("dog", 8)
    for path in root.rglob("*.jpg"):
        Image.open(path).save(path.with_suffix(".png"))
        path.unlink()
    config = dataclasses.replace(config, folder=str(root), image_size=16)
    with input_pipeline.files(config) as found:
        with pytest.raises(command_line.BadInput, match="no JPEG files"):
            input_pipeline.pipelines(config, found)


@on_last_backend
def test_data_needs_as_many_images_as_a_batch(config, images):
    images("cat", 8)
    folder = str(images("dog", 8))
    config = dataclasses.replace(config, folder=folder, image_size=16, batch_size=20)
    with input_pipeline.files(config) as found:
        with pytest.raises(command_line.BadInput, match="`batch_size`.* larger than"):
            input_pipeline.pipelines(config, found)


@on_last_backend
def test_photographs_are_the_same_each_time(tmp_path):
    (tmp_path / "again").mkdir()
    first = input_pipeline.write_photographs(tmp_path, 7)
    second = input_pipeline.write_photographs(tmp_path / "again", 7)
    assert len({path.read_bytes() for path in first}) == 7
    for path, again in zip(first, second):
        assert path.read_bytes() == again.read_bytes()
        with Image.open(path) as image:
            assert (image.format, image.size) == ("JPEG", (500, 375))


@on_last_backend
def test_data_without_scikit_image(monkeypatch):
    monkeypatch.setattr(
        settings.importlib.util, "find_spec", lambda name: name != "skimage"
    )
    monkeypatch.setattr(settings.startup, "check_backend", lambda: None)
    with pytest.raises(command_line.BadInput, match="pip install scikit-image"):
        settings.read(["data"])


@on_last_backend
def test_results_show_the_latest_of_every_measurement(config, capsys):
    with pytest.raises(SystemExit, match="no results in runs.benchmarks. Measure"):
        benchmarks.main(dataclasses.replace(config, what="results"))
    for backend, seconds in (("jax", "9"), ("torch", "2"), ("jax", "1")):
        rows = [["kerasvit", seconds, ""], ["timm", "2"]]
        settings = dataclasses.replace(config, what="forward", image_size=8)
        results.show(
            results.Result.of(settings, backend, ["median s", "/ it"], rows, {})
        )
    old = Path("runs/benchmarks/Tiny-forward-8-px-batch-2-float32-jax-1-rounds.json")
    fields = json.loads(old.read_text())
    old.write_text(json.dumps({k: fields[k] for k in list(fields)[:5]}))  # of 0.1
    old.with_name("damaged.json").write_text(old.read_text()[:50])
    imported = dataclasses.replace(config, what="import")
    results.show(results.Result.of(imported, "jax", ["median s"], [["keras", "3"]], {}))
    capsys.readouterr()
    benchmarks.main(dataclasses.replace(config, what="results"))
    forward, imports = capsys.readouterr().out.strip().split("\n\n")
    head, line, *rows = forward.splitlines()
    assert head == "| date | forward |  | median s | / it |" and line.count("---") == 5
    cells = [[cell.strip() for cell in row.split("|")[2:-1]] for row in rows]
    title = "Tiny forward, 8 px, batch 2, float32, {}, 1 rounds"
    assert cells == [
        [title.format("jax"), "kerasvit", "1", ""],
        ["", "timm", "2", ""],
        [title.format("torch"), "kerasvit", "2", ""],
        ["", "timm", "2", ""],
    ]
    assert "| import, jax, 1 rounds | keras | 3 |" in imports


@on_last_backend
def test_memory_of_is_for_the_measurements_that_take_it():
    with pytest.raises(ValueError, match="`--memory-of` is for .*, hessian. Received"):
        settings.read(["data", "--memory-of", "evaluation"])


@on_last_backend
def test_compiled_passes_are_a_rival_of_forward_and_train(monkeypatch):
    with pytest.raises(ValueError, match="the rival kerasvit-compiled. Received: data"):
        settings.read(["data", "--jit-compile"])
    with pytest.raises(ValueError, match="for forward and train. Received: sam"):
        settings.read(["sam", "--rivals", "timm"])
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    for command in (
        ["sam", "--jit-compile"],
        ["train", "--rivals", "kerasvit-compiled"],
    ):
        with pytest.raises(ValueError, match="Set KERAS_BACKEND=torch"):
            settings.read(command)


@on_last_backend
def test_no_module_shadows_another_one():
    """`recipes/` comes first on the path where a recipe is run as a script."""
    names = {path.stem for path in (ROOT / "recipes/benchmarks").glob("[!_]*.py")}
    assert not names & {path.stem for path in (ROOT / "recipes").glob("*.py")}
    assert not names & set(sys.stdlib_module_names)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """The folder of a training without its result."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    kerasvit.save_pretrained(
        randomised(
            kerasvit.VisionTransformer(
                **{"patch_size": 4, "width": 128, "depth": 1, "num_heads": 2},
                **{"mlp_dim": 256, "image_size": 8, "num_classes": 10},
            ),
            scale=0.1,
        ),
        run / "model",
        label_names=[str(i) for i in range(10)],
    )
    facts = {"data": None, "dataset": "digits"}
    (run / "config.json").write_text(json.dumps(facts))
    return run


@pytest.mark.long
def test_quantization_prints_size_speed_and_accuracy(run):
    with pytest.raises(command_line.BadInput, match="folder of a training"):
        settings.read(["quantization", "--folder", str(run)])
    (run / "result.json").write_text("{}")
    options = ["--folder", str(run), "--batch-size=128", "--rounds=1"]
    benchmarks.main(settings.read(["quantization", *options]))
    [found] = results.saved(results.FOLDER)
    rows = {name: list(map(float, cells[:1])) for name, *cells in found.rows}
    assert list(rows) == ["float32", "bfloat16", "int8", "int8, bfloat16", "int4"]
    assert rows["int4"] < rows["int8"] < rows["bfloat16"] < rows["float32"]
    assert found.rows[0][4] == "1.00" and found.rows[0][6] == "100.0"


@pytest.mark.long
def test_int8_measures_the_exports_that_can_be_written(run):
    (run / "result.json").write_text("{}")
    options = ["--folder", str(run), "--batch-size=128", "--rounds=1"]
    benchmarks.main(settings.read(["int8", *options]))
    [found] = results.saved(results.FOLDER)
    rows = {name: dict(zip(found.columns, cells)) for name, *cells in found.rows}
    first, *others = rows.values()
    assert first["same class %"] == "100.0" and first["difference, points"][:2] == "+0"
    assert "onnx, int8, calibrated" in rows
    for name, row in rows.items():
        assert float(row["same class %"]) > 90
        if "int8" in name:
            whole = rows[f"{name.split(',')[0]}, float32"]
            assert float(row["MB"]) < float(whole["MB"])
    assert "MatMul" in rows["onnx, int8"]["slowest operations"]


@pytest.mark.long
def test_simulate_measures_every_method(run, monkeypatch):
    (run / "result.json").write_text("{}")
    monkeypatch.setattr(simulated, "BITS", (8, 2))
    options = ["--folder", str(run), "--batch-size=128"]
    benchmarks.main(settings.read(["simulate", *options]))
    [found] = results.saved(results.FOLDER)
    same = {name: float(cells[-1]) for name, *cells in found.rows}
    assert same.pop("float32") == 100 and len(same) == 2 * len(METHODS)
    assert min(same[f"{method}, 8 bits"] for method in METHODS) > 90
    assert same["min_max, 2 bits"] < 50
