"""The times in MEASURED.md, against the results that are kept."""

import json
import re
import statistics
from pathlib import Path

import pytest

from tests.once import on_last_backend

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "recipes" / "MEASURED.md").read_text(encoding="utf-8")
FOLDER = ROOT / "recipes" / "benchmarks" / "results"
BACKENDS = {"JAX": "jax", "TensorFlow": "tensorflow", "PyTorch": "torch"}
WHAT = {"AdamW step": "train", "forward": "forward"}
ROW = r"\| (\.\.\.|\S+ (?:AdamW step|forward),) (\w+) \|(.*)\|"
RIVALS = ("keras-hub", "ResNet50V2"), ("timm", "Flax")  # of the columns


def published():
    """Returns {(model, what, backend): cells} of the tables of MEASURED.md."""
    section = PAGE.split("## What training and prediction cost")[1].split("\n##")[0]
    rows = {}
    for line in section.splitlines():
        found = re.match(ROW, line)
        if not found:
            continue
        label, backend, cells = found.groups()
        if label != "...":
            model, _, what = label.strip(",").partition(" ")
            model = re.sub("[-/]", "", model)
        cells = [cell.strip().strip("*") for cell in cells.split("|")]
        rows[model, WHAT[what], BACKENDS[backend]] = cells
    return rows


def kept(model, what, backend):
    """Returns {name of a library: row} of a file of results."""
    (file,) = FOLDER.glob(f"{model}-{what}-*-float32-{backend}-15-rounds.json")
    result = json.loads(file.read_text())
    return {row[0]: dict(zip(result["columns"], row[1:])) for row in result["rows"]}


@on_last_backend
@pytest.mark.parametrize("row", published(), ids="-".join)
def test_table(row):
    own, *pairs = published()[row]
    results = kept(*row)
    assert float(own) == pytest.approx(float(results["kerasvit"]["median s"]), abs=6e-3)
    for names, time, ratio in zip(RIVALS, pairs[::2], pairs[1::2], strict=True):
        found = [results[name] for name in names if name in results]
        assert len(found) == bool(time)
        for other in found:
            assert float(time) == pytest.approx(float(other["median s"]), abs=6e-3)
            assert ratio == other["kerasvit / it"]


@on_last_backend
def test_all_results_are_published():
    assert len(published()) == len(list(FOLDER.glob("*-[ft]*-float32-*.json")))
    assert len(list(FOLDER.glob("*-sam-*.json"))) == 2 * len(BACKENDS)
    assert len(list(FOLDER.glob("*-bfloat16-*.json"))) == len(BACKENDS)


