"""Weights in several files with an index, as transformers writes large models."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit.checkpoints import Checkpoint, CheckpointError
from tests.contract import to_numpy
from tests.once import on_last_backend

CASES = Path(__file__).parents[1] / "golden" / "models"
FIRST, SECOND = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
INDEX = "model.safetensors.index.json"


def divide(case, folder):
    """Writes the files of a case with its tensors in two shards, interleaved."""
    folder.mkdir(exist_ok=True)
    shutil.copy(CASES / case / "config.json", folder)
    tensors = load_file(CASES / case / "model.safetensors")
    places = {name: (FIRST, SECOND)[i % 2] for i, name in enumerate(sorted(tensors))}
    for file in (FIRST, SECOND):
        part = {name: tensors[name] for name in tensors if places[name] == file}
        save_file(part, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return places


@pytest.mark.slow
@pytest.mark.parametrize("case", ["hf_vit", "hf_swin"])
def test_shards_are_one_model(case, tmp_path):
    divide(case, tmp_path)
    model = kerasvit.from_pretrained(tmp_path)
    whole = kerasvit.from_pretrained(CASES / case)
    for ours, theirs in zip(model.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))
    again = kerasvit.from_pretrained(tmp_path / INDEX)
    assert again.record == model.record


@on_last_backend
def test_shards_of_timm(tmp_path):
    tensors = load_file(CASES / "timm_vit" / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_args": {"num_heads": 3}}')
    places = {name: (FIRST, SECOND)[i % 2] for i, name in enumerate(sorted(tensors))}
    for file in (FIRST, SECOND):
        part = {name: tensors[name] for name in tensors if places[name] == file}
        save_file(part, tmp_path / file)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": places}))
    found = Checkpoint(tmp_path)
    assert found.description.numbers["num_heads"] == 3
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor)


@on_last_backend
def test_the_folder_may_be_named_like_a_tag(tmp_path, monkeypatch):
    divide("hf_vit", tmp_path / "sharded")
    monkeypatch.chdir(tmp_path)
    assert kerasvit.from_pretrained("sharded").record["origin"] == "transformers"


@on_last_backend
def test_a_missing_index_is_named(tmp_path):
    divide("hf_vit", tmp_path)
    (tmp_path / INDEX).unlink()
    with pytest.raises(CheckpointError, match=f"{FIRST}, a part.*no {INDEX}. Copy it"):
        kerasvit.from_pretrained(tmp_path)


@on_last_backend
def test_a_missing_shard_is_named(tmp_path):
    divide("hf_vit", tmp_path)
    (tmp_path / SECOND).unlink()
    with pytest.raises(CheckpointError, match=f"lists {SECOND}, which is missing"):
        kerasvit.from_pretrained(tmp_path)


@on_last_backend
def test_a_short_shard_is_named(tmp_path):
    divide("hf_vit", tmp_path)
    content = (tmp_path / SECOND).read_bytes()
    (tmp_path / SECOND).write_bytes(content[:-10])
    with pytest.raises(CheckpointError, match=f"{SECOND} .* cannot be read"):
        kerasvit.from_pretrained(tmp_path)


@on_last_backend
def test_an_index_of_another_save_is_refused(tmp_path):
    places = divide("hf_vit", tmp_path)
    for changed in (
        {**places, "more": FIRST},
        {
            name: file
            for name, file in places.items()
            if name != "vit.embeddings.cls_token"
        },
        {
            **places,
            "vit.embeddings.cls_token": {FIRST: SECOND, SECOND: FIRST}[
                places["vit.embeddings.cls_token"]
            ],
        },
    ):
        (tmp_path / INDEX).write_text(json.dumps({"weight_map": changed}))
        with pytest.raises(CheckpointError, match="disagree on [12] tensors"):
            kerasvit.from_pretrained(tmp_path)


@on_last_backend
def test_missing_tensors_are_found(tmp_path):
    places = divide("hf_vit", tmp_path)
    kept = {name: file for name, file in places.items() if name != "vit.layernorm.bias"}
    file = tmp_path / places["vit.layernorm.bias"]
    tensors = load_file(file)
    del tensors["vit.layernorm.bias"]
    save_file(tensors, file)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": kept}))
    with pytest.raises(CheckpointError, match="missing in(.|\n)*layernorm.bias"):
        kerasvit.from_pretrained(tmp_path)
