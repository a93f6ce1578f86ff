import json

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints.sources.how_do_vits_work import (
    AuthorsAlterNet,
    AuthorsPreActResNet,
)
from tests.contract import call, check_key_map, to_numpy
from tests.golden.alternet_tables import described
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

SMALL = {
    "depths": [1, 2, 4],
    "attention_depths": [0, 1, 1],
    "bottleneck": True,
    "stem": "cifar",
    "widths": [2, 3, 4],
    "stem_width": 4,
    "num_heads": [1, 2, 3],
    "head_width": 3,
    "window_size": 2,
}
ATTENTION = {"attention_depths", "num_heads", "head_width", "window_size"}
TWIN = {key: value for key, value in SMALL.items() if key not in ATTENTION}


def small(builder="AlterNet", **changes):
    numbers = SMALL if builder == "AlterNet" else TWIN
    kwargs = {**numbers, "image_size": (8, 16), "num_classes": 5, **changes}
    return filled(getattr(kerasvit, builder)(**kwargs))


def filled(model):
    rng = np.random.default_rng(0)
    for variable in model.weights:
        values = rng.normal(size=variable.shape, scale=0.5)
        if variable.path.endswith("moving_variance"):
            values = 1 + np.abs(values)
        variable.assign(values)
    return model


def images(batch=3, height=8, width=16):
    shape = (batch, height, width, 3)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


EVERY = [
    ("AlterNet", {}),
    ("AlterNet", {"bottleneck": False, "stochastic_depth": 0.1}),
    ("AlterNet", {"stem": "imagenet", "image_size": 32}),
    ("AlterNet", {"num_classes": 0}),
    ("AlterNet", {"normalization": {"mean": [0.5] * 3, "std": [0.5, 0.25, 0.2]}}),
    ("PreActResNet", {"image_size": (9, 15)}),
    ("PreActResNet", {"bottleneck": False, "stem": "imagenet"}),
]


@pytest.mark.parametrize("builder, changes", mainly_on_last(EVERY), ids=str)
def test_files_give_the_same_logits_and_record(builder, changes, tmp_path):
    model = small(builder, **changes)
    x = images(2, *model.input_shape[1:3])
    logits = to_numpy(call(model, x))
    model.save(tmp_path / "model.keras")
    whole = keras.saving.load_model(tmp_path / "model.keras")
    assert whole.record == model.record == json.loads(json.dumps(model.record))
    assert [w.path for w in whole.weights] == [w.path for w in model.weights]
    np.testing.assert_allclose(to_numpy(call(whole, x)), logits, rtol=1e-5, atol=1e-5)
    kerasvit.save_pretrained(model, tmp_path)
    folder = kerasvit.from_pretrained(tmp_path)
    assert folder.record == model.record
    np.testing.assert_allclose(to_numpy(call(folder, x)), logits, rtol=1e-5, atol=1e-5)


def test_works_at_any_size_that_the_windows_cover():
    model = small()
    larger = kerasvit.resize(model, (16, 24))
    assert larger.record["kwargs"]["image_size"] == [16, 24]
    x = images(1, 16, 24)
    assert np.isfinite(to_numpy(call(larger, x))).all()
    for a, b in zip(model.weights, larger.weights):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))


def test_odd_sizes_that_round_up_to_whole_windows_fit():
    assert small(image_size=(7, 15)).output_shape == (None, 5)


def torch_names(model, source, tmp_path, **changes):
    """The model's weights with the names and shapes of the authors' code."""
    from safetensors.numpy import save_file

    arrays = {w.path: to_numpy(w) for w in model.weights}
    tensors = source.key_map(model.record["kwargs"]).write(arrays)
    for name in [name for name in tensors if name.endswith("running_mean")]:
        counter = name.replace("running_mean", "num_batches_tracked")
        tensors[counter] = np.array(7, "int64")
    path = tmp_path / "state.safetensors"
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, path)
    return path, tensors