@on_last_backend
@pytest.mark.parametrize("model", ["ViTS16", "BiTR50x1"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_cost_of_sam(model, backend):
    lines = PAGE.split("SAM / floor |")[1].splitlines()[2:8]
    (line,) = (x for x in lines[3 * (model != "ViTS16") :][:3] if f" {backend} |" in x)
    plain, *ratios, floor, last = [x.strip().strip("*") for x in line.split("|")[2:-1]]
    (file,) = FOLDER.glob(f"{model}-sam-*-float32-{BACKENDS[backend]}-15-rounds.json")
    result = json.loads(file.read_text())
    rows = {row[0]: dict(zip(result["columns"], row[1:])) for row in result["rows"]}
    assert plain == f"{float(rows['plain step']['median s']):.2f} s"
    methods = "SAM", "LookSAM(k=5)", "SAM(every=5)", "2 passes"
    assert [*ratios, floor] == [rows[name]["it / plain"] for name in methods]
    interval = rows["SAM"]["95 %"].replace(" to ", "–")
    assert last == f"{rows['SAM']['it / floor']}** ({interval})"


@on_last_backend
@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16(backend):
    table = PAGE.split("| mixed_bfloat16 | float32 |")[1]
    line = next(x for x in table.splitlines() if x.startswith(f"| {backend} |"))
    half, single, ratio, *rates = [x.strip().strip("*") for x in line.split("|")[2:-1]]
    files = [
        FOLDER / f"ViTS16-train-224-px-batch-8-{x}-{BACKENDS[backend]}-15-rounds.json"
        for x in ("mixed-bfloat16", "float32")
    ]
    results = [json.loads(file.read_text()) for file in files]
    assert rates == [result["about"]["products"] for result in results]
    ours, other = results[0]["rows"]
    assert other[0] == "kerasvit, float32"
    assert (half, single) == tuple(f"{float(row[1]):.2f}" for row in (ours, other))
    assert ratio == other[1 + results[0]["columns"].index("kerasvit / it")]


@on_last_backend
def test_gpu():
    """Images per second, memory, and ratios to timm's compiled ones."""
    lines = PAGE.split("| images/s; peak MiB |")[1].splitlines()[2:]
    for line in lines[: lines.index("")]:
        label, *cells, last = [cell.strip() for cell in line.split("|")[1:-1]]
        found = re.fullmatch(r"(\S+) (AdamW step|forward), (\w+)", label)
        model, what = re.sub("[-/]", "", found[1]), WHAT[found[2]]
        best = of_gpu(model, what, "torch")["timm-compiled"]
        if found[3] == "PyTorch":
            rows = of_gpu(model, what, "torch")
            names = "kerasvit", "kerasvit-compiled", "timm", "timm-compiled"
            assert cells == [shown(rows[name]) for name in names]
            own = rows["kerasvit-compiled"]
        elif what == "forward":
            own = of_gpu(model, what, "jax")["kerasvit"]
        else:
            own = of_gpu(model, "sam", "jax")["plain step"]
        assert cells[1] == shown(own)
        ratios = [a / b for a, b in zip(own, best, strict=False)]
        assert last.replace("*", "").split("; ") == [f"{x:.2f}" for x in ratios]


@on_last_backend
def test_gpu_second_run():
    """Images per second in the paragraphs that name the folder of the second run."""
    text = PAGE.split("h200/second-run/")[1].split("- **JAX**")[0]
    results = (FOLDER / "h200" / "second-run").glob("*.json")
    kept = {
        f"{128 / statistics.median(seconds):,.0f}"
        for file in results
        for seconds in json.loads(file.read_text())["seconds"].values()
    }
    found = re.findall(r"\b\d+,\d{3}\b", text)
    assert len(found) == 5 and set(found) <= kept


def of_gpu(model, what, backend):
    """Returns {name of a row: [images/s, MiB if measured]} of a file of the GPU."""
    (file,) = FOLDER.glob(f"h200/{model}-{what}-224-px-*-{backend}-15-rounds.json")
    result = json.loads(file.read_text())
    found = {}
    for name, *cells in result["rows"]:
        peaks = dict(zip(result["columns"], cells)).get("peak MiB")
        seconds = statistics.median(result["seconds"][name])
        speed = result["about"]["batch_size"] / seconds
        found[name] = [speed, *([int(peaks)] if peaks else [])]
    return found


def shown(numbers):
    return "; ".join(f"{number:,.0f}" for number in numbers)


@on_last_backend
def test_another_processor():
    """Ratios and intervals in the paragraph that names the folder of results."""
    folder = FOLDER / "epyc-family-25-model-17"
    text = PAGE.split(folder.name)[1]
    text = " ".join(text.split("\n\n")[0].split())
    results = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    rows = [row for result in results for row in result["rows"][1:]]
    kept = {
        number for *_, ratio, ends in rows for number in (ratio, *ends.split(" to "))
    }
    found = re.findall(r"\b\d\.\d\d\b", text)
    assert len(found) == 14 and set(found) <= kept


@on_last_backend
def test_words_of_the_readme():
    """A ViT takes less time than keras-hub's, and on PyTorch than timm's."""
    vits = {row: cells for row, cells in published().items() if "ViT" in row[0]}
    assert len(vits) == 2 * len(BACKENDS)
    assert all(float(cells[2]) < 1 for cells in vits.values())
    on_torch = [cells for row, cells in vits.items() if row[2] == "torch"]
    assert all(float(cells[4]) < 1 for cells in on_torch)
