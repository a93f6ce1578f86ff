"""Models without a part, against models that are built without it."""

import keras
import numpy as np
import pytest
from keras import ops

import kerasvit
from kerasvit.inspection import lesion
from kerasvit.inspection.features.lesion import _parts
from tests.models.tiny import tiny
from tests.once import mainly_on_last, on_last_backend

X = np.random.default_rng(0).normal(size=(12, 16, 16, 3)).astype("float32")
Y = np.arange(12) % 3


def outputs(model, images=X):
    return np.array(model.predict_on_batch(images))


def without(model, what):
    """Outputs of a model without each part, from a copy of it."""
    found = {}
    for path, values in _parts(model, what, "."):
        weights = model.get_weights()
        for variable, value in values:
            variable.assign(value)
        found[path] = outputs(model)
        model.set_weights(weights)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes", "block"),
    mainly_on_last(
        [
            ("VisionTransformer", {"depth": 2}, "encoder_block_1"),
            ("VisionTransformer", {"layer_scale": 0.5}, "encoder_block_0"),
            ("MLPMixer", {}, "mixer_block_0"),
            ("SwinTransformer", {}, "stage_0_block_1"),
            ("PoolingVisionTransformer", {}, "stage_1_block_0"),
            ("AlterNet", {}, "stage_1_unit_1"),
            ("AlterNet", {"depths": [2, 2]}, "stage_0_unit_1"),
            ("PreActResNet", {"depths": [2, 1]}, "stage_0_unit_1"),
            ("BigTransfer", {"depths": [2, 1]}, "stage_0_unit_1"),
            ("HybridVisionTransformer", {"resnet_depths": [2]}, "stage_0_unit_1"),
        ]
    ),
)
def test_a_model_without_a_block_is_one_with_the_identity_in_its_place(
    name, changes, block
):
    model = tiny(name, **changes)
    found = without(model, "block")[block]
    layer = model.get_layer(block)
    x, y = layer.input, layer.output
    before = keras.Model(model.input, x)
    after = keras.Model(y, model.output)
    expected = after.predict_on_batch(before.predict_on_batch(X))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@on_last_backend
def test_a_block_that_changes_the_size_is_left_with_its_projection():
    model = tiny("PreActResNet")
    found = without(model, "block")["stage_1_unit_0"]
    unit = model.get_layer("stage_1_unit_0")
    x = keras.Model(model.input, unit.input)(X)
    shortcut = unit.projection(ops.relu(unit.norms[0](x)))
    expected = keras.Model(unit.output, model.output)(shortcut)
    np.testing.assert_allclose(found, ops.convert_to_numpy(expected), rtol=1e-4)


@on_last_backend
def test_a_post_norm_block_is_left_with_its_normalisations():
    model = tiny("VisionTransformerAblation", norm="post", depth=2)
    found = without(model, "block")["encoder_block_0"]
    block = model.get_layer("encoder_block_0")
    x = keras.Model(model.input, block.input)(X)
    x = block.mlp_norm(block.attention_norm(x))
    expected = keras.Model(block.output, model.output)(x)
    np.testing.assert_allclose(
        found, ops.convert_to_numpy(expected), rtol=1e-4, atol=1e-5
    )


def test_branches_and_heads_are_removed_from_their_sums():
    model = tiny("VisionTransformer")
    block = model.get_layer("encoder_block_0")
    x = keras.Model(model.input, block.input)(X)
    after = keras.Model(block.output, model.output)
    path = "encoder_block_0"

    attention = block.attention(block.attention_norm(x))
    expected = after(x + block.mlp(block.mlp_norm(x)))
    found = without(model, "attention")
    assert list(found) == [f"{path}/attention"]
    close(found[f"{path}/attention"], expected)
    close(without(model, "mlp")[f"{path}/mlp"], after(x + attention))

    heads = without(model, "head")
    assert list(heads) == [f"{path}/attention/head_{i}" for i in range(2)]
    kernel = block.attention.output_dense.kernel
    rows = ops.convert_to_numpy(kernel).copy()
    rows[8:] = 0  # the second of two heads of size 8
    kernel.assign(rows)
    close(heads[f"{path}/attention/head_1"], model(X))


def close(found, expected):
    expected = ops.convert_to_numpy(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@on_last_backend
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("SwinTransformer", 1 + 1 + 2),
        ("AlterNet", 2),
        ("DistilledVisionTransformer", 2),
    ],
)
def test_heads_of_windows_sum_to_the_whole_attention(name, count):
    """Without all heads but one, and without that one, in a linear output layer."""
    model = tiny(name)
    paths = [path for path, _ in _parts(model, "head", ".")]
    assert len(paths) == count
    parts = list(_parts(model, "head", "."))[-2:]
    (kernel, first), (_, second) = (values[0] for _, values in parts)
    whole = ops.convert_to_numpy(kernel)
    np.testing.assert_allclose(first + second, whole)
    assert (first != 0).any(1).sum() == len(whole) // 2


def test_accuracy_is_that_of_the_model_without_the_part():
    model = tiny("VisionTransformer", depth=2)
    before = model.get_weights()
    y = outputs(model).argmax(-1)
    y[:3] = (y[:3] + 1) % 3
    found = lesion(model, X, y, batch_size=5)
    assert found.clean == 0.75
    assert list(found.accuracies) == ["encoder_block_0", "encoder_block_1"]
    for value, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, old)
    for path, logits in without(model, "block").items():
        expected = np.mean(logits.argmax(-1) == y)
        np.testing.assert_allclose(found.accuracies[path], expected)


@on_last_backend
def test_layers_choose_the_blocks():
    model = tiny("VisionTransformer", depth=3)
    found = lesion(model, X, Y, what="attention", layers="block_[12]$")
    assert list(found.accuracies) == [
        *("encoder_block_1/attention", "encoder_block_2/attention"),
    ]


@on_last_backend
def test_a_model_with_adapters_loses_their_part_of_a_head_too():
    model = tiny("VisionTransformer")
    kerasvit.add_lora(model, rank=2)
    (_, values), *_ = _parts(model, "head", ".")
    assert {variable.name for variable, _ in values} >= {"kernel"}
    for variable, value in values:
        assert not value[:8].any(), variable.path
        assert value[8:].any()


@on_last_backend
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("MLPMixer", {"what": "attention"}, "what='attention'.*Received: none"),
        ("MLPMixer", {"layers": "encoder"}, "Examples of paths"),
        ("MLPMixer", {"layers": "stem"}, "Received: none. Choose another part"),
        ("MLPMixer", {"what": "brain"}, "`what` must be one of"),
        ("MLPMixer", {"y": Y[:4]}, "each of the 12 images"),
        ("MLPMixer", {"x": X[:, 1:]}, r"images \(16, 16, 3\)"),
        ("MLPMixer", {"x": [1]}, r"Received: shape \(\)"),
    ],
)
def test_wrong_arguments_are_errors(name, arguments, expected):
    with pytest.raises(ValueError, match=expected):
        lesion(tiny(name), **{"x": X, "y": Y, **arguments})


@on_last_backend
def test_quantised_weights_are_an_error():
    model = tiny("VisionTransformer")
    model.quantize("int8")
    with pytest.raises(ValueError, match="must not be quantised"):
        lesion(model, X, Y)


@on_last_backend
def test_models_without_one_label_per_image_have_no_accuracy():
    one = tiny("VisionTransformer", num_classes=1)
    several = tiny("VisionTransformer", num_classes=3)
    several.record["problem_type"] = "multi_label_classification"
    for model in (one, several):
        with pytest.raises(ValueError, match="a classifier of one label per image"):
            lesion(model, X, Y * 0)