@pytest.mark.parametrize(
    "builder, changes", mainly_on_last(EVERY[:3] + EVERY[5:]), ids=str
)
def test_key_map_works_both_ways(builder, changes, tmp_path):
    sources = {"AlterNet": AuthorsAlterNet, "PreActResNet": AuthorsPreActResNet}
    source = sources[builder]()
    model = small(builder, **changes)
    check_key_map(source.key_map(model.record["kwargs"]), model)
    path, _ = torch_names(model, source, tmp_path)
    kwargs = dict(model.record["kwargs"])
    # The tensors determine these settings, but not the number and size of heads.
    hard = {
        key: kwargs[key]
        for key in ("depths", "attention_depths", "bottleneck", "stem")
        if key in kwargs
    }
    soft = {
        key: kwargs[key]
        for key in ("num_heads", "head_width", "image_size")
        if key in kwargs
    }
    variant = kerasvit.Variant(None, getattr(kerasvit, builder), **hard)
    again = variant(path, **soft)
    assert again.record["origin"] == "how_do_vits_work"
    rate = {"stochastic_depth": kwargs["stochastic_depth"]}
    assert {**again.record["kwargs"], **rate} == kwargs
    x = images(2, *model.input_shape[1:3])
    np.testing.assert_array_equal(to_numpy(call(again, x)), to_numpy(call(model, x)))


@on_last_backend
def test_names_and_shapes_are_those_of_the_original(tmp_path):
    _, tensors = torch_names(small(), AuthorsAlterNet(), tmp_path)
    shapes = {
        "layer0.layer0.0.weight": (4, 3, 3, 3),
        "layer2.0.bn.running_var": (8,),
        "layer2.0.conv2.2.weight": (3, 3, 3, 3),
        "layer2.0.conv3.0.weight": (3,),
        "layer2.0.shortcut.0.weight": (12, 8, 1, 1),
        "layer2.1.norm1.weight": (12,),
        "layer2.1.conv.weight": (3, 12, 1, 1),
        "layer2.1.norm2.bias": (3,),
        "layer2.1.attn.pos_embedding": (3, 3),
        "layer2.1.attn.attn.to_q.weight": (6, 3, 1, 1),
        "layer2.1.attn.attn.to_kv.weight": (12, 3, 1, 1),
        "layer2.1.attn.attn.to_out.0.weight": (12, 6, 1, 1),
        "layer2.1.attn.attn.to_out.0.bias": (12,),
        "classifier.0.bn.running_mean": (16,),
        "classifier.0.dense.weight": (5, 16),
    }
    assert {name: tensors[name].shape for name in shapes} == shapes


@on_last_backend
def test_another_variants_checkpoint_is_named(tmp_path):
    path, _ = torch_names(small(), AuthorsAlterNet(), tmp_path)
    with pytest.raises(ValueError, match="holds a AlterNet, .*not the PreActResNet"):
        kerasvit.PreActResNet50(path)
    with pytest.raises(ValueError, match=r"stem cifar, not imagenet"):
        kerasvit.AlterNet50(path)


@on_last_backend
def test_heads_that_the_tensors_do_not_determine_raise(tmp_path):
    model = small()
    path, _ = torch_names(model, AuthorsAlterNet(), tmp_path)
    hard = ("depths", "attention_depths", "bottleneck", "stem")
    numbers = {key: model.record["kwargs"][key] for key in hard}
    variant = kerasvit.Variant(None, kerasvit.AlterNet, **numbers)
    with pytest.raises(ValueError, match="6 rows, .*give `num_heads`.*`head_width`"):
        variant(path, image_size=(8, 16), num_heads=[1, 2, 3])


@on_last_backend
def test_a_file_of_a_row_is_evaluated_as_that_row(tmp_path):
    model, row = small(), kerasvit.AlterNet50CIFAR
    path, _ = torch_names(model, AuthorsAlterNet(), tmp_path)
    numbers = {key: model.record["kwargs"][key] for key in row.numbers}
    numbers |= {"evaluation": row.evaluation, "image_size": 32}
    of_file = kerasvit.Variant("Small", kerasvit.AlterNet, **numbers)
    transform = of_file.preprocessing(path)
    assert transform == row.preprocessing()
    with pytest.raises(ValueError, match="depths"):
        row.preprocessing(path)  # of another model
    assert transform.size == (32, 32) and transform.crop == 1.0
    assert transform.mean == (0.5071, 0.4867, 0.4408)
    assert kerasvit.AlterNet50.preprocessing().mean == (0.485, 0.456, 0.406)


