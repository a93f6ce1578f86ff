"""Every block of Python on a page runs, and prints what the page says.

The blocks of a page run one after the other, with the names that its reader has. The
variants of the package are the small ViT of `tests/trained_vit.py` there, names of the
Hub are folders, and images are its digits. Blocks that other tests run as they stand
are in `ELSEWHERE`.
"""

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

import kerasvit
from tests.once import on_last_backend
from tests.test_pages import PAGES, ROOT, page
from tests.trained_vit import FOLDER, TrainedViT, digits

pytestmark = pytest.mark.slow
FEATURES = "kerasvit/FEATURES.md"  # prints the shapes of real variants
LONG = {FEATURES, "kerasvit/QUANTIZATION.md"}
LONG |= {f".github/site/{name}.md" for name in ("sam", "start")}
LONG |= {f"kerasvit/training/{name}.md" for name in ("README", "UNLABELLED")}
ELSEWHERE = {  # page: {words of a block: file of the test that runs it}
    ".github/site/gallery.md": {"": "test_gallery.py"},
    "README.md": {
        "push_to_hub": "fine_tuning/test_pages.py",
        "instead of `model`": "fine_tuning/test_pages.py",
    },
    "kerasvit/CALIBRATION.md": {
        "calibrate": "fine_tuning/test_pages.py",
        "soup =": "fine_tuning/test_pages.py",
    },
    "kerasvit/training/DEVICES.md": {
        "DataParallel": "fine_tuning/test_pages.py",
        "MirroredStrategy": "fine_tuning/test_pages.py",
        "DeviceMesh": "test_snippets.py",
        "init_process_group": "test_snippets.py",
    },
    "recipes/EXPORT.md": {"": "recipes/test_export.py"},
    "recipes/LABELS.md": {"from_table": "fine_tuning/test_pages.py"},
}


def blocks(text):
    """The blocks of Python of a page: fenced ones, and indented ones that parse."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    code = [block for language, block in found if language == "python"]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.findall(r"(?:^|\n\n)((?:    .*\n(?:\n(?=    ))?)+)", rest):
        block = textwrap.dedent(block)
        with contextlib.suppress(SyntaxError):
            ast.parse(block)
            if re.search(r"keras|^import ", block, re.MULTILINE):
                code.append(block)
    return code


def here(name):
    """The blocks of a page that no other test runs."""
    known = ELSEWHERE.get(name, {})
    found = blocks(page(ROOT / name))
    return [block for block in found if not any(words in block for words in known)]


RUN_HERE = [
    pytest.param(name, marks=pytest.mark.long) if name in LONG else name
    for name in (path.relative_to(ROOT).as_posix() for path in PAGES)
    if not name.startswith("tests/golden") and here(name)  # cards of version 0.1
]


FOLDERS = (
    *("runs/pets/model", "pets/model", "findings/model", "me/pets-vit", "trained_vit"),
    "google/vit-base-patch16-224",
)


def small(weights=None, *, image_size=28, **options):
    sides = image_size if isinstance(image_size, tuple) else (image_size, image_size)
    options["image_size"] = tuple(side // 7 * 7 for side in sides)  # whole patches
    options = {"num_classes": 5, "include_preprocessing": False, **options}
    return TrainedViT(FOLDER if weights else None, **options)


class Package:
    """kerasvit without its large models, and with folders for the Hub."""

    def __getattr__(self, name):
        found = getattr(kerasvit, name)
        return small if isinstance(found, kerasvit.Variant) else found

    def from_pretrained(self, path, **options):
        return kerasvit.from_pretrained(path.replace("hf://", ""), **options)

    def load_adapters(self, model, path):
        kerasvit.load_adapters(model, path.replace("hf://", ""))

    def push_to_hub(self, model, name, **options):
        kerasvit.save_pretrained(model, name, **options)


def write_files():
    """Writes what the pages name into the current folder."""
    model = small("weights", num_classes=10)
    for path in FOLDERS:
        kerasvit.save_pretrained(model, path)
    kerasvit.add_lora(model, rank=2)
    kerasvit.save_adapters(model, "user/vit-lora", format="peft")
    pixels = np.random.default_rng(0).integers(256, size=(40, 40, 3), dtype="uint8")
    for name in ("cat.jpg", "dog.jpg", "0.jpg", "new.jpg"):
        Image.fromarray(pixels).save(name)
    Path("names.txt").write_text("\n".join("abcde"))
    for kind in ("forest", "sea"):
        Path("satellite", kind).mkdir(parents=True)
        for i in range(10):
            bands = np.full((32, 32, 13), i + len(kind), "uint16")
            np.save(Path("satellite", kind, f"{i}.npy"), bands)


def fresh_model():
    return TrainedViT(FOLDER, num_classes=10, include_preprocessing=True)


def reader():
    """What the reader of a page has: {name: value}."""
    (x, y), _ = digits()
    x, y = x[:48], y[:48]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model, teacher = fresh_model(), fresh_model()
    vit = TrainedViT(include_preprocessing=True)
    modules = {"keras": keras, "kerasvit": Package(), "np": np, "os": os}
    data = {"x": x, "y": y, "images": x, "labels": y}
    models = {"model": model, "teacher": teacher, "vit": vit}
    return {**modules, **data, **models, "loss": loss}


def run(block, names):
    """Runs a block; compares what it prints, and shapes, with the comments behind."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "<page>", "exec"), names)
    says = re.findall(r"^print\([^#\n]*\)\s*#\s*(.*)$", block, re.MULTILINE)
    says += re.findall(r"^print\([^#\n]*\)\n#\s*(.*)$", block, re.MULTILINE)
    for each in says:
        assert each in printed.getvalue()
    shapes = r"^(kerasvit\.features\(.*\)) +#.*\(batch, ([\d, ]+)\)"
    for call, shape in re.findall(shapes, block, re.MULTILINE):
        output = eval(call, names).outputs[-1]  # the page gives the shape of the last
        assert ", ".join(map(str, output.shape[1:])) == shape


