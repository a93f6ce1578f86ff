"""`reproduce.py --full` on archives of ImageNet's form, with a few images."""

import dataclasses
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pretrain
import pytest
import reproduce
import tensorflow_datasets
from experiments import trainings
from PIL import Image
from tensorflow_datasets.core import constants

from tests.once import on_last_backend

pytestmark = [pytest.mark.long, on_last_backend]


def jpeg(seed):
    """The bytes of a picture, as a file."""
    pixels = np.random.default_rng(seed).integers(256, size=(48, 64, 3), dtype="uint8")
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg")
    return file.getvalue()


def add(archive, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    """Both archives: 60 classes of two training images, 20 validation images."""
    manual = tmp_path / "data/downloads/manual"
    manual.mkdir(parents=True)
    builder = tensorflow_datasets.builder("imagenet2012", data_dir=tmp_path / "data")
    names = builder.info.features["label"].names
    with tarfile.open(manual / "ILSVRC2012_img_train.tar", "w") as train:
        for label, name in enumerate(names[:60]):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as archive:
                for i in range(2):
                    add(archive, f"{name}_{i}.JPEG", jpeg([label, i]))
            add(train, f"{name}.tar", inner.getvalue())
    with tarfile.open(manual / "ILSVRC2012_img_val.tar", "w") as archive:
        for i in range(20):
            add(archive, f"ILSVRC2012_val_{i + 1:08}.JPEG", jpeg([60, i]))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(constants, "DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("command.names.check_reachable", lambda *names: None)
    monkeypatch.chdir(tmp_path)


def test_full_trains_on_imagenets_archives(imagenet, monkeypatch, capsys):
    """The model and the presets of the paper, but for the size of the batch."""
    presets = {
        key: dataclasses.replace(pretrain.PRESETS[key], batch_size=4)
        for key in ("vit", "vit_sam")
    }
    monkeypatch.setattr(trainings, "PRESETS", presets)
    name = "chen2021-figure3"
    command = [name, "--full", "--steps", "2", "--seeds", "1"]
    assert reproduce.reproduce(reproduce.parse(command)) is None
    announced = capsys.readouterr().out
    assert "ViT-SAM: 1 × 2 steps of 4 images" in announced
    assert "Give --yes to begin" in announced
    found = reproduce.reproduce(reproduce.parse([*command, "--yes"]))
    assert found["results"].keys() == {"ViT", "ViT-SAM"}
    page = Path("runs/experiments/results", f"{name}-full.md").read_text()
    assert "--full" in page and "ViTS16, on imagenet2012, 2 steps of 4" in page
    folders = Path("runs/experiments/trainings").iterdir()
    configs = [json.loads((each / "config.json").read_text()) for each in folders]
    assert sorted(each["rho"] for each in configs) == [0, pretrain.RADII["ViTS16"]]
