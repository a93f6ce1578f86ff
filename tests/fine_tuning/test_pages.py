"""The code of the pages and docstrings trains trained weights, and learns.

Each text is taken from its page, and run with the weights and images of
`tests/trained_vit.py`. Only the names of what a user has are replaced: `RENAMED` lists
them, and a list in a test its own.
"""

import inspect
import re
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

import kerasvit
from tests.once import long_elsewhere, on_last_backend, rest_long
from tests.trained_vit import FOLDER, SIZE, TrainedViT, digits

pytestmark = long_elsewhere
ROOT = Path(__file__).parents[2]
GAIN = 0.03  # of accuracy on 1,000 images above the linear classifier
FRESH = 0.4  # accuracy of fresh weights after ten epochs; chance is 0.1

RENAMED = {  # in the first snippet of README.md
    '"pets"': "folder",
    "kerasvit.ViTB16(": "TrainedViT(",
    '"sam", num_classes': "weights, num_classes",
    "image_size=384": f"image_size={SIZE}",
    '"photo"': '"shift"',  # digits have no mirror images
    'push_to_hub(model, "me/pets-vit"': 'save_pretrained(model, "vit"',
}


@pytest.fixture(scope="module")
def data():
    return digits()


def trained(classes=10):
    return TrainedViT(FOLDER, num_classes=classes, include_preprocessing=True)


@pytest.fixture(scope="module")
def linear(data):
    """Accuracy of a linear classifier of the frozen features on 1,000 images."""
    return kerasvit.fit_head(trained(), *data).validation


def accuracy(model, data):
    _, (x, y) = data
    return float(np.mean(model.predict(x, verbose=0).argmax(-1) == y))


def as_read(data):
    """Images of class folders without those of `photos`, cropped as they are read."""
    x, y = data[1][0][100:].astype("uint8"), data[1][1][100:]
    transform = trained().preprocessing
    return None, (np.stack([transform(i, normalize=False) for i in x]), y)