@on_last_backend
@pytest.mark.parametrize("name", RUN_HERE)
def test_blocks_run_in_their_order(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files()
    names = reader()
    if name == FEATURES:
        names["kerasvit"] = kerasvit
        names["loss"] = "mse"
    for block in here(name):
        run(block.replace("compile(...)", "compile(loss=loss)"), names)
        if re.search(r"quantize\(|gptq", block):
            names["model"] = fresh_model()  # quantised once


@on_last_backend
def test_other_tests_run_what_is_not_run_here():
    for path, known in ELSEWHERE.items():
        found = blocks(page(ROOT / path))
        for words, test in known.items():
            assert any(words in block for block in found), (path, words)
            text = (ROOT / "tests" / test).read_text(encoding="utf-8")
            assert Path(path).name in text and words in text, (words, test)


DEVICES = {  # backend: words of the block, variables, arguments of Python
    "jax": (
        "DeviceMesh",
        {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        [],
    ),
    "torch": ("init_process_group", {}, ["-m", "torch.distributed.run"]),
}
PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from tests import test_snippets
names = test_snippets.reader()
if test_snippets.keras.backend.backend() == "torch":
    import torch
    names["torch"] = torch
exec({block!r}, names)
assert names["trainer"].optimizer.iterations > 0
"""


@pytest.mark.long
@pytest.mark.only_on(*DEVICES, reason="its block is run by fine_tuning/test_pages.py")
def test_blocks_of_several_devices(tmp_path):
    words, variables, arguments = DEVICES[keras.backend.backend()]
    [block] = [
        each
        for each in blocks(page(ROOT / "kerasvit/training/DEVICES.md"))
        if words in each
    ]
    block = block.replace("batch_size=64", "batch_size=16")
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(root=str(ROOT), block=block))
    command = [sys.executable, *arguments]
    command += ["--nproc-per-node", "2"] if arguments else []
    done = subprocess.run(
        [*command, program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
