"""Uploads and downloads of models with the real client."""

import functools
import json
import os

import numpy as np
import pytest
from huggingface_hub import RepoCard

import kerasvit
from kerasvit.hub.upload import UploadError
from tests.contract import to_numpy
from tests.random_weights import randomised
from tests.tiny_vit import TinyViT

from . import accidents

pytestmark = pytest.mark.slow

IMAGES = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype("float32")


@pytest.fixture
def logged_in(hub, monkeypatch):
    """A Hub with a logged-in user."""
    monkeypatch.setenv("HF_TOKEN", "good")
    return hub


def small():
    model = randomised(TinyViT(image_size=8, num_classes=3))
    model.record["label_names"] = ["ant", "bee", "cat"]
    return model


def test_a_pushed_model_is_downloaded_unchanged(logged_in):
    model = small()
    info = kerasvit.push_to_hub(model, "me/vit")
    assert info.commit_url.startswith(logged_in.endpoint)
    again = kerasvit.from_pretrained("hf://me/vit")
    np.testing.assert_allclose(to_numpy(again(IMAGES)), to_numpy(model(IMAGES)))
    assert again.record == model.record


def test_adapters_go_to_the_hub_and_back(logged_in):
    model = small()
    kerasvit.add_lora(model, 2)
    for variable in model.trainable_weights:
        variable.assign(np.random.default_rng(1).normal(size=variable.shape))
    kerasvit.push_to_hub(model, "me/vit", keep_adapters=True)
    again = kerasvit.from_pretrained("hf://me/vit")
    np.testing.assert_array_equal(to_numpy(again(IMAGES)), to_numpy(model(IMAGES)))
    assert again.adapters["layers"] == model.adapters["layers"]
    kerasvit.push_to_hub(model, "me/vit")
    merged = kerasvit.from_pretrained("hf://me/vit")
    np.testing.assert_allclose(
        to_numpy(merged(IMAGES)), to_numpy(model(IMAGES)), rtol=0, atol=1e-5
    )
    assert merged.adapters is None


def adapted():
    """A model with adapters of random values."""
    model = small()
    kerasvit.add_lora(model, 2)
    for variable in model.trainable_weights:
        variable.assign(np.random.default_rng(1).normal(size=variable.shape))
    return model


def test_adapters_alone_go_to_the_hub_and_back(logged_in):
    model = adapted()
    facts = {"base_model": "me/base", "metrics": {"accuracy": 0.5}}
    kerasvit.push_to_hub(model, "me/lora", adapters_only=True, **facts)
    files = logged_in.repositories["me/lora"].files
    assert files.keys() == {"README.md", "adapters.safetensors"}
    page = files["README.md"].decode()
    assert 'kerasvit.load_adapters(model, "hf://me/lora")' in page
    assert '"hf://me/base", image_size=(8, 8), num_classes=3' in page
    card = RepoCard(page)
    assert "lora" in card.data.tags and card.data.base_model == "me/base"
    base = small()
    base.record["label_names"] = None
    kerasvit.load_adapters(base, "hf://me/lora@main", token="good")
    np.testing.assert_array_equal(to_numpy(base(IMAGES)), to_numpy(model(IMAGES)))
    assert base.record["label_names"] == ["ant", "bee", "cat"]
    assert len(files["adapters.safetensors"]) < 10_000


def test_adapters_and_models_are_not_mistaken_for_each_other(logged_in):
    model = adapted()
    kerasvit.push_to_hub(model, "me/lora", adapters_only=True)
    with pytest.raises(ValueError, match="adapters of LoRA without a model.*load_ada"):
        kerasvit.from_pretrained("hf://me/lora")
    kerasvit.push_to_hub(model, "me/vit")
    files = dict(logged_in.repositories["me/vit"].files)
    with pytest.raises(UploadError, match="it holds a model. Push adapters alone to a"):
        kerasvit.push_to_hub(model, "me/vit", adapters_only=True)
    assert logged_in.repositories["me/vit"].files == files
    with pytest.raises(ValueError, match="it holds no adapters of LoRA"):
        kerasvit.load_adapters(small(), "hf://me/vit")


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (small, {}, "has no adapters"),
        (adapted, {"dtype": "float16"}, "are for whole models"),
        (adapted, {"label_names": ["a", "b", "c"]}, "are for whole models"),
    ],
)
def test_what_is_not_pushed_as_adapters_alone(model, options, message, logged_in):
    with pytest.raises(ValueError, match=message):
        kerasvit.push_to_hub(model(), "me/lora", adapters_only=True, **options)
    assert not logged_in.requests