@on_last_backend
def test_fixtures_have_the_layers_of_the_original():
    from tests.golden.runner import FAMILIES
    from tests.golden.test_golden import CASES, ROOT

    for name in ("alternet_basic", "alternet_bottleneck"):
        case = CASES[name]
        files = {key: ROOT / path for key, path in case["files"].items()}
        size = np.load(files["input"]).shape[1:3]
        model = FAMILIES["alternet"].build(case, files["checkpoint"], size)
        assert described(model) == case["layer_table"]


@on_last_backend
def test_stochastic_depth_grows_over_all_units():
    model = small(stochastic_depth=0.6)
    units = [layer for layer in model.layers if "_unit_" in layer.name]
    rates = [unit.stochastic_depth for unit in units]
    np.testing.assert_allclose(rates, [0.1 * i for i in range(7)])
    assert kerasvit.AlterNet50CIFAR100.defaults["stochastic_depth"] == 0.1


def test_bfloat16_is_close_and_ends_in_float32():
    exact = to_numpy(call(small(), images()))
    keras.config.set_dtype_policy("mixed_bfloat16")
    logits = call(small(), images())
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert np.abs(to_numpy(logits) - exact).max() < 0.1 * np.abs(exact).max()


def test_built_in_normalisation_takes_pixels():
    mean, std = [0.5, 0.4, 0.3], [0.5, 0.25, 0.2]
    model = small(normalization={"mean": mean, "std": std})
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 16, 3)).astype("float32")
    expected = to_numpy(call(small(), ((pixels / 255 - mean) / std).astype("float32")))
    np.testing.assert_allclose(
        to_numpy(call(model, pixels)), expected, rtol=1e-3, atol=1e-3
    )


# torch.compile takes a minute for a model of this size, as do JAX's single operations.
# On TensorFlow one of the two is compiled.
BACKEND = keras.backend.backend()
COMPILED = {"AlterNet": BACKEND != "torch", "PreActResNet": BACKEND == "jax"}


@long_elsewhere
@pytest.mark.parametrize("builder, jit_compile", COMPILED.items())
def test_trains_inside_sam(builder, jit_compile):
    model = small(builder, stochastic_depth=0.1)
    before = [to_numpy(w) for w in model.weights]
    trainer = kerasvit.SAM(model, rho=0.05)
    trainer.compile(
        keras.optimizers.SGD(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    trainer.fit(images(4), np.arange(4), batch_size=4, verbose=0)
    for weight, old in zip(model.weights, before):
        assert np.isfinite(to_numpy(weight)).all(), weight.path
        # The normalisation after the stage removes a constant of a channel.
        moved = np.abs(to_numpy(weight) - old).max() > 0
        assert moved or weight.path.endswith("attention/output/bias"), weight.path


@on_last_backend
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image_size": 12}, "map of 3 × 3, which `image_size` 12 × 12 .*of 8 fit.*16"),
        ({"image_size": 8, "stem": "imagenet"}, "Multiples of 32 fit.*32 × 32"),
        ({"window_size": 3}, "Multiples of 12 fit.*12 × 12"),
        ({"attention_depths": [0, 1, 3]}, "at most half.*depths=.1, 2, 4."),
        ({"attention_depths": [0, 1]}, "`attention_depths`.*3 integers"),
        ({"depths": []}, "`depths`"),
        ({"depths": [1, 0, 4]}, "`depths`.*in .1, 1000..*0"),
        ({"widths": [2, 3]}, "`widths`.*3 integers"),
        ({"num_heads": 3}, "`num_heads`.*3 integers"),
        ({"head_width": 0}, "`head_width`"),
        ({"window_size": 0}, "`window_size`"),
        ({"bottleneck": "yes"}, "`bottleneck`.*'yes'"),
        ({"stem": "b"}, "`stem`.*imagenet.*cifar.*'b'"),
        ({"stem_width": 0}, "`stem_width`"),
        ({"num_classes": -1}, "`num_classes`"),
        ({"stochastic_depth": 1}, "`stochastic_depth`"),
        ({"image_size": "8"}, "`image_size`"),
        ({"normalization": True}, "`normalization`"),
    ],
)
def test_a_wrong_argument_suggests_the_right_one(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)
