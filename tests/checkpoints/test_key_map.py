import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints import SOURCES, KeyMap
from kerasvit.checkpoints.key_map import TRANSPOSE, split_heads, stacked

SMALL = {"patch_size": 4, "width": 8, "depth": 11, "num_heads": 2, "mlp_dim": 12}
MODELS = [
    {},
    {"pool": "average_then_norm"},
    {"pool": "attention"},
    {"num_classes": 0},
    {"pool": "average", "register_tokens": 2, "layer_scale": 0.1},
]


def arrays_of(**changes):
    model = kerasvit.VisionTransformer(**SMALL, image_size=8, **changes)
    rng = np.random.default_rng(0)
    return model.record["kwargs"], {
        w.path: rng.normal(size=w.shape).astype("float32") for w in model.weights
    }


@pytest.mark.parametrize("origin", SOURCES)
@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_there_and_back(origin, changes):
    kwargs, arrays = arrays_of(**changes)
    key_map = SOURCES[origin].key_map(kwargs)
    unknown = [path for path in arrays if key_map.name(path) is None]
    if unknown:
        # Each code base lacks something: registers, LayerScale, or pooling layers.
        assert origin in ("vision_transformer", "transformers")
        with pytest.raises(ValueError, match="no rule"):
            key_map.write(arrays)
        return
    again = {}
    for name, tensor in key_map.write(arrays).items():
        paths, transform = key_map.find(name)
        again.update(zip(paths, transform.read(tensor), strict=True))
    assert again.keys() == arrays.keys()
    for path, array in arrays.items():
        np.testing.assert_array_equal(again[path], array)


def test_numbers_stand_for_numbers_only():
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
