"""Saved tensors have the names and shapes of timm's state dicts."""

import json
from pathlib import Path

import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints import format_of
from tests.models.counting import outlined
from tests.once import on_last_backend

pytestmark = on_last_backend


FOLDER = Path(__file__).parents[1] / "golden" / "timm_keys"
BUILDERS = (
    *(kerasvit.VisionTransformer, kerasvit.DistilledVisionTransformer),
    kerasvit.BEiTTransformer,
)
ROWS = [n for n in kerasvit.list_models() if getattr(kerasvit, n).builder in BUILDERS]


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_every_tensor_of_a_variant(name):
    expected = json.loads((FOLDER / f"{name}.json").read_text())
    assert getattr(kerasvit, name).numbers["depth"] == expected["depth"]
    model = outlined(name, depth=1)  # the blocks are all alike
    source, _ = format_of(model.record)
    assert source.code_base == "timm"
    arrays = {w.path: np.zeros(w.shape, "float32") for w in model.weights}
    tensors = source.key_map(model.record["kwargs"]).write(arrays)
    lines = [f"{key}: {' '.join(map(str, a.shape))}" for key, a in tensors.items()]
    assert sorted(lines) == sorted(t.format(i=0) for t in expected["tensors"])