def test_arguments_of_the_hub_with_a_path_of_adapters(logged_in):
    with pytest.raises(ValueError, match="token can be given for the Hugging Face Hub"):
        kerasvit.load_adapters(small(), "adapters.safetensors", token="good")


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_a_calibration_goes_to_the_hub_and_back(task, logged_in):
    model = small()
    labels = np.eye(3, dtype="int64")[np.arange(30) % 3]
    if task == "multilabel":
        model.record["problem_type"] = "multi_label_classification"
    else:
        labels = labels.argmax(axis=1)
    images = np.random.default_rng(2).normal(size=(30, 8, 8, 3)).astype("float32")
    found = kerasvit.calibrate(model, (images, labels))
    kerasvit.push_to_hub(model, "me/vit")
    page = logged_in.repositories["me/vit"].files["README.md"].decode()
    assert "Calibrated on validation images" in page
    again = kerasvit.from_pretrained("hf://me/vit")
    assert kerasvit.Calibration.of(again) == found


def test_a_quantised_model_goes_to_the_hub_and_back(logged_in):
    model = small()
    model.quantize("int8")
    kerasvit.push_to_hub(model, "me/vit")
    again = kerasvit.from_pretrained("hf://me/vit")
    assert again.get_layer("head").quantization_mode == "int8"
    np.testing.assert_array_equal(to_numpy(again(IMAGES)), to_numpy(model(IMAGES)))
    page = logged_in.repositories["me/vit"].files["README.md"].decode()
    assert "are int8" in page and "timm.create_model" not in page


def test_one_commit_deletes_old_weights_and_keeps_the_page(logged_in):
    old = {"README.md": b"mine", "model.safetensors.index.json": b"{}", "x.txt": b"x"}
    repository = logged_in.add("me/vit", old)
    kerasvit.push_to_hub(small(), "me/vit")
    assert len(repository.commits) == 2
    files = repository.files
    assert files.keys() == {"README.md", "model.safetensors", "config.json", "x.txt"}
    assert files["README.md"] == b"mine"
    kerasvit.push_to_hub(small(), "me/vit", card="# New")
    assert b"# New" in repository.files["README.md"]


def test_a_certificate_of_other_weights_is_deleted(logged_in):
    repository = logged_in.add("me/vit", {"certificate.json": b"{}", "x.json": b"{}"})
    kerasvit.push_to_hub(small(), "me/vit", revision="trial")
    assert "certificate.json" in repository.files  # main is unchanged
    assert "certificate.json" not in repository.commits[repository.branches["trial"]]
    kerasvit.push_to_hub(small(), "me/vit")
    assert "certificate.json" not in repository.files and "x.json" in repository.files


def test_no_card_is_no_reason_to_replace_the_page(logged_in):
    repository = logged_in.add("me/vit", {"README.md": b"mine"})
    kerasvit.push_to_hub(small(), "me/vit", card=None)
    assert repository.files["README.md"] == b"mine"


def test_the_page_of_a_branch_is_its_own(logged_in):
    repository = logged_in.add("me/vit", {})
    repository.commit({"README.md": b"of dev"}, "dev")
    kerasvit.push_to_hub(small(), "me/vit", revision="dev", license="mit")
    page = repository.commits[repository.branches["dev"]]["README.md"].decode()
    assert page.endswith("---\nof dev\n") and 'license: "mit"' in page
    assert repository.files == {}
    repository.commit({"README.md": b"of main"})
    kerasvit.push_to_hub(small(), "me/vit", revision="new")  # is made from main
    files = repository.commits[repository.branches["new"]]
    assert files["README.md"] == b"of main" and "config.json" in files


