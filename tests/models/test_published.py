"""Models from named public weights and from other repositories."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit.checkpoints import CheckpointError
from kerasvit.hub import manifest
from tests.hub.conftest import hub as hub
from tests.once import on_last_backend

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "models"


@pytest.fixture
def names(monkeypatch):
    """Sets the manifest's entries."""

    def set_to(*entries):
        monkeypatch.setattr(manifest, "entries", lambda: entries)

    return set_to


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in timm's format: a ViT-Ti/16 for 3 classes and 32 × 32 pixels."""
    model = kerasvit.ViTTi16(num_classes=3, image_size=32)
    random = np.random.default_rng(0)
    for variable in model.weights:
        variable.assign(0.05 * random.normal(size=variable.shape))
    path = kerasvit.save_pretrained(model, tmp_path_factory.mktemp("timm") / "vit")
    config = json.loads((path / "config.json").read_text())
    del config["kerasvit"]
    (path / "config.json").write_text(json.dumps(config))
    return path


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def logits(model):
    image = np.random.default_rng(1).normal(size=(2, 32, 32, 3)).astype("float32")
    return np.asarray(model.predict(image, verbose=0))


def entry(source, **changes):
    fields = {"format": "timm", "classes": 3, "megabytes": 22, "license": "mit"}
    transform = {"size": 32, "crop": 0.5, "kernel": "bilinear"}
    return manifest.Entry(
        "ViTTi16", "sam", source, preprocessing=transform, **{**fields, **changes}
    )


def test_by_name(hub, names, folder):
    hub.add("timm/vit", files(folder))
    names(entry("timm/vit"))
    model = kerasvit.ViTTi16("sam")
    np.testing.assert_allclose(logits(model), logits(kerasvit.ViTTi16(folder)))
    transform = model.preprocessing
    found = transform.size, transform.crop, transform.kernel
    assert found == ((32, 32), 0.5, "bilinear")
    assert model.record["origin"] == "timm"
    other = kerasvit.ViTTi16("sam", num_classes=5, image_size=48)
    assert other.output_shape == (None, 5) and other.input_shape[1:3] == (48, 48)


def test_an_entry_states_arguments_that_its_file_states_wrongly(hub, names, folder):
    hub.add("timm/vit", files(folder))
    names(entry("timm/vit", arguments={"activation": "quick_gelu"}))
    model = kerasvit.ViTTi16("sam")
    assert model.record["kwargs"]["activation"] == "quick_gelu"
    expected = logits(kerasvit.ViTTi16(folder, activation="quick_gelu"))
    np.testing.assert_allclose(logits(model), expected)
    assert abs(expected - logits(kerasvit.ViTTi16(folder))).max() > 0
    exact = kerasvit.ViTTi16("sam", activation="gelu")
    assert exact.record["kwargs"]["activation"] == "gelu"


def test_a_zeroed_head_is_no_classifier(hub, names, folder):
    hub.add("timm/vit", files(folder))
    names(entry("timm/vit", head="zeroed"))
    for classes in (None, 3):
        with pytest.raises(CheckpointError, match="no classifier.*num_classes"):
            kerasvit.ViTTi16("sam", num_classes=classes)
    assert not hub.requests
    assert kerasvit.ViTTi16("sam", num_classes=0).output_shape == (None, 192)
    assert kerasvit.ViTTi16("sam", num_classes=2).output_shape == (None, 2)


@on_last_backend
def test_a_zeroed_head_of_a_file_is_no_classifier(folder, tmp_path):
    tensors = load_file(folder / "model.safetensors")
    tensors["head.weight"][:] = 0
    path = tmp_path / "bare.safetensors"
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match="bare.*no classifier.*num_classes"):
        kerasvit.ViTTi16(path)
    assert kerasvit.ViTTi16(path, num_classes=2).output_shape == (None, 2)
    fresh = kerasvit.save_pretrained(
        kerasvit.from_pretrained(path, num_classes=2), tmp_path
    )
    assert not kerasvit.from_pretrained(fresh).get_layer("head").kernel.numpy().any()


def test_experimental_weights_warn(hub, names, folder, caplog):
    hub.add("timm/vit", files(folder))
    names(entry("timm/vit", experimental="nobody measured them"))
    kerasvit.ViTTi16("sam")
    assert "ViTTi16 'sam' is experimental: nobody measured them." in caplog.text


