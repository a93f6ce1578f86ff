"""`inspection.py`: from one or two models to a page and its numbers."""

import dataclasses
import html
import json
import math
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import inspection
import keras
import numpy as np
import pytest
from command import command_line
from reporting import (
    attention,
    curvature,
    landscapes,
    measures,
    subjects,
    tables,
)
from reporting.measure import Passes, without_attention
from reporting.sections import NAMES, READINGS, SECTIONS, reading_of

import kerasvit
from kerasvit.inspection.curvature.mean_loss import LossAt
from tests.models.tiny import tiny
from tests.once import long_elsewhere, on_last_backend

from .inspected import DIGITS, config, save

QUICK = ("attention", "variance", "active", "cka")


def settings(**options):
    return config("model", **options)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Page(HTMLParser):
    """Identifiers of the sections, and links, of a page."""

    def __init__(self, text):
        super().__init__()
        self.identifiers, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.identifiers += [found["id"]] if tag == "section" else []
        self.links += [found[k] for k in ("src", "href", "xlink:href") if k in found]


@long_elsewhere
def test_a_report_of_a_transformer_and_a_resnet(tmp_path):
    models = save("vit"), save("bit", "BigTransfer", image_size=32)
    found = inspection.inspect(config(*models, only=QUICK))
    text = (tmp_path / "inspected/inspection.html").read_text(encoding="utf-8")
    page = Page(text)
    assert set(page.identifiers) == set(QUICK)
    assert all(re.match("#|data:image/png;base64,", link) for link in page.links)
    assert not re.search(r"<script|@import|url\((?!#)|<link", text)
    assert len(text) < 2**20
    assert "Not measured: bit has no attention layers." in text
    assert "The blocks of bit have no MLP with a hidden layer." in text
    assert "CKA of bit" in text and "CKA of vit and bit" not in text
    stored = json.loads((tmp_path / "inspected/inspection.json").read_text())
    assert stored == json.loads(json.dumps(found))
    assert [each["name"] for each in stored["models"]] == ["vit", "bit"]
    assert stored["versions"]["keras"] == keras.__version__
    for name, each in stored["measures"].items():
        assert each["definition"] == SECTIONS[name].definition
    numbers = stored["measures"]["variance"]["models"]["vit"]["numbers"]
    assert list(numbers) == ["encoder_block_0"] and numbers["encoder_block_0"] > 0
    tex = (tmp_path / "inspected/inspection.tex").read_text(encoding="utf-8")
    row = next(line for line in tex.splitlines() if line.startswith("vit &"))
    assert row.count("&") == 5 and row.endswith(r"\\")


@pytest.mark.slow
@on_last_backend
def test_a_file_of_keras_beside_a_model_of_kerasvit(tmp_path):
    save("vit")
    image = keras.Input((8, 8, 3))
    keras.Model(image, keras.layers.Dense(10)(keras.layers.Flatten()(image))).save(
        "other.keras"
    )
    vit, other = subjects.load(config("vit", "other.keras", model_input="unit"))
    own = vit.model.preprocessing
    low, high = (-np.array(own.mean) / own.std, (1 - np.array(own.mean)) / own.std)
    assert (vit.x >= low - 1e-5).all() and (vit.x <= high + 1e-5).all()
    assert 1 < other.x.max() <= 255  # the file's own layer divides them by 255


@pytest.mark.slow
@on_last_backend
def test_a_stopped_report_goes_on(tmp_path, monkeypatch):
    save("model")
    first = inspection.inspect(settings(only=("variance",)))

    def never(*arguments, **options):
        raise AssertionError("measured again")

    monkeypatch.setattr(kerasvit.inspection, "feature_variance", never)
    again = inspection.inspect(settings(only=("variance", "active")))
    assert again["measures"]["variance"] == first["measures"]["variance"]
    assert "numbers" in again["measures"]["active"]["models"]["model"]
    for change in ({"seed": 1}, {"images": 12}):
        with pytest.raises(AssertionError, match="measured again"):
            inspection.inspect(settings(only=("variance",), **change))
    save("other", scale=1.1)
    (tmp_path / "model").rename("old")
    (tmp_path / "other").rename("model")
    with pytest.raises(AssertionError, match="measured again"):
        inspection.inspect(settings(only=("variance",)))