def test_a_generated_page_describes_the_newest_model(logged_in):
    kerasvit.push_to_hub(small(), "me/vit", metrics={"accuracy": 0.625}, license="mit")
    kerasvit.push_to_hub(small(), "me/vit", metrics={"accuracy": 0.75})
    page = logged_in.repositories["me/vit"].files["README.md"].decode()
    assert "| accuracy | 75.0 % |" in page and "62.5" not in page
    assert "license" not in page
    assert "model-index" not in page  # the Hub rejects a result without a dataset


def test_a_page_states_the_dataset_of_a_metric(logged_in):
    metric = {"value": 0.75, "dataset": "clothes", "split": "val", "images": 1234}
    kerasvit.push_to_hub(small(), "me/vit", metrics={"accuracy": metric, "loss": 1})
    page = logged_in.repositories["me/vit"].files["README.md"].decode()
    assert "| accuracy | 75.0 % (clothes, val, 1,234 images) |\n| loss | 1 |" in page
    [entry] = RepoCard(page).data.to_dict()["model-index"]
    [result] = entry["results"]
    data = {"name": "clothes", "type": "clothes", "split": "val"}
    assert entry["name"] == "me/vit" and result["dataset"] == data
    assert result["metrics"] == [{"type": "accuracy", "value": 0.75}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "int8"},
        {"datasets": "pets"},
        {"metrics": {"accuracy": "93%"}},
        {"metrics": {"accuracy": float("nan")}},
        {"metrics": {"accuracy": {"split": "test"}}},
        {"metrics": {"accuracy": {"value": 0.5, "images": 0}}},
        {"metrics": {"accuracy": {"value": 0.5, "imagse": 3}}},
        {"training": ["SAM"]},
        {"license": 2},
        {"base_model": 2},
        {"card": b"# New"},
        {"card": "---\nlicense: [\n---\n# New"},
        {"label_names": ["ant", "bee"]},
        {"label_names": "imagenet1k"},
        {"label_names": [1, 2, 3]},
        {"token": "two words"},
        {"token": b"good"},
        {"token": 12345},
        {"private": "no"},
        {"create_pr": "no"},
        {"revision": 3},
        {"revision": ""},
        {"commit_message": 3},
        {"endpoint": "nonsense"},
        {"repo_id": 2},
    ],
    ids=str,
)
def test_a_wrong_argument_creates_no_repository(logged_in, wrong):
    (name,) = wrong
    name = "card" if name == "card" else f"`{name}`"
    with pytest.raises(ValueError, match=f"{name}.* must "):
        kerasvit.push_to_hub(small(), **{"repo_id": "me/vit", **wrong})
    assert not logged_in.requests


def test_private_is_not_published(logged_in):
    repository = logged_in.add("me/vit", {"x.txt": b"x"})
    with pytest.raises(UploadError, match="it is public, and `private` is True"):
        kerasvit.push_to_hub(small(), "me/vit", private=True)
    assert len(repository.commits) == 1
    for _ in range(2):
        kerasvit.push_to_hub(small(), "me/hidden", private=True)
    assert logged_in.repositories["me/hidden"].private


def test_label_names(logged_in):
    model = small()
    kerasvit.push_to_hub(model, "me/vit", label_names=("x", "y", "z"))
    again = kerasvit.from_pretrained("hf://me/vit")
    assert again.record["label_names"] == ["x", "y", "z"]
    assert model.record["label_names"] == ["ant", "bee", "cat"]