def block(page, words):
    """The only block of Python of a page with these words."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    [found] = [each for each in blocks if words in each]
    return found


def example(thing, words):
    """The only indented block of a docstring with these words."""
    paragraphs = inspect.getdoc(thing).split("\n\n")
    [found] = [each for each in paragraphs if each.startswith("    ") and words in each]
    return textwrap.dedent(found)


def run(text, data, **names):
    """Runs a text with the training images as `x` and `y`; returns its names."""
    (x, y), _ = data
    names = {"keras": keras, "kerasvit": kerasvit, "x": x, "y": y, **names}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    names |= {"images": x, "labels": y, "loss": loss}
    exec(text, names)
    return names


@pytest.fixture(scope="module")
def photos(data, tmp_path_factory):
    """A folder of class folders, with 400 images for training and 100 others."""
    folder = tmp_path_factory.mktemp("photos")
    (x, y), (others, labels) = data
    x, y = np.concatenate([x, others[:100]]), np.concatenate([y, labels[:100]])
    for i, (image, label) in enumerate(zip(x.astype("uint8"), y, strict=True)):
        part = folder / ("train" if i < 400 else "validation") / f"digit {label}"
        part.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(part / f"{i}.png")
    return str(folder)


def readme(*changes):
    text = block("README.md", "push_to_hub")
    for old, new in [*RENAMED.items(), *changes]:
        assert old in text, old
        text = text.replace(old, new)
    return text


def test_the_readmes_first_lines_learn(data, photos, linear, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"folder": photos, "weights": FOLDER, "TrainedViT": TrainedViT}
    model = run(readme(), data, **names)["model"]
    others = as_read(data)
    assert accuracy(model, others) > linear + GAIN
    saved = kerasvit.from_pretrained("vit")
    assert saved.record["label_names"][3] == "digit 3"
    assert accuracy(saved, others) == pytest.approx(accuracy(model, others))


def test_sam_in_the_place_of_the_model_learns(
    data, photos, linear, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    names = {"folder": photos, "weights": FOLDER, "TrainedViT": TrainedViT}
    sam = block("README.md", "instead of `model`")
    text = readme(
        ("model.compile(", sam + "trainer.compile("), ("model.fit(", "trainer.fit(")
    )
    model = run(text, data, **names)["model"]
    others = as_read(data)
    assert accuracy(model, others) > linear + GAIN


FINE_TUNING = {
    "the package": lambda: (
        example(kerasvit, "fit_head").replace("...", "loss").split("\n", 1)[1]
    ),
    "fit_head": lambda: example(kerasvit.fit_head, "Adam("),
    "add_lora": lambda: example(kerasvit.add_lora, "rank=8"),
    "layer_decay": lambda: block("kerasvit/training/LAYER_DECAY.md", "layer_decay"),
}


@pytest.mark.parametrize("name", rest_long(FINE_TUNING, 2))
def test_fine_tuning_exceeds_the_linear_classifier(name, data, linear):
    text, model = FINE_TUNING[name](), trained()
    epochs = re.search(r"epochs=(\d+)", text)
    assert int(epochs[1]) <= 4
    run(text, data, model=model)
    assert accuracy(model, data) > linear + GAIN


@pytest.mark.long
def test_suggested_settings_exceed_the_linear_classifier(data, linear):
    import tensorflow as tf

    batches = tf.data.Dataset.from_tensor_slices(data[0]).shuffle(400, 0).batch(32)
    text, model = example(kerasvit.suggest_training, "settings ="), trained()
    names = run(text, data, model=model, batches=batches)
    assert names["settings"].reasons["batch_size"] == "given"
    assert accuracy(model, data) > linear + GAIN


@on_last_backend
@pytest.mark.long
def test_the_suggested_rho_exceeds_the_linear_classifier(data, linear):
    model = trained()
    kerasvit.fit_head(model, data[0])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-5), loss)
    search = {"rhos": (0.002, 0.05), "steps": 26, "runs": 2}
    advice = kerasvit.suggest_rho(model, data[0], **search)
    assert advice.rho in (0, 0.002)
    trainer = kerasvit.SAM(model, advice.rho)
    trainer.compile(keras.optimizers.Adam(1e-5), loss)
    trainer.fit(*data[0], epochs=4, verbose=0)
    assert accuracy(model, data) > linear + GAIN


FROM_SCRATCH = {
    "SAM": lambda: example(kerasvit.SAM, "trainer.fit"),
    "the page of SAM": lambda: block("kerasvit/training/README.md", "holds the"),
    "GSAM with a teacher": lambda: block("kerasvit/training/README.md", "GSAM("),
    "DistillationTrainer": lambda: example(kerasvit.DistillationTrainer, ".fit(x, y"),
}


@pytest.mark.parametrize("name", rest_long(FROM_SCRATCH))
def test_fresh_weights_learn(name, data):
    teacher = trained()
    kerasvit.fit_head(teacher, data[0])
    model = TrainedViT(include_preprocessing=True)
    run(FROM_SCRATCH[name](), data, model=model, teacher=teacher)
    assert accuracy(model, data) > FRESH


@on_last_backend
def test_a_calibrated_model_answers_sets(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, (validation, labels) = trained(), data[1]
    names = {"validation": validation, "validation_labels": labels}
    names |= {"photo": validation[0].astype("uint8"), "model": model}
    found = run(block("kerasvit/CALIBRATION.md", "calibrate"), data, **names)
    assert 0 <= found["unusual"] <= 1 and 1 <= len(found["labels_of"]) <= 10
    assert found["best"][0][0] == found["labels_of"][0][0]
    sets = kerasvit.classify(kerasvit.from_pretrained("pets"), validation, coverage=0.9)
    right = [f"class {i}" in dict(each) for i, each in zip(labels, sets, strict=True)]
    assert np.mean(right) > 0.85


@pytest.mark.long
def test_averages_of_models(data, linear):
    start = trained()
    kerasvit.fit_head(start, data[0])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    models = []
    for seed in (0, 1):
        keras.utils.set_random_seed(seed)
        models.append(keras.models.clone_model(start))
        models[-1].set_weights(start.get_weights())
        models[-1].compile(keras.optimizers.Adam(1e-5), loss)
        models[-1].fit(*data[0], epochs=2, verbose=0)
    names = {"validation": data[1][0], "validation_labels": data[1][1]}
    names |= {"first": models[0], "second": models[1], "start": start}
    found = run(block("kerasvit/CALIBRATION.md", "soup ="), data, **names)
    best = max(accuracy(each, data) for each in models)
    assert accuracy(found["soup"], data) >= best
    assert max(found["curve"].scores) >= found["curve"].scores[-1] > linear


@on_last_backend
def test_a_table_of_several_labels(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["path,label"]
    for i, (image, label) in enumerate(zip(*data[0], strict=True)):
        Image.fromarray(image.astype("uint8")).save(f"{i}.png")
        names = [f"digit {label}", *(["even"] if label % 2 == 0 else [])]
        lines.append(f"{i}.png,{'|'.join(names)}")
    Path("labels.csv").write_text("\n".join(lines))
    text = block("recipes/LABELS.md", "from_table")
    text = text.replace("kerasvit.ViTS16(", "TrainedViT(")
    text = text.replace('"augreg_in21k_ft_in1k"', "weights")
    names = {"TrainedViT": TrainedViT, "weights": FOLDER}
    model, images = (run(text, data, **names)[name] for name in ("model", "images"))
    answers = kerasvit.classify(model, [str(path) for path in images.test.items])
    predicted = np.array(
        [[name in dict(each) for name in images.class_names] for each in answers]
    )
    scores = kerasvit.evaluation.f1_scores(predicted, images.test.labels)
    assert scores["micro"] > 0.6


DEVICES = {"jax": "DataParallel", "tensorflow": "MirroredStrategy"}


@pytest.mark.only_on(*DEVICES, reason="PyTorch has no scope of devices")
def test_a_scope_of_devices_trains(data):
    backend = keras.backend.backend()
    text = block("kerasvit/training/DEVICES.md", DEVICES[backend])
    assert "kerasvit.ViTS16(num_classes=10)" in text
    text = text.replace("kerasvit.ViTS16(num_classes=10)", "small()")
    text = text.replace("batch_size=64", "batch_size=64, epochs=10, verbose=0")

    def small():
        return TrainedViT(include_preprocessing=True)

    library = {"tf": pytest.importorskip("tensorflow")}
    model = run(text, data, small=small, **library)["model"]
    assert accuracy(model, data) > FRESH