def test_weights_of_another_variant_name_it(hub, names, folder):
    hub.add("timm/vit", files(folder))
    names(dataclasses.replace(entry("timm/vit"), model="ViTS16"))
    with pytest.raises(CheckpointError, match="width 192, not 384.*ViTTi16"):
        kerasvit.ViTS16("sam")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": -1}, "`num_classes` must be"),
        ({"num_classes": 10**9}, "in .0, 1000000"),
        ({"num_classes": "3"}, "`num_classes` must be"),
        ({"image_size": 33}, "multiple of the patch size.*32 × 32"),
        ({"dropout": 2}, "`dropout` must be"),
        ({"epsilon": "x"}, "`epsilon` must be"),
    ],
)
def test_arguments_are_checked_before_the_download(hub, names, arguments, message):
    names(entry("timm/vit"))
    with pytest.raises(ValueError, match=message):
        kerasvit.ViTTi16("sam", **arguments)
    assert not hub.requests


def test_arguments_that_depend_on_the_file_are_checked_later(hub, names):
    entries = entry("timm/vit"), dataclasses.replace(entry("timm/vit"), model="SwinT")
    names(*entries)  # and the repository does not exist
    for variant, change in (
        (kerasvit.ViTTi16, {"class_token": False}),  # with the file's `pool`
        (kerasvit.SwinT, {"image_size": 384}),  # with the file's windows
        (kerasvit.SwinT, {"window_size": 12}),  # with the file's image size
        (kerasvit.SwinT, {"window_size": 8, "image_size": 256}),  # they fit
    ):
        with pytest.raises(CheckpointError, match="timm/vit"):
            variant("sam", **change)
    del hub.requests[:]
    with pytest.raises(ValueError, match="multiple of 256.*Received: 384 × 384"):
        kerasvit.SwinT("sam", window_size=8, image_size=384)
    assert not hub.requests


def test_weights_by_an_entry_are_those_of_its_model(hub, folder):
    hub.add("timm/vit", files(folder))
    public = entry("timm/vit")
    expected = logits(kerasvit.ViTTi16(folder))
    for model in (kerasvit.ViTTi16(public), kerasvit.from_pretrained(public)):
        np.testing.assert_allclose(logits(model), expected)
    del hub.requests[:]
    for ask in (kerasvit.ViTS16, kerasvit.ViTS16.preprocessing):
        with pytest.raises(
            CheckpointError, match="'sam' belong to ViTTi16.*kerasvit.ViTTi16"
        ):
            ask(public)
    assert kerasvit.ViTTi16.preprocessing(public).crop == 0.5
    assert not hub.requests


def test_from_a_repository_of_timm(hub, folder):
    commit = hub.add("timm/vit", files(folder)).branches["main"]
    for model in (
        kerasvit.from_pretrained("hf://timm/vit"),
        kerasvit.from_pretrained(f"hf://timm/vit@{commit}"),
        kerasvit.ViTTi16("hf://timm/vit"),
    ):
        np.testing.assert_allclose(logits(model), logits(kerasvit.ViTTi16(folder)))
        assert model.record["variant"] == "ViTTi16"
    changed = kerasvit.from_pretrained("hf://timm/vit", num_classes=7)
    assert changed.output_shape == (None, 7)


@on_last_backend
@pytest.mark.parametrize("case", ["hf_vit", "timm_mixer", "timm_swin", "bit_x1"])
def test_from_a_file_of_any_known_code_base(case):
    names = ("checkpoint.npz", "model.safetensors")
    path = next(p for name in names if (p := GOLDEN / case / name).exists())
    model = kerasvit.from_pretrained(path)
    assert model.record["origin"] in ("timm", "transformers", "big_transfer")


def test_a_token_is_not_stored(hub, folder, caplog, tmp_path):
    hub.add("me/vit", files(folder), private=True)
    model = kerasvit.from_pretrained("hf://me/vit", token="good")
    assert "good" not in json.dumps(model.record) + caplog.text
    hub.tokens = set()
    options = {"token": "hf_secret", "cache_dir": tmp_path / "empty"}
    with pytest.raises(CheckpointError, match="private|token") as caught:
        kerasvit.from_pretrained("hf://me/vit", **options)
    assert "hf_secret" not in str(caught.value)