def test_licence_and_source_of_foreign_weights_go_along(logged_in, tmp_path):
    folder = kerasvit.save_pretrained(small(), tmp_path / "vit")
    config = json.loads((folder / "config.json").read_text())
    del config["kerasvit"]
    config["pretrained_cfg"]["license"] = "cc-by-nc-4.0"
    files = {
        "config.json": json.dumps(config).encode(),
        "model.safetensors": (folder / "model.safetensors").read_bytes(),
    }
    logged_in.add("timm/tiny-vit", files)
    base = {"source": "timm/tiny-vit", "license": "cc-by-nc-4.0"}
    for load in (kerasvit.from_pretrained, TinyViT):
        assert load("hf://timm/tiny-vit").record["base"] == base
    kerasvit.push_to_hub(load("hf://timm/tiny-vit"), "me/vit")
    kerasvit.push_to_hub(kerasvit.from_pretrained("hf://me/vit"), "me/again")
    page = logged_in.repositories["me/again"].files["README.md"].decode()
    assert 'license: "cc-by-nc-4.0"\nbase_model: "timm/tiny-vit"' in page


@pytest.mark.parametrize("stated", [None, "dinov3-license"])
def test_a_licence_that_the_hub_does_not_list(stated, tmp_path):
    model = small()
    if not stated:
        model.record["base"] = {"source": "timm/x", "license": "dinov3-license"}
    kerasvit.save_pretrained(model, tmp_path, license=stated)
    page = (tmp_path / "README.md").read_text()
    assert 'license: "other"\nlicense_name: "dinov3-license"\nlicense_link: ' in page
    assert "Licence: dinov3-license." in page
    kerasvit.save_pretrained(kerasvit.from_pretrained(tmp_path), tmp_path / "again")
    again = (tmp_path / "again/README.md").read_text()
    assert 'license_name: "dinov3-license"' in again
    assert "Licence: dinov3-license." in again


def test_the_page(logged_in):
    options = {"license": "mit", "base_model": "timm/vit", "datasets": ["me/insects"]}
    options["training"] = {"method": "SAM, rho 0.1", "notes": "a | b\nc", "epochs": 30}
    options["label_names"] = ["ant", "bee", "cat\n\n# dog"]
    kerasvit.push_to_hub(small(), "me/vit", metrics={"accuracy": 0.5}, **options)
    page = logged_in.repositories["me/vit"].files["README.md"].decode()
    from huggingface_hub import ModelCard

    card = ModelCard(page)
    assert card.data.license == "mit" and card.data.base_model == "timm/vit"
    assert card.data.library_name == "kerasvit" and "timm" in card.data.tags
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("accuracy", 0.5)
    assert result.dataset_name == "me/insects"
    assert 'from_pretrained("hf://me/vit")' in page and "ant, bee, cat # dog." in page
    assert 'timm.create_model("hf-hub:me/vit", pretrained=True)' in page
    rows = page[page.index("## Training") :].splitlines()[4:]
    assert rows == [
        "| method | SAM, rho 0.1 |",
        r"| notes | a \| b c |",
        "| epochs | 30 |",
    ]


def test_branch_pull_request_and_privacy(logged_in):
    kerasvit.push_to_hub(small(), "me/vit", revision="v1", private=True)
    repository = logged_in.repositories["me/vit"]
    assert repository.private and repository.files == {}
    assert kerasvit.from_pretrained("hf://me/vit@v1").output_shape == (None, 3)
    page = repository.commits[repository.branches["v1"]]["README.md"].decode()
    assert 'from_pretrained("hf://me/vit@v1")' in page and '"hf-hub:me/vit@v1"' in page
    info = kerasvit.push_to_hub(small(), "me/vit", create_pr=True)
    assert info.pr_url and repository.files == {}


def test_a_pull_request_is_for_main_only(logged_in):
    with pytest.raises(UploadError, match="leave `revision` out.*Received: 'v1'"):
        kerasvit.push_to_hub(small(), "me/vit", revision="v1", create_pr=True)
    assert not logged_in.requests


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_the_size(logged_in, dtype, tmp_path):
    model = small()
    whole = kerasvit.save_pretrained(model, tmp_path / "whole")
    half = kerasvit.save_pretrained(model, tmp_path / "half", dtype=dtype)
    sizes = [(place / "model.safetensors").stat().st_size for place in (whole, half)]
    assert sizes[1] < 0.65 * sizes[0]
    again = kerasvit.from_pretrained(half)
    assert again.weights[0].dtype == "float32"
    np.testing.assert_allclose(
        to_numpy(again(IMAGES)), to_numpy(model(IMAGES)), atol=0.1
    )
    with pytest.raises(ValueError, match="`dtype` must be one of 'float32'.*'int8'"):
        kerasvit.save_pretrained(model, tmp_path / "other", dtype="int8")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("repository", "token", "message"),
    [
        ("me/vit", "bad", "does not know the token"),
        ("other/vit", "good", "may not write to 'other'"),
        ("vit", "good", 'must be "user/name"'),
    ],
)
def test_a_read_only_cache_is_explained(hub, repository, token, message):
    with pytest.raises(UploadError, match=message):
        kerasvit.push_to_hub(small(), repository, token=token)
    assert not hub.repositories and not hub.files


