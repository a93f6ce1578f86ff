"""Models to the Hub and back, by the real client."""

import json

import numpy as np
import pytest

import kerasvit
from kerasvit.hub.upload import UploadError
from tests.contract import to_numpy
from tests.tiny_vit import TinyViT

IMAGES = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype("float32")


@pytest.fixture
def logged_in(hub, monkeypatch):
    """The token is the user's own."""
    monkeypatch.setenv("HF_TOKEN", "good")
    return hub


def small():
    model = TinyViT(image_size=8, num_classes=3)
    random = np.random.default_rng(0)
    model.set_weights([random.normal(size=w.shape, scale=0.3) for w in model.weights])
    model.record["label_names"] = ["ant", "bee", "cat"]
    return model


def test_there_and_back(logged_in):
    model = small()
    info = kerasvit.push_to_hub(model, "me/vit")
    assert info.commit_url.startswith(logged_in.endpoint)
    again = kerasvit.from_pretrained("hf://me/vit")
    np.testing.assert_allclose(to_numpy(again(IMAGES)), to_numpy(model(IMAGES)))
    assert again.record == model.record


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


def test_the_page(logged_in):
    options = {"license": "mit", "base_model": "timm/vit", "datasets": ["me/insects"]}
    options["training"] = {"method": "SAM, rho 0.1", "notes": "a | b\nc", "epochs": 30}
    kerasvit.push_to_hub(small(), "me/vit", metrics={"accuracy": 0.5}, **options)
    page = logged_in.repositories["me/vit"].files["README.md"].decode()
    from huggingface_hub import ModelCard

    card = ModelCard(page)
    assert card.data.license == "mit" and card.data.base_model == "timm/vit"
    assert card.data.library_name == "kerasvit" and "timm" in card.data.tags
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("accuracy", 0.5)
    assert result.dataset_name == "me/insects"
    assert 'from_pretrained("hf://me/vit")' in page and "ant, bee, cat" in page
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
    info = kerasvit.push_to_hub(small(), "me/vit", create_pr=True)
    assert info.pr_url and repository.files == {}


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
    with pytest.raises(ValueError, match="`dtype` must be one of float32.*'int8'"):
        kerasvit.save_pretrained(model, tmp_path / "other", dtype="int8")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("repository", "token", "said"),
    [
        ("me/vit", "bad", "does not know the token"),
        ("other/vit", "good", "may not write to 'other'"),
        ("vit", "good", 'must be "user/name"'),
    ],
)
def test_what_may_not_be_written_says_why(hub, repository, token, said):
    with pytest.raises(UploadError, match=said):
        kerasvit.push_to_hub(small(), repository, token=token)
    assert not hub.repositories and not hub.files


def test_a_commit_that_fails_leaves_the_repository(logged_in):
    repository = logged_in.add("me/vit", {"model.safetensors": b"old"})

    def fail(handler, kind):
        if "/commit/" not in handler.path:
            return False
        handler.send(500)
        return True

    logged_in.faults += [fail] * 10
    with pytest.raises(UploadError, match="answers 500"):
        kerasvit.push_to_hub(small(), "me/vit")
    assert repository.files == {"model.safetensors": b"old"}


def test_a_full_disk_leaves_the_old_folder(tmp_path, monkeypatch):
    folder = kerasvit.save_pretrained(small(), tmp_path / "vit")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    written = type(folder).write_bytes

    def full(path, content):
        if "config" in path.name:
            written(path, content[:10])
            raise OSError(28, "No space left on device")
        return written(path, content)

    monkeypatch.setattr(type(folder), "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        kerasvit.save_pretrained(TinyViT(image_size=8, num_classes=9), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_token_is_in_no_file(logged_in):
    kerasvit.push_to_hub(small(), "me/vit", token="good")
    for content in logged_in.repositories["me/vit"].files.values():
        assert b"good" not in content
    assert "good" not in json.dumps(small().record)
