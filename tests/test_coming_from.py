"""The calls in `.github/site/coming_from.md` work."""

import functools
import os
import re
import shutil
import subprocess
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


@pytest.fixture
def files_of_the_other(files):
    """The same without the folder, which the other library writes itself."""
    shutil.rmtree("folder")


@pytest.fixture
def of_timm(timm, hub):
    """The names in the calls of timm, with a smaller model of the same family."""
    import timm.optim
    import torch
    from safetensors.torch import save, save_file

    weights = timm.create_model("vit_tiny_patch16_224").state_dict()
    save_file(weights, "model.safetensors")
    name = "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    hub.add(name, {"model.safetensors": save(weights)})
    model = timm.create_model("vit_tiny_patch16_224", num_classes=5)
    x = torch.zeros(1, 3, 224, 224)
    return {"timm": timm, "Image": Image, "model": model, "x": x}


@pytest.fixture
def of_keras_hub():
    """With the model of a golden folder."""
    keras_hub = pytest.importorskip("keras_hub")
    path = str(GOLDEN / "keras_hub_vit")
    model = keras_hub.models.ImageClassifier.from_preset(path)
    images = np.full((2, 20, 20, 3), 99, "uint8")
    space = {"keras_hub": keras_hub, "model": model, "images": images}
    return space | {"x": np.zeros((2, 16, 24, 3)), "y": np.array([0, 1])}


@pytest.fixture
def of_big_vision(monkeypatch):
    """With models of the size of the golden file."""
    vit = pytest.importorskip("big_vision.models.vit")
    import big_vision.utils
    import jax

    size = {"patch_size": (4, 4), "width": 16, "depth": 2, "mlp_dim": 24}
    monkeypatch.setattr(vit, "decode_variant", lambda name: {**size, "num_heads": 2})
    model = vit.Model(5, variant="B/16", pool_type="tok", dropout=0.1)
    x = np.zeros((1, 16, 16, 3))
    params = model.init(jax.random.key(0), x)["params"]
    larger = vit.Model(6, variant="B/16", pool_type="tok")
    larger = larger.init(jax.random.key(0), np.zeros((1, 32, 32, 3)))["params"]
    space = {"big_vision": big_vision, "jax": jax, "np": np, "vit": vit, "x": x}
    return space | {"model": model, "params": params, "larger": larger}


@pytest.fixture
def of_pytorch_optimizer():
    """With a small network that has a batch normalisation."""
    pytorch_optimizer = pytest.importorskip("pytorch_optimizer")
    import torch
    from torch.nn import BatchNorm1d, Linear, Sequential

    model = Sequential(Linear(3, 4), BatchNorm1d(4), Linear(4, 2))
    base = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(base, 10)
    x, y = torch.ones(4, 3), torch.tensor([0, 1, 0, 1])

    def closure():
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(space["x"]), space["y"]).backward()

    space = vars(pytorch_optimizer) | {"torch": torch, "model": model, "base": base}
    space |= {"schedule": schedule, "closure": closure, "x": x, "y": y}
    return space | {"batches": [(x, y), (2 * x, y)]}


@pytest.mark.parametrize(
    "title", ["timm", "keras-hub", "big_vision", "pytorch_optimizer"]
)
def test_calls_of_the_other_library(title, files_of_the_other, request):
    space = request.getfixturevalue("of_" + title.replace("-", "_"))
    for call, _ in TABLES[title]:
        if title == "timm":
            call = call.replace("vit_base", "vit_tiny")
        run(call, space)


TFVIT = """
import numpy as np, tensorflow as tf, tf_keras
from PIL import Image
from transformers import TFViTForImageClassification, ViTImageProcessor
model = TFViTForImageClassification.from_pretrained("google/vit-base-patch16-224")
model.compile("sgd", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, larger = np.zeros((2, 3, 16, 16), "float32"), np.zeros((2, 3, 32, 32), "float32")
y = np.array([0, 1])
ViTImageProcessor().save_pretrained("folder")
"""


def test_calls_of_tfvit(files_of_the_other, hub):
    """In an environment of its own: kerasvit needs a later huggingface_hub."""
    if "TFVIT_PYTHON" not in os.environ:
        pytest.skip("TFVIT_PYTHON names no interpreter: see README.md in tests")
    calls = [call for call, _ in TABLES["transformers' TFViT"]]
    command = [os.environ["TFVIT_PYTHON"], "-c", TFVIT + "\n".join(calls)]
    environment = os.environ | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": "home"}
    environment["PYTHONPATH"] = ""
    subprocess.run(command, env=environment, check=True)