def test_a_commit_that_fails_leaves_the_repository(logged_in):
    repository = logged_in.add("me/vit", {"model.safetensors": b"old"})

    def fail(handler, kind):
        refuses = "/commit/" in handler.path
        return functools.partial(handler.send, 500) if refuses else None

    logged_in.faults += [fail] * 10
    with pytest.raises(UploadError, match="answers 500. Try later.$"):
        kerasvit.push_to_hub(small(), "me/vit")
    assert repository.files == {"model.safetensors": b"old"}


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (400, "Repo name is reserved", "answers 400 and says: Repo name is reserved."),
        (403, "Storage limit reached.", "may not .* says: Storage limit reached."),
        (409, "", "somebody else .* push again. The reason: the server answers 409."),
        (412, "Not the newest", "somebody else .* push again. .*: Not the newest."),
        (413, "Too large", "answers 413 and says: Too large."),
        (422, "", "answers 422."),
        (429, "", "answers 429. Try later."),
    ],
)
def test_errors_contain_the_message_of_the_hub(logged_in, code, reason, message):
    refuse = accidents.status(code, ("api",), X_Error_Message=reason)
    logged_in.add("me/vit", {})
    logged_in.faults = accidents.always(
        lambda h, kind: refuse(h, kind) if "/commit/" in h.path else None
    )
    with pytest.raises(UploadError, match=f"{message}$"):
        kerasvit.push_to_hub(small(), "me/vit")


def answers(code, body=b""):
    return lambda handler, kind: functools.partial(handler.send, code, body)


@pytest.mark.parametrize("part", ["/api/", "/commit/"])
@pytest.mark.parametrize(
    "answer",
    [
        *map(answers, (301, 400, 403, 404, 451)),
        answers(200, b"<html>"),
        answers(200, {}),
        answers(200, []),
    ],
)
def test_another_server_is_not_a_hub(logged_in, part, answer):
    logged_in.add("me/vit", {})
    logged_in.faults = accidents.always(
        lambda h, kind: answer(h, kind) if part in h.path else None
    )
    message = f"{logged_in.endpoint} answers, but not as a Hub does.*HF_ENDPOINT"
    with pytest.raises(UploadError, match=message):
        kerasvit.push_to_hub(small(), "me/vit")


def test_rejected_metadata_are_named(logged_in):
    wrong = [{"message": '"license" must be one of [mit]'}, {"message": "second"}]

    def refuse(handler, kind):
        answer = functools.partial(handler.send, 400, {"errors": wrong})
        return answer if handler.path.endswith("validate-yaml") else None

    logged_in.faults = accidents.always(refuse)
    with pytest.raises(UploadError, match="must be one of .mit. - second Change `lic"):
        kerasvit.push_to_hub(small(), "me/vit", license="none of them")


def test_a_full_disk_leaves_the_old_folder(tmp_path, monkeypatch):
    folder = kerasvit.save_pretrained(small(), tmp_path / "vit")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    written = []

    def full(file):
        written.append(file)
        if len(written) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"full: .* needs 0\.\d MB, and [\d,.]+ MB"):
        kerasvit.save_pretrained(TinyViT(image_size=8, num_classes=9), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_token_is_in_no_file(logged_in):
    kerasvit.push_to_hub(small(), "me/vit", token="good")
    for content in logged_in.repositories["me/vit"].files.values():
        assert b"good" not in content
    assert "good" not in json.dumps(small().record)