@pytest.mark.slow
@on_last_backend
def test_a_stopped_plane_goes_on_at_its_next_point(tmp_path, monkeypatch):
    save("model")
    monkeypatch.setattr(landscapes, "GRID", np.linspace(-1, 1, 3))
    value, points = LossAt.value, []

    def interrupted(self, values, data):
        if len(points) == 4:
            raise KeyboardInterrupt
        return counted(self, values, data)

    def counted(self, values, data):
        points.append(value(self, values, data))
        return points[-1]

    monkeypatch.setattr(LossAt, "value", interrupted)
    with pytest.raises(KeyboardInterrupt):
        inspection.inspect(settings(only=("plane",)))
    monkeypatch.setattr(LossAt, "value", counted)
    found = inspection.inspect(settings(only=("plane",)))
    assert len(points) == 9
    loss = found["measures"]["plane"]["models"]["model"]["numbers"]["loss"]
    np.testing.assert_allclose(np.ravel(loss), points, rtol=1e-5)
    assert [each.suffix for each in (tmp_path / "inspected/measured").iterdir()] == [
        ".json"
    ]


@pytest.mark.slow
@on_last_backend
def test_a_budget_leaves_out_what_does_not_fit(tmp_path, monkeypatch):
    save("model")
    seconds = (0.0, 10.0, 0.0)  # of a forward pass, a product, a compilation
    monkeypatch.setattr(measures, "_pass_costs", lambda subject: seconds)
    found = inspection.inspect(settings(only=("eigenvalues", "active"), budget="1m"))
    reason = found["measures"]["eigenvalues"]["models"]["model"]["reason"]
    assert re.fullmatch(
        "Left out: it takes about 20 min, and [56][0-9] s of the budget are left.",
        reason,
    )
    assert "numbers" in found["measures"]["active"]["models"]["model"]
    text = (tmp_path / "inspected/inspection.html").read_text(encoding="utf-8")
    assert "Left out: it takes about 20 min" in text


@on_last_backend
def test_the_work_of_a_measure_times_the_cost_of_a_pass():
    time = measures.Budget(100.0)
    subject = dataclasses.make_dataclass("Named", ["name"])("a")
    time.costs["a"] = (1.0, 10.0, 0.5)
    assert time.estimate(Passes(3, 2, 4), [subject]) == 3 + 20 + 2
    assert time.refusal([(Passes(3, 2, 4), [subject])]) == ""
    assert "about 10 min" in time.refusal(2 * [(Passes(0, 30, 0), [subject])])
    assert measures.Budget(None).refusal([(Passes(0, 10**9, 0), [subject])]) == ""


@pytest.mark.long
def test_every_measure_of_two_transformers(tmp_path):
    models = save("one"), save("two", scale=1.2)
    names = tuple(name for name in NAMES if name != "segmentation")  # needs masks
    found = inspection.inspect(config(*models, only=names))
    for name, each in found["measures"].items():
        for model, numbers in each["models"].items():
            assert "numbers" in numbers, (name, model, numbers)
    page = Page((tmp_path / "inspected/inspection.html").read_text(encoding="utf-8"))
    assert page.identifiers == list(names)
    rows = found["measures"]["eigenvalues"]["models"]
    largest = found["measures"]["components"]["models"]["one"]["numbers"]["lambda_max"]
    assert rows["one"]["numbers"]["largest"][0] == pytest.approx(
        largest["whole"], rel=1e-2
    )


@on_last_backend
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"only": ("plane", "lesion"), "budget": "10m", "seed": 3},
        {"masks": "my masks", "augment": "shift", "mixup": 0.2, "cutmix": 0.0},
        {"label_smoothing": 0.1, "weight_decay": 0.05, "l2": "norms"},
    ],
)
def test_the_command_on_the_page_makes_the_same_report(options):
    given = config("runs/plain", "runs/sam", **options)
    _, script, *arguments = shlex.split(inspection.command(given))
    assert script == "recipes/inspection.py" and inspection.parse(arguments) == given


