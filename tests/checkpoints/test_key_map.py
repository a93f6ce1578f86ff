import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints import SOURCES, VARIABLE_PATHS, KeyMap
from kerasvit.checkpoints.key_map import TRANSPOSE, split_heads, stacked
from tests.contract import check_key_map
from tests.once import on_last_backend

pytestmark = on_last_backend

SMALL = {"patch_size": 4, "width": 8, "depth": 11, "num_heads": 2, "mlp_dim": 12}
MODELS = [
    {},
    {"pool": "average_then_norm"},
    {"pool": "token_and_average"},
    {"pool": "attention"},
    {"num_classes": 0},
    {"pool": "average", "register_tokens": 2, "layer_scale": 0.1},
]
VIT = [source for source in SOURCES if source.builder == "VisionTransformer"]
VIT.append(VARIABLE_PATHS)


@pytest.mark.slow
@pytest.mark.parametrize("source", VIT, ids=lambda source: source.code_base)
@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_key_maps_are_inverted(source, changes):
    model = kerasvit.VisionTransformer(**SMALL, image_size=8, **changes)
    key_map = source.key_map(model.record["kwargs"])
    if any(key_map.name(w.path) is None for w in model.weights):
        # Each code base lacks something: registers, LayerScale, or pooling layers.
        others = ("vision_transformer", "transformers", "torchvision", "keras_hub")
        assert source.code_base in others
        with pytest.raises(ValueError, match="no rule"):
            key_map.write({w.path: np.zeros(w.shape) for w in model.weights})
        return
    of_transformers = source.code_base == "transformers"
    check_key_map(
        key_map, model, changes.get("register_tokens", 0) if of_transformers else 0
    )


def test_number_fields_match_only_digits():
    key_map = KeyMap(("blocks.{i}.w", "block_{i}/kernel"))
    assert key_map.find("blocks.12.w")[0] == ["block_12/kernel"]
    assert key_map.find("blocks.x.w") is None
    assert key_map.find("blocksx1xw") is None
    assert key_map.name("block_3/kernel") == "blocks.3.w"
    assert key_map.name("block_3/kernel/more") is None


def test_torch_keeps_query_key_and_value_in_one():
    weight = np.arange(24).reshape(6, 4)
    parts = stacked(3).read(weight)
    np.testing.assert_array_equal(parts[1], weight[2:4].T)
    np.testing.assert_array_equal(stacked(3).write(parts), weight)


def test_flax_splits_heads():
    kernel = np.arange(24).reshape(4, 3, 2)
    (joined,) = split_heads(3, 1).read(kernel)
    np.testing.assert_array_equal(joined, kernel.reshape(4, 6))
    np.testing.assert_array_equal(split_heads(3, 1).write([joined]), kernel)


def test_transposed_dense_kernel():
    (read,) = TRANSPOSE.read(np.ones((2, 3)))
    assert read.shape == (3, 2)
