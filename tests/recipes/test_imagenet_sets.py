"""ImageNet and its relatives, prepared by tensorflow-datasets from files made here.

The files have the names, formats and folders of the published ones, and nine images.
"""

import json
import tarfile
import zipfile

import evaluate
import numpy as np
import pytest
import tensorflow_datasets
from command import command_line
from scoring.catalogue import IMAGENET_A, IMAGENET_R
from scoring.settings import Config
from tensorflow_datasets.core import constants

from recipes.benchmarks.input_pipeline import write_photographs
from tests.once import on_last_backend

from .test_evaluate import save, vit

pytestmark = [pytest.mark.slow, on_last_backend]

COUNT = 9
# Classes of the first images of the validation set.
FIRST = [65, 970, 230, 809, 516, 57, 334, 415, 674]


class Files:
    """The published files, and what a model predicts for their images."""

    def __init__(self, root, model):
        self.root = root
        (root / "photographs").mkdir(parents=True)
        self.images = write_photographs(root / "photographs", COUNT)
        transform = model.preprocessing
        batch = np.stack([transform(path) for path in self.images])
        self.logits = model.predict(batch, verbose=0)
        self.predicted = self.logits.argmax(1)
        self.ids = (
            tensorflow_datasets.builder("imagenet2012").info.features["label"].names
        )
        # Right, right as one of two, wrong, without label, and so on.
        others = (self.predicted + 1) % 1000
        lists = zip(self.predicted.tolist(), others.tolist())
        kinds = [lambda p, o: [p], lambda p, o: [o, p], lambda p, o: [o]]
        kinds.append(lambda p, o: [])
        self.real = [kinds[i % 4](p, o) for i, (p, o) in enumerate(lists)]

    def write_imagenet(self, folder):
        """The images as the tar of the validation set, and the labels of ReaL."""
        folder.mkdir(parents=True)
        with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as file:
            for i, path in enumerate(self.images):
                file.add(path, f"ILSVRC2012_val_{i + 1:08}.JPEG")
        (self.root / "real.json").write_text(json.dumps(self.real))

    def classes(self, allowed):
        """A class of `allowed` for each image: right if only these can be predicted.

        That of every third image is wrong.
        """
        best = [allowed[i] for i in self.logits[:, allowed].argmax(1)]
        step = [allowed[(allowed.index(c) + 1) % len(allowed)] for c in best]
        return [o if i % 3 == 2 else c for i, (c, o) in enumerate(zip(best, step))]

    def write_folders(self, name, classes, named=None):
        """The images in folders, one for each class."""
        for i, (path, label) in enumerate(zip(self.images, classes)):
            folder = self.root / name / (named or self.ids.__getitem__)(label)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{i}.jpg").write_bytes(path.read_bytes())

    def write_sketch(self, classes):
        with zipfile.ZipFile(self.root / "sketch.zip", "w") as file:
            for i, (path, label) in enumerate(zip(self.images, classes)):
                file.write(path, f"sketch/{self.ids[label]}/sketch_{i}.JPEG")


@pytest.fixture
def downloads(tmp_path, monkeypatch):
    """{part of an address: the file or folder that is downloaded from it}."""
    found = {}

    def download(self, address):
        [path] = [path for part, path in found.items() if part in address]
        return str(path)

    manager = tensorflow_datasets.download.DownloadManager
    monkeypatch.setattr(manager, "download", download)
    monkeypatch.setattr(manager, "download_and_extract", download)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(constants, "DATA_DIR", str(tmp_path / "data"))
    # No server has the prepared data sets.
    monkeypatch.setattr("command.names.check_reachable", lambda *names: None)
    monkeypatch.chdir(tmp_path)
    return found


def test_all_sets(downloads, tmp_path):
    model = vit(classes=1000)
    save(model, "model", "imagenet1k")
    files = Files(tmp_path / "files", model)
    files.write_imagenet(tmp_path / "data/downloads/manual")
    every, r, a = range(1000), list(IMAGENET_R), list(IMAGENET_A)
    v2 = files.classes(every)
    files.write_folders("v2/imagenetv2-matched-frequency-format-val", v2, str)
    files.write_folders("r/imagenet-r", files.classes(r))
    files.write_folders("a/imagenet-a", files.classes(a))
    files.write_sketch(v2)
    downloads |= {
        "real.json": files.root / "real.json",
        "matched-frequency": files.root / "v2",
        "imagenet-r.tar": files.root / "r",
        "imagenet-a.tar": files.root / "a",
        "drive.google.com": files.root / "sketch.zip",
    }
    names = ("imagenet", "real", "v2", "r", "a", "sketch")
    found = evaluate.evaluate(Config(("model",), on=names, batch_size=4))
    found = dict(zip(names, found, strict=True))
    check_all(found, files, {"v2": v2, "sketch": v2})
    for name, allowed in (("r", r), ("a", a)):
        classes = np.array(files.classes(allowed))
        all_classes, restricted = found[name].parts.values()
        assert (all_classes.classes, restricted.classes) == (1000, 200)
        assert restricted.scores["top1"].value == 6 / 9
        expected = (files.predicted == classes).mean()
        assert all_classes.scores["top1"].value == expected

    save(vit(classes=10), "digits", [str(i) for i in range(10)])
    with pytest.raises(command_line.BadInput, match="digits has none of the classes"):
        evaluate.evaluate(Config(("digits",), on=("imagenet",)))


def check_all(found, files, classes):
    """Compares the scores of all classes with those of the predictions."""
    top1 = {k: v.parts["all"].scores["top1"].value for k, v in found.items()}
    assert top1["imagenet"] == (files.predicted == FIRST).mean()
    assert found["imagenet"].images == COUNT
    with_label = [(p, x) for p, x in zip(files.predicted, files.real) if x]
    assert top1["real"] == np.mean([p in x for p, x in with_label])
    assert 0 < top1["real"] < 1
    assert (found["real"].images, found["real"].left_out) == (7, 2)
    for name, expected in classes.items():
        assert top1[name] == (files.predicted == expected).mean() == 6 / 9
        assert "restricted" not in found[name].parts


def test_a_damaged_tar(downloads, tmp_path):
    save(vit(classes=1000), "model", "imagenet1k")
    manual = tmp_path / "data/downloads/manual"
    manual.mkdir(parents=True)
    (manual / "ILSVRC2012_img_val.tar").write_bytes(b"no tar")
    with pytest.raises(
        command_line.BadInput, match="imagenet2012 could not be.*prepar"
    ):
        evaluate.evaluate(Config(("model",), on=("imagenet",)))