@on_last_backend
def test_every_section_has_a_measure():
    assert tuple(measures.MEASURES) == NAMES


@on_last_backend
@pytest.mark.parametrize(
    ("value", "text", "latex"),
    [
        (738.84, "738.8", "738.8"),
        (0.05, "0.0500", "0.0500"),
        (-1.5, "−1.500", "$-$1.500"),
        (0.0, "0.0000", "0.0000"),
        (2.5e-7, "2.500 · 10⁻⁷", r"$2.500 \cdot 10^{-7}$"),
        (86_567_656, "86,567,656", "86,567,656"),
        (math.inf, "∞", r"$\infty$"),
        (None, "–", "--"),
        ("a_b & c", "a_b & c", r"a\_b \& c"),
    ],
)
def test_a_number_on_the_page_and_in_latex(value, text, latex):
    assert tables.number(value) == text
    assert tables.to_latex(tables.Table("", ["", "x"], [["m", value]])).endswith(
        rf"m & {latex} \\"
    )


@on_last_backend
def test_every_picture_says_how_it_is_read():
    picture = r"<figcaption>([^<]*)</figcaption><svg.*?</svg>\s*(.*?)</figure>"
    read = set()
    for path in (Path(__file__).parents[2] / "recipes/reports").glob("*.html"):
        for caption, after in re.findall(picture, path.read_text("utf-8"), re.S):
            sentence = reading_of(html.unescape(caption))
            assert after == f'<p class="soft">{html.escape(sentence)}</p>'
            read.add(sentence)
    # Of masks, of ViTs whose heads are lesioned, and of two models of one architecture.
    assert len(read) >= len(READINGS) - 3


@on_last_backend
def test_names_are_escaped():
    table = tables.Table("<b>", ["", "<i>"], [["<script>", 1.0]])
    assert not re.search("<(b|i|script)>", tables.to_html(table))


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ()}, "give one or two models. Received: 0"),
        ({"models": ("a", "b", "c")}, "give one or two models. Received: 3"),
        ({"models": ("model", "model")}, "each model once"),
        ({"models": ("./none",)}, "`models`: there is no file or folder ./none"),
        ({"models": ("none",)}, "`models`: there is no file or folder none"),
        ({"models": ("ViTB16",)}, "no file or folder ViTB16.* no class of that name"),
        ({"models": ("features",)}, "has no classes"),
        ({"models": ("cats",)}, "`data`: cats has none of the classes of digits"),
        ({"image_set": ""}, "`data`: give the images"),
        ({"image_set": "./none"}, "`data`: there is no folder or table ./none"),
        ({"image_set": "digit"}, "`data`: there is no 'digit'. Close: digits"),
        ({"images": 4}, "`images` must be at least 8. Received: 4"),
        ({"only": ("atention",)}, "`only`: there is no 'atention'. Close: attention"),
        ({"budget": "soon"}, "`budget` must be a time such as 90s, 10m or 2h"),
        ({"budget": "0m"}, "`budget` must be a time"),
        ({"seed": -1}, "`seed` must be at least 0"),
        ({"masks": "./none"}, "`masks`: there is no folder ./none"),
        ({"masks": "."}, "`masks` have the names of files, and these images are none"),
        ({"only": ("segmentation",)}, "`only`: segmentation needs masks"),
        ({"augment": "photo", "mixup": -1.0}, "`mixup` must be at least 0"),
    ],
)
def test_wrong_input(changes, message):
    save("model")
    kerasvit.save_pretrained(tiny("VisionTransformer", num_classes=0), "features")
    kerasvit.save_pretrained(tiny("MLPMixer"), "cats", label_names=["a", "b", "c"])
    with pytest.raises(command_line.BadInput, match=message):
        inspection.inspect(dataclasses.replace(settings(), **changes))


