"""VTAB-1k in `evaluate.py`: tasks, labels, splits, transfer and means."""

import types
from pathlib import Path

import evaluate
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from command import command_line, names
from scoring import results, tables
from scoring.settings import Config
from scoring.vtab import catalogue, images, transfer
from training import defaults

import kerasvit
from kerasvit import evaluation
from kerasvit.evaluation import Estimate
from tests.once import long_elsewhere, on_last_backend

pytestmark = pytest.mark.slow

SIZES = {"patch_size": 8, "width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8}
# Of *_test.py in task_adaptation/data: {data set: {split: images}}.
COUNTS = {
    "caltech101": {"train": 3060, "test": 6084},
    "cifar100": {"train": 50_000, "test": 10_000},
    "dtd": {"train": 1880, "validation": 1880, "test": 1880},
    "oxford_flowers102": {"train": 1020, "validation": 1020, "test": 6149},
    "oxford_iiit_pet": {"train": 3680, "test": 3669},
    "sun397/tfds": {"train": 76_128, "validation": 10_875, "test": 21_750},
    "svhn_cropped": {"train": 73_257, "test": 26_032},
    "eurosat/rgb": {"train": 27_000},
    "resisc45": {"train": 31_500},
    "patch_camelyon": {"train": 262_144, "validation": 32_768, "test": 32_768},
    "diabetic_retinopathy_detection/btgraham-300": {
        "train": 35_126,
        "validation": 10_906,
        "test": 42_670,
    },
    "clevr": {"train": 70_000, "validation": 15_000},
    "dmlab": {"train": 65_550, "validation": 22_628, "test": 22_735},
    "kitti": {"train": 6347, "validation": 423, "test": 711},
    "dsprites": {"train": 737_280},
    "smallnorb": {"train": 24_300, "test": 24_300},
}
# Splits that are shares of "train": of 100 images, the first of validation and of test.
SHARES = {
    **dict.fromkeys(("caltech101", "cifar100", "svhn", "clevr_count"), (90, None)),
    "oxford_iiit_pet": (80, None),
    **dict.fromkeys(("eurosat", "resisc45"), (60, 80)),
    "dsprites_location": (80, 90),
}


def vit(path):
    keras.utils.set_random_seed(0)
    model = kerasvit.VisionTransformer(num_classes=3, image_size=16, **SIZES)
    random = np.random.default_rng(0)
    model.set_weights([random.normal(size=w.shape, scale=0.3) for w in model.weights])
    kerasvit.save_pretrained(model, path, label_names=["a", "b", "c"])
    return model


@on_last_backend
def test_the_groups_are_those_of_the_paper():
    counts = {name: len(tasks) for name, tasks in catalogue.GROUPS.items()}
    groups = {"vtab/natural": 7, "vtab/specialized": 4, "vtab/structured": 8}
    assert counts == groups
    assert sum(map(len, catalogue.GROUPS.values())) == len(catalogue.TASKS) == 19
    mean = np.mean([task.supervised for task in catalogue.TASKS.values()])
    assert mean == pytest.approx(66.4, abs=0.1)  # Sup-100% of the leaderboard


@on_last_backend
@pytest.mark.parametrize("name", catalogue.TASKS)
def test_splits_are_those_of_the_paper(name):
    task = catalogue.TASKS[name]
    counts = COUNTS[task.source.tfds]

    def images_of(split):
        [found] = tfds.core.ReadInstruction.from_spec(split).to_absolute(
            {
                name: tfds.core.SplitInfo(name, [count], 0)
                for name, count in counts.items()
            }
        )
        part = range(counts[found.splitname])[found.from_ : found.to]
        return {(found.splitname, i) for i in part}

    splits = catalogue.FIRST, task.source.validation, task.source.test
    train, validation, test = map(images_of, splits)
    assert (len(train), len(validation)) == (800, 200)
    assert len(test) == task.source.images
    assert not train & validation and not test & (train | validation)
    assert train == {("train", i) for i in range(800)}
    start, end = SHARES.get(task.name, (None, None))
    if start:
        assert min(validation) == ("train", counts["train"] * start // 100)
    if end:
        assert min(test) == ("train", counts["train"] * end // 100)


@on_last_backend
@pytest.mark.parametrize("name", [x for x in catalogue.TASKS if x != "vtab/kitti"])
def test_images_and_labels_of_tensorflow_datasets(name):
    task = catalogue.TASKS[name]
    with tfds.testing.mock_data(num_examples=2):
        found = images.find(task)
        [(pixels, _)] = found.test.once().take(1).as_numpy_iterator()
        labels = found.train.labels
    assert pixels.dtype == "uint8" and pixels.shape[-1] in (1, 3)
    assert len(found.label_names) == task.classes
    if name == "vtab/clevr_count":  # mock_data has scenes of more than ten objects
        assert labels.min() >= 0
    else:
        assert 0 <= labels.min() <= labels.max() < task.classes
    name, _, version = found.version.rpartition("/")
    assert name == task.source.tfds
    if name != "oxford_iiit_pet":
        assert version.split(".")[0] == task.source.published.split(".")[0]


def label(name, **example):
    return int(images.LABELS[name][1](example))


@on_last_backend
def test_labels_of_clevr():
    for count in range(3, 11):
        objects = {"size": tf.zeros(count, tf.int64)}
        assert label("count", objects=objects) == count - 3

    def distance(*values):
        coordinates = tf.constant([[9.0, 9.0, value] for value in values])
        return label("distance", objects={"pixel_coords": coordinates})

    assert [distance(20.0, x) for x in (0.1, 8.0, 8.1, 8.6, 9.1)] == [0, 0, 1, 2, 3]
    assert [distance(x, 20.0) for x in (9.6, 10.0, 10.1, 30.0)] == [4, 4, 5, 5]


@on_last_backend
def test_labels_of_dsprites():
    def labels(name, feature, count):
        return [label(name, **{feature: tf.constant(i)}) for i in range(count)]

    found = labels("location", "label_x_position", 32)
    assert found == [i // 2 for i in range(32)]
    found = labels("orientation", "label_orientation", 40)
    assert found == [int(i // 2.5) for i in range(40)]


@pytest.fixture
def kitti(tmp_path, monkeypatch):
    """Prepares a small KITTI; the test images have the given types and distances."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))

    def example(i, objects):
        zeros = dict.fromkeys(("truncated", "alpha", "rotation_y"), 0.0)
        return {
            "image": np.full((4, 6, 3), i % 256, "uint8"),
            "image/file_name": f"{i}.png",
            "objects": [
                {
                    **zeros,
                    "type": kind,
                    "occluded": 0,
                    "bbox": tfds.features.BBox(0.0, 0.0, 1.0, 1.0),
                    "dimensions": np.zeros(3, "float32"),
                    "location": np.float32([0, 0, distance]),
                }
                for kind, distance in objects
            ],
        }

    def write(test, train=800):
        near = [("Car", 5.0)], [("Van", 15.0)]
        known = {
            "train": [(i, example(i, near[i % 2])) for i in range(train)],
            "validation": [(i, example(i, near[i % 2])) for i in range(200)],
            "test": [(i, example(i, each)) for i, each in enumerate(test)],
        }
        code = tfds.builder("kitti", data_dir=tmp_path)
        tfds.dataset_builders.store_as_tfds_dataset(
            *("kitti", code.version, code.info.features, known),
            data_dir=tmp_path,
            disable_shuffling=True,
        )

    return write


@on_last_backend
def test_labels_of_kitti(kitti):
    kitti(
        [
            [("Car", 8.0), ("Truck", 30.0)],
            [("Truck", 8.1), ("Pedestrian", 3.0)],
            [("Van", 20.1), ("Van", 21.0)],
            [("Cyclist", 3.0), ("Tram", 2.0)],
            [],
        ]
    )
    found = images.find(catalogue.TASKS["vtab/kitti"])
    assert found.test.labels.tolist() == [0, 1, 2, 3, 3]
    assert found.learned.labels.tolist() == [0, 1] * 500


@on_last_backend
def test_too_few_images(kitti):
    kitti([[("Car", 8.0)]], train=799)
    with pytest.raises(
        ValueError, match=r"needs train\[:800\] of kitti/3.*'train': 799"
    ):
        images.find(catalogue.TASKS["vtab/kitti"])


@on_last_backend
def test_pixels_of_dsprites_are_made_visible():
    encoded = tf.io.encode_png(tf.constant([[[0], [1]]], tf.uint8))
    decoded = images.visible(tf.io.decode_png)(encoded)
    assert decoded.numpy().tolist() == [[[0], [255]]]


def result(name, model, hits):
    hits = np.array(hits)
    scores = {"top1": Estimate(hits.mean(), 0.0, 1.0)}
    return results.Result(
        *(model, name, "linear probe", "", len(hits), 0, []),
        parts={"linear probe": results.Part(10, scores)},
        seconds=1.0,
        settings={"labels": ""},
        versions={},
        right={"linear probe": hits},
    )


@on_last_backend
def test_means_of_the_groups():
    rows = tables.vtab_grid(
        [
            result("vtab/dtd", "a", [1, 0, 0, 0]),
            result("vtab/svhn", "a", [1, 1, 1, 0]),
            result("vtab/kitti", "a", [1, 1, 1, 1]),
            result("digits", "a", [1, 1, 1, 1]),
            result("vtab/dtd", "b", [1, 1, 0, 0]),
            result("vtab/svhn", "b", [1, 1, 1, 1]),
            result("vtab/kitti", "b", [1, 1, 0, 0]),
        ]
    )
    by_name = {row[0]: row[1:] for row in rows[1:]}
    assert [*by_name] == [
        *("dtd", "svhn", "kitti"),
        "mean of vtab/natural, 2 of 7 tasks",
        "mean of vtab/structured, 1 of 8 tasks",
        "mean of vtab, 3 of 19 tasks",
    ]
    assert by_name["dtd"][0].startswith("25.00") and "+25.00" in by_name["dtd"][2]
    natural, structured, every = [*by_name.values()][3:]
    assert natural == ["50.00", "75.00", "+25.00"]
    assert structured == ["100.00", "50.00", "-50.00"]
    assert every == ["66.67", "66.67", "+0.00"]


@on_last_backend
def test_a_mean_names_the_tasks_that_are_missing():
    names = [name for name in catalogue.TASKS if name != "vtab/resisc45"]
    rows = tables.vtab_grid([result(name, "a", [1, 0]) for name in names])
    assert rows[-1] == ["mean of vtab, 18 of 19 tasks, without resisc45", "50.00"]


@long_elsewhere
def test_a_linear_probe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "check", lambda tasks: None)
    probes = []

    def probe(*given):
        probes.append((given, evaluation.linear_probe(*given)))
        return probes[-1][1]

    probed = types.SimpleNamespace(**{**vars(evaluation), "linear_probe": probe})
    monkeypatch.setattr(transfer.frozen, "evaluation", probed)
    model = vit("model")
    config = Config(("model",), on=("vtab/eurosat",), images=30)
    with tfds.testing.mock_data(num_examples=40):
        [found] = evaluate.evaluate(config)
        opened = images.find(catalogue.TASKS["vtab/eurosat"])
        pixels, labels = zip(*opened.test.once().as_numpy_iterator())
    transform = kerasvit.Preprocessing(
        16, crop=1.0, mode="squash", kernel="bilinear", antialias=False
    )
    features = keras.Model(model.input, model.get_layer("head").input)
    x = features.predict(np.stack([*map(transform, pixels)]), verbose=0)
    [((train, y, held, y_held, classes), (kernel, bias))] = probes
    for each in (train, held):  # all splits of `mock_data` have the same images
        np.testing.assert_allclose(each, x, atol=1e-4)
    assert list(y) == list(y_held) == [*labels] and classes == 10
    chosen = np.sort(np.random.default_rng(0).permutation(40)[:30])
    expected = (x @ kernel + bias).argmax(1)[chosen] == np.array(labels)[chosen]
    assert found.right["linear probe"].tolist() == expected.tolist()
    assert (found.images, found.parts["linear probe"].classes) == (30, 10)
    assert "mean of vtab, 1 of 19 tasks" in (tmp_path / "scores/scores.txt").read_text()


@pytest.mark.long
def test_fine_tuning_by_hyperrule(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "check", lambda tasks: None)
    schedule = defaults.Schedule(20, 4, (8, 12, 16), 0.0)
    monkeypatch.setitem(defaults.SCHEDULES, 20_000, schedule)
    vit("model")
    config = Config(
        ("model",), on=("vtab/eurosat",), vtab="hyperrule", image_size=(16,)
    )
    with tfds.testing.mock_data(num_examples=60):
        [found] = evaluate.evaluate(config)
        monkeypatch.setattr(evaluate.Predictor, "__call__", None)
        [again] = evaluate.evaluate(config)
    assert again.to_json() == found.to_json()
    [folder] = Path("scores/model").glob("vtab_eurosat_HyperRule_*")
    tuned = kerasvit.from_pretrained(folder / "model")
    assert tuned.output_shape == (None, 10)
    trained = results.json.loads((folder / "result.json").read_text())
    # The 60 test images are those whose accuracy the training shows.
    kept = trained
    assert found.parts["HyperRule"].scores["top1"].value == pytest.approx(
        kept["accuracy"]
    )
    assert trained["images"] == {"train": 120, "validation": 60, "test": 60}


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A folder without data sets, where no server answers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(names, "any_answers", lambda servers: False)
    monkeypatch.setattr(names.urllib.request, "getproxies", dict)
    return tmp_path / "data"


@on_last_backend
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on": ("vtab/cifar",)}, "there is no 'vtab/cifar'. Close: vtab/cifar100"),
        ({"on": ("vtab/nature",)}, "Close: vtab/natural"),
        ({"on": ("vtb",)}, "Close: vtab"),
        ({"on": ("vtab/resisc45",)}, "1 of 1 tasks.*by hand: unpack NWPU-RESISC45.rar"),
        ({"on": ("vtab/kitti",)}, "no server that has kitti answers: s3.eu-cent"),
        ({"on": ("vtab",)}, "19 of 19 tasks of VTAB cannot be prepared:"),
        ({"on": ("digits",), "vtab": "hyperrule"}, "`vtab`: give --on vtab"),
        ({"on": ("vtab",), "frozen": ("knn",)}, "`frozen`: give a set that is not"),
        ({"on": ("digits",), "layer": "-1"}, "`layer` is for features"),
    ],
)
def test_wrong_input(settings, message, empty):
    config = Config((str(empty.parent),), **settings)
    with pytest.raises(command_line.BadInput, match=f"(?s){message}"):
        evaluate.evaluate(config)


@on_last_backend
def test_tasks_that_can_be_prepared_are_named(empty):
    for name in ("dtd/3.0.1", "smallnorb/2.0.0"):
        (empty / name).mkdir(parents=True)
        (empty / name / "dataset_info.json").touch()
    config = Config((str(empty.parent),), on=("vtab",))
    others = "vtab/dtd vtab/smallnorb_azimuth vtab/smallnorb_elevation"
    with pytest.raises(command_line.BadInput, match=f"(?s)16 of 19.*--on {others}$"):
        evaluate.evaluate(config)
    assert catalogue.tasks(["vtab/natural", "digits"]) == [
        task for task in catalogue.TASKS.values() if task.group == "natural"
    ]
    assert len(catalogue.tasks(["vtab/kitti", "vtab/structured"])) == 8


@on_last_backend
def test_a_package_that_is_missing(empty, monkeypatch):
    monkeypatch.setattr(catalogue.importlib.util, "find_spec", lambda name: None)
    tasks = [catalogue.TASKS["vtab/kitti"]]
    with pytest.raises(ValueError, match="pip install opencv-python-headless"):
        catalogue.check(tasks)


@on_last_backend
def test_other_models_are_not_fine_tuned():
    other = types.SimpleNamespace(model=keras.Sequential(), name="x")
    with pytest.raises(ValueError, match="x.keras is another model. Give --vtab probe"):
        transfer.learner(other, "x.keras", Config(("x.keras",)))


def test_the_page_is_current():
    """Its words about what is predicted are its own."""
    page = (Path(catalogue.__file__).parents[1] / "VTAB.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| `--on ")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    listed = [catalogue.TASKS[x] for names in catalogue.GROUPS.values() for x in names]
    for row, task in zip(rows, listed, strict=True):
        source = task.source
        assert row[:4] + row[5:] == [
            f"`--on {task.set}`",
            source.tfds,
            f"`{source.published}`",
            f"`{source.validation}`, `{source.test}`",
            str(task.classes),
            f"{source.images:,}",
            source.download,
            str(task.supervised),
        ]
