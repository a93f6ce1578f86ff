"""The calls in `.github/site/coming_from.md` work."""

import functools
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

import kerasvit
from tests.hub.conftest import hub as hub
from tests.random_weights import randomised

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[1] / ".github/site/coming_from.md"
GOLDEN = Path(__file__).parent / "golden/models"
ROW = r"^\| [^`|]+ \| `([^`|]+)` \| `([^`|]+)` \|$"
Tiny = functools.partial(
    kerasvit.Variant,
    "ViTB16",
    kerasvit.VisionTransformer,
    patch_size=4,
    width=16,
    num_heads=2,
    mlp_dim=24,
    image_size=16,
)
REPOSITORIES = {  # files of each library
    "keras/vit_base_patch16_224_imagenet": "keras_hub_vit",
    "google/vit-base-patch16-224": "hf_tf_vit",
}


def tables():
    """{title: [(call of the other library, call of kerasvit)]}."""
    sections = re.split(r"^## (.*)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    titles, texts = sections[::2], sections[1::2]
    return {
        title: re.findall(ROW, text, re.MULTILINE)
        for title, text in zip(titles, texts, strict=True)
    }


TABLES = tables()


def run(call, space):
    """Executes a line, or returns the value of an expression."""
    try:
        code = compile(call, call, "eval")
    except SyntaxError:
        return exec(call, space)
    return eval(code, space)


def test_each_row_has_two_calls():
    text = PAGE.read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    heads = [line for line in rows if line.startswith("| what |")]
    assert len(TABLES) == len(heads) == 5
    assert sum(map(len, TABLES.values())) == len(rows) - len(heads)
    assert all(6 <= len(rows) <= 12 for rows in TABLES.values())


@pytest.fixture
def files(hub, tmp_path, monkeypatch):
    """A folder with the files that the page names, and a Hub with its repositories."""
    monkeypatch.setenv("HF_TOKEN", "good")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kerasvit, "ViTB16", Tiny(depth=2))
    Image.fromarray(np.full((40, 30, 3), 99, "uint8")).save("cat.jpg")
    kerasvit.save_pretrained(randomised(kerasvit.ViTB16(num_classes=3)), "folder")
    shutil.copy("folder/model.safetensors", "model.safetensors")
    shutil.copy(GOLDEN / "bigvision_tok/checkpoint.npz", "B_16.npz")
    sources = {name: GOLDEN / case for name, case in REPOSITORIES.items()}
    sources["timm/vit_base_patch16_224.augreg_in21k_ft_in1k"] = Path("folder")
    for name, source in sources.items():
        hub.add(name, {file.name: file.read_bytes() for file in source.iterdir()})


@pytest.mark.parametrize("title", TABLES)
def test_calls_of_kerasvit(title, files):
    model = randomised(Tiny(depth=6)(num_classes=5))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-3), loss)
    x = np.random.default_rng(0).normal(size=(10, 16, 16, 3)).astype("float32")
    space = {"kerasvit": kerasvit, "keras": keras, "np": np, "loss": loss}
    space |= {"model": model, "x": x, "y": np.arange(10) % 5}
    space["images"] = list(np.full((2, 20, 20, 3), 99, "uint8"))
    for _, call in TABLES[title]:
        run(call, space)


def test_calls_of_timm(timm, hub, tmp_path, monkeypatch):
    """With a smaller model of the same family, and no download."""
    import timm.optim
    import torch
    from safetensors.torch import save_file

    monkeypatch.setenv("HF_TOKEN", "good")
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.full((40, 30, 3), 99, "uint8")).save("cat.jpg")
    make = functools.partial(timm.create_model, "vit_tiny_patch16_224")
    save_file(make().state_dict(), "model.safetensors")
    for call, _ in TABLES["timm"]:
        call = call.replace("vit_base", "vit_tiny")
        if "local-dir" not in call:
            call = call.replace("pretrained=True", "pretrained=False")
        x = torch.zeros(1, 3, 224, 224)
        run(call, {"timm": timm, "Image": Image, "model": make(num_classes=5), "x": x})