@on_last_backend
def test_a_batch_of_which_the_last_has_four_images():
    from reporting.features import _batch

    for count in range(8, 200):
        size = _batch(count)
        assert size <= 64 and (count % size == 0 or count % size >= 4)
    assert np.array_equal([_batch(64), _batch(66)], [64, 62])


@pytest.mark.slow
@on_last_backend
def test_a_quantised_model_has_the_measures_without_derivatives(tmp_path):
    model = tiny("VisionTransformer", num_classes=10)
    model.quantize("int8")
    kerasvit.save_pretrained(model, "model", label_names=DIGITS)
    only = ("components", "batch-spectrum", "plane", "attention", "active", "lesion")
    found = inspection.inspect(settings(only=only, budget="1h"))["measures"]
    for name in only:
        result = found[name]["models"]["model"]
        lacks = "model is quantised" in result.get("reason", "")
        assert lacks == (name != "attention"), (name, result)


def stub(model, name="model", builder=""):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, *model.input_shape[1:])).astype("float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    data = (model, x, np.arange(3), loss)
    facts = {"name": name, "model": model, "x": x, "data": data, "builder": builder}
    return SimpleNamespace(**facts, batch_size=3, bands=None)


@on_last_backend
def test_between_models_with_batch_normalisation_no_variance_is_negative():
    models = tiny("AlterNet"), tiny("AlterNet")
    for variable in models[1].weights:
        if "moving_variance" in variable.path:
            variable.assign(0.01 * variable)
    found = landscapes._between(*map(stub, models))
    assert (found["alpha"][0], found["alpha"][-1]) == (0, 1)
    assert (
        len(found["loss"]) == len(found["alpha"]) and np.isfinite(found["loss"]).all()
    )


@pytest.mark.slow
@on_last_backend
def test_attention_that_is_not_of_the_patches_or_pools_alone():
    image = keras.Input((8, 8, 3))
    tokens = keras.layers.Reshape((64, 3))(image)

    def model(count):
        attention = keras.layers.MultiHeadAttention(1, 2)
        return stub(keras.Model(image, attention(tokens[:, :count], tokens)))

    assert "as many queries as keys" in without_attention(model(5))
    assert not without_attention(model(1))
    shown = attention._show_attention({"model": attention._attention(model(1))})
    assert [each.caption for each in shown] == ["Heat of the last attention layer"]


@on_last_backend
def test_frozen_components_and_patches_of_keras_layers():
    mixer = tiny("MLPMixer")
    assert not curvature._without_components(stub(mixer, builder="MLPMixer"))
    mixer.get_layer("stem").trainable = False
    reason = curvature._without_components(stub(mixer, builder="MLPMixer"))
    assert reason == "model has no trainable weights of its embedding."
    image = keras.Input((8, 8, 3))
    patches = keras.layers.Conv2D(4, 4, 4)(image)
    assert not attention.without_embeddings(stub(keras.Model(image, patches)))
    convolution = keras.layers.Conv2D(4, 3)(image)
    assert attention.without_embeddings(stub(keras.Model(image, convolution)))


@pytest.mark.slow
@on_last_backend
def test_the_table_of_components_has_those_of_the_families():
    def found(**components):
        return {
            "builder": "BigTransfer",
            "lambda_max": {**components, "whole": 9.0},
            "lambda_max_of_blocks": {"a": 1.0, "b": 2.0},
            "weight_norm": 3.0,
            "activation_norms": {"a": 4.0, "b": 5.0},
        }

    two = {"embedding": 6.0, "convolutions": 7.0}
    table, *_ = curvature._show_components({"bit": found(**two)})
    assert table.head[1:4] == ["λ embedding", "λ convolutions", "λ first block"]
    other = {"embedding": 6.5, "attention": 7.5, "MLP": 8.5}
    both = {"bit": found(**two), "vit": found(**other)}
    table, *_ = curvature._show_components(both)
    assert table.head[2:4] == ["λ convolutions / attention", "λ MLP"]
    assert [row[1:4] for row in table.rows] == [[6.0, 7.0, None], [6.5, 7.5, 8.5]]
