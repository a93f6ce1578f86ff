"""`--state` chooses one of several models in a file, in every script that loads one."""

import evaluate
import export
import finetune
import inspection
import keras
import numpy as np
import pytest
import segmentation
from command import command_line
from scoring import any_model, candidates
from training import models

import kerasvit
from tests.checkpoints import torch_files
from tests.contract import to_numpy
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file of a model and of its average, which is twice as large."""
    pytest.importorskip("torch")
    right = torch_files.golden()
    right["pos_embed"] = right["pos_embed"][:, : 1 + 2 * 2]
    double = {name: 2 * array for name, array in right.items()}
    states = {"model": right, "ema": double}
    content = {name: torch_files.tensors(state) for name, state in states.items()}
    path = tmp_path_factory.mktemp("state") / "best.pth"
    torch_files.write(path, content)
    (path.parent / "config.json").write_text('{"model_args": {"num_heads": 3}}')
    return str(path)


def is_average(model):
    twice = 2 * torch_files.golden()["cls_token"]
    return any(np.array_equal(to_numpy(weight), twice) for weight in model.weights)


def test_finetune(path):
    asked = finetune.Config(weights=path, state="ema")
    models.check_weights(asked, {})
    assert is_average(finetune.build(asked, list("ab")))
    with pytest.raises(kerasvit.CheckpointError, match='several models.*state="ema"'):
        models.check_weights(finetune.Config(weights=path), {})


def test_segmentation(path):
    config = segmentation.Config(weights=path, state="ema", image_size=(8,))
    assert is_average(segmentation.features(config))


def test_export(path):
    found = export.load(export.Config(path, format="onnx", state="ema"))
    assert is_average(found.model)


def test_evaluate_and_inspection(path):
    for script, options in ((evaluate, ["--on", "digits"]), (inspection, [])):
        data = options or ["--data", "digits"]
        config = script.parse([path, *data, "--state", "ema"])
        (found,) = candidates.load_all(config.models, state=config.state)
        assert is_average(found.model)


def test_a_state_of_nothing(path, tmp_path):
    with pytest.raises(ValueError, match="give --weights, too"):
        command_line.check(finetune.parse(["--state", "ema"]))
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    model.save(tmp_path / "x.keras")
    with pytest.raises(ValueError, match="`state`.*is one model"):
        any_model.load(str(tmp_path / "x.keras"), "model", "unit", "ema")
