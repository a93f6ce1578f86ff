"""`kerasvit.features`: which features, their shapes and values, and bad arguments."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.layers import Block
from tests.contract import to_numpy
from tests.golden.family import recorded_values
from tests.golden.runner import FAMILIES, read_manifest
from tests.golden.test_golden import ROOT
from tests.models.tiny import TINY, VIT, tiny
from tests.once import mainly_on_last, on_last_backend
from tests.random_weights import randomised

X = np.random.default_rng(2).normal(size=(2, 16, 16, 3)).astype("float32")
DEEP = {**VIT, "depth": 3, "image_size": (8, 16), "num_classes": 3}
STAGES = {
    "SwinTransformer": {
        "width": 8, "depths": [1] * 4, "num_heads": [1, 1, 2, 2], "window_size": 2,
    },
    "AlterNet": {
        **TINY["AlterNet"], "stem": "imagenet", "depths": [1, 2, 2, 2],
        "attention_depths": [0, 1, 1, 1], "widths": [4] * 4, "num_heads": [1] * 4,
        "window_size": 2,
    },
    "PreActResNet": {
        **TINY["PreActResNet"], "stem": "imagenet", "depths": [1] * 4,
        "widths": [4] * 4,
    },
    "ResNeXt": {**TINY["ResNeXt"], "stem": "imagenet", "depths": [1] * 4},
    "BigTransfer": {"depths": [1] * 4, "width_factor": 0.5},
}  # fmt: skip
GOLDEN = {
    name: case for name, case in read_manifest(ROOT).items() if case["kind"] in FAMILIES
}


def arrays(model, x=X):
    """A list of the features, also of one block, which Keras does not put into one."""
    found = keras.tree.map_structure(to_numpy, model.predict_on_batch(x))
    return found if len(model.names) > 1 else [found]


def vit(**changes):
    return kerasvit.VisionTransformer(**{**DEEP, **changes})


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("name", STAGES)
def test_stages_have_four_levels(name):
    model = getattr(kerasvit, name)(**{**STAGES[name], "image_size": (64, 128)})
    levels = kerasvit.features(model)
    assert levels.strides == (4, 8, 16, 32)
    assert [tuple(x.shape) for x in levels.outputs] == [
        (None, 64 // stride, 128 // stride, channels)
        for stride, channels in zip(levels.strides, levels.channels, strict=True)
    ]
    last = [layer.name for layer in model.layers if isinstance(layer, Block)][-1]
    assert levels.names[-1] == last


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("name", TINY)
def test_the_map_of_every_block_is_the_image_over_the_stride(name):
    model = tiny(name, num_classes=0)
    blocks = [layer.name for layer in model.layers if isinstance(layer, Block)]
    found = kerasvit.features(model, blocks)
    assert found.names == tuple(blocks)
    sides = [16 // s for s in found.strides]
    if name == "PoolingVisionTransformer":  # the last patch fills two cells
        sides = [7, 4, 4]
    assert [x.shape[1] for x in found.outputs] == sides
    assert [x.shape[-1] for x in found.outputs] == list(found.channels)


@on_last_backend
def test_strides_are_those_of_the_layers_if_they_do_not_divide_the_image():
    model = kerasvit.BigTransfer(**STAGES["BigTransfer"], image_size=(33, 50))
    levels = kerasvit.features(model)
    assert levels.strides == (4, 8, 16, 32)
    assert [x.shape[1:3] for x in levels.outputs] == [(9, 13), (5, 7), (3, 4), (2, 2)]
    cropped = kerasvit.VisionTransformer(
        **{**VIT, "image_size": (10, 15)}, partial_patches=True
    )
    maps = kerasvit.features(cropped)
    assert maps.strides == (4,)
    assert maps.outputs[0].shape == (None, 2, 3, 16)


@on_last_backend
def test_a_hybrid_has_the_levels_of_its_resnet_and_of_its_encoder():
    arguments = {**TINY["HybridVisionTransformer"], "image_size": 64, "depth": 2}
    deep = {**arguments, "resnet_depths": [2, 1, 1], "patch_size": 1}
    found = kerasvit.features(kerasvit.HybridVisionTransformer(**deep))
    assert found.names == ("stage_0_unit_1", "stage_1_unit_0", "encoder_block_1")
    assert found.strides == (4, 8, 16)
    stem = {**arguments, "resnet_depths": [], "patch_size": 8}
    found = kerasvit.features(kerasvit.HybridVisionTransformer(**stem))
    assert found.strides == (32,)


@on_last_backend
def test_blocks_are_chosen_by_name_number_stage_and_stride_in_any_order():
    model = tiny("SwinTransformer")

    def names(*layers):
        return kerasvit.features(model, list(layers)).names

    assert names("stage_1_block_0", "stage_0_block_0") == (
        "stage_1_block_0",
        "stage_0_block_0",
    )
    last = ("stage_0_block_1", "stage_1_block_0")
    assert names(0, 1) == names("stage_0", "stage_1") == last
    assert names(-2, -1) == names("stride_4", "stride_8") == last
    assert kerasvit.features(model, range(2)).names == last
    assert kerasvit.features(vit(), np.int64(-1)).names == ("encoder_block_2",)
    assert kerasvit.features(vit(), [2, 0]).names == (
        "encoder_block_2",
        "encoder_block_0",
    )


def golden_blocks(model, family, case):
    """{recorded quantity: block}, and the quantity of the last normalisation."""
    recorded = recorded_values(ROOT / case["files"]["expected"])
    blocks, last = {}, None
    for quantity in recorded:
        tensor = family.tap(model, quantity)
        if not keras.backend.is_keras_tensor(tensor):
            continue
        operation = tensor._keras_history.operation
        if isinstance(operation, Block):
            blocks[quantity] = operation.name
        if operation.name in ("encoder_norm", "final_relu") and len(tensor.shape) > 2:
            last = quantity
    return recorded, blocks, last


CHOSEN = [
    *("timm_vit_reg4", "timm_swin_w4", "hf_bit", "timm_resnext"),
    *("alternet_basic", "mixer", "timm_deit_distilled", "timm_vit_gap_notoken"),
    "vit_token_rect",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *mainly_on_last(CHOSEN, everywhere=2),
        *(pytest.param(x, marks=pytest.mark.long) for x in GOLDEN if x not in CHOSEN),
    ],
)
def test_features_are_the_activations_of_the_original_code(name):
    case = GOLDEN[name]
    family = FAMILIES[case["kind"]]
    images = np.load(ROOT / case["files"]["input"])
    model = family.build(case, ROOT / case["files"]["checkpoint"], images.shape[1:3])
    recorded, blocks, last = golden_blocks(model, family, case)
    if not blocks:
        pytest.skip("no activation of a block is recorded")
    names = list(dict.fromkeys(blocks.values()))  # a stage is its last block
    values = compared(model, names, images, normalize=False)
    found = {quantity: values[name] for quantity, name in blocks.items()}
    if last:
        (found[last],) = compared(model, [-1], images).values()
    for quantity, array in found.items():
        expected = recorded[quantity]
        np.testing.assert_allclose(
            family.layout(model, quantity, array),
            expected,
            rtol=0,
            atol=2 * family.tolerance * np.abs(expected).max(),
            err_msg=quantity,
        )


def compared(model, layers, images, **options):
    """{block: features as the original has them}, after a comparison with the maps."""
    maps = kerasvit.features(model, layers, **options)
    cells = dict(zip(maps.names, arrays(maps, images), strict=True))
    blocks = [name for name in cells if "stage" not in name]
    if not blocks:
        return cells
    tokens = kerasvit.features(model, blocks, maps=False, **options)
    patches = tokens.outputs[0].shape[1]
    prefix = model.get_layer(blocks[0]).output.shape[1] - patches
    whole = tokens
    if prefix:
        whole = kerasvit.features(model, blocks, maps=False, prefix=True, **options)
    found = dict(zip(blocks, arrays(whole, images), strict=True))
    for name, rows in zip(blocks, arrays(tokens, images), strict=True):
        np.testing.assert_array_equal(rows, found[name][:, prefix:])
        height, width = cells[name].shape[1:3]
        assert height * width == patches
        assert height / width == images.shape[1] / images.shape[2]
        np.testing.assert_array_equal(cells[name].reshape(rows.shape), rows)
    return {**cells, **found}


TIMM = {
    "VisionTransformer": {**DEEP, "register_tokens": 2},
    "ViT that normalises after its pooling": {**DEEP, "pool": "average_then_norm"},
    "ViT without a head": {**DEEP, "num_classes": 0},
    "ViT with attention pooling": {**DEEP, "pool": "attention"},
    "CLIP": {
        **DEEP, "pre_norm": True, "patch_bias": False, "activation": "quick_gelu",
        "epsilon": 1e-5,
    },
    "DINOv2, giant": {**DEEP, "mlp": "swiglu", "layer_scale": 0.1, "num_classes": 0},
    "DistilledVisionTransformer": DEEP,
    "HybridVisionTransformer": {**DEEP, "patch_size": 2, "resnet_depths": []},
    "SwinTransformer": {
        "width": 8, "depths": [2, 2, 1], "num_heads": [1, 2, 2], "window_size": 2,
        "image_size": (32, 64), "num_classes": 3,
    },
    "PoolingVisionTransformer": {
        "patch_size": 4, "stride": 3, "width": 8, "depths": [1, 2], "num_heads": [1, 2],
        "distilled": True, "image_size": (17, 32), "num_classes": 3,
    },
    "BigTransfer": {
        "depths": [3, 4], "width_factor": 0.5, "conv_epsilon": 1e-8,
        "image_size": (32, 64), "num_classes": 3,
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM)
def test_features_are_those_of_timm(timm, name, tmp_path):
    builder = getattr(kerasvit, name, kerasvit.VisionTransformer)
    model = randomised(builder(**TIMM[name]))
    kerasvit.save_pretrained(model, tmp_path)
    import torch

    reference = timm.create_model(f"local-dir:{tmp_path}", pretrained=True)
    reference = reference.eval().requires_grad_(False)
    images = np.random.default_rng(1).normal(size=(2, *model.input_shape[1:]))
    images = images.astype("float32")
    stages = name in ("SwinTransformer", "BigTransfer", "PoolingVisionTransformer")
    prefix = not stages and "pooling" not in name
    for normalize in (True, False):
        options = {"return_prefix_tokens": True} if prefix else {}
        expected = reference.forward_intermediates(
            torch.from_numpy(images.transpose(0, 3, 1, 2)).clone(),
            norm=normalize,
            intermediates_only=True,
            **options,
        )
        if name == "BigTransfer":
            expected = expected[1:]  # the first is that of the stem
        layers = range(len(expected))
        ours = kerasvit.features(model, layers, prefix=prefix, normalize=normalize)
        found = keras.tree.flatten(arrays(ours, images))
        for array, tensor in zip(found, keras.tree.flatten(expected), strict=True):
            theirs = to_numpy(tensor)
            if theirs.ndim == 4:  # NCHW
                theirs = theirs.transpose(0, 2, 3, 1)
            largest = np.abs(theirs).max()
            np.testing.assert_allclose(array, theirs, rtol=0, atol=2e-5 * largest)


@on_last_backend
def test_the_graph_ends_with_the_last_block_that_is_asked_for():
    model = vit()
    found = kerasvit.features(model, ["encoder_block_1", "encoder_block_0"])
    names = [layer.name for layer in found.layers]
    assert "encoder_block_1" in names
    assert not {"encoder_block_2", "head"} & set(names)
    assert len(found.weights) < len(model.weights)
    raw = kerasvit.features(model, 1, normalize=False)
    assert "encoder_norm" not in [layer.name for layer in raw.layers]


@on_last_backend
def test_weights_are_those_of_the_model():
    model = tiny("BigTransfer")
    found = kerasvit.features(model)
    shared = {id(variable) for variable in model.weights}
    assert {id(variable) for variable in found.weights} < shared
    (before, _), logits = arrays(found), model.predict_on_batch(X)
    kernel = model.get_layer("root_conv").kernel
    kernel.assign(to_numpy(kernel)[::-1].copy())
    assert np.abs(arrays(found)[0] - before).max() > 0.1
    assert np.abs(model.predict_on_batch(X) - logits).max() > 0.01


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("name", ["VisionTransformer", "AlterNet"])
def test_the_model_computes_and_is_saved_as_before(name, tmp_path):
    model = tiny(name)
    config, logits = model.to_json(), to_numpy(model(X))
    kerasvit.features(model)
    kerasvit.features(model, -1, maps=False)
    assert model.to_json() == config
    np.testing.assert_array_equal(to_numpy(model(X)), logits)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(loaded(X)), logits, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_files_and_clones_keep_quantised_layers(tmp_path):
    model = vit()
    model.quantize("int8")
    found = kerasvit.features(model, 1)
    found.save(tmp_path / "features.keras")
    clone = keras.models.clone_model(found)
    clone.set_weights(found.get_weights())
    x = np.random.default_rng(0).normal(size=(2, 8, 16, 3)).astype("float32")
    for other in (keras.saving.load_model(tmp_path / "features.keras"), clone):
        modes = [each.dtype for each in kerasvit.weight_formats(other)]
        assert modes.count("int8") == 2 * 6  # four of the attention, two of the MLP
        np.testing.assert_allclose(arrays(other, x)[0], arrays(found, x)[0], atol=1e-6)


@pytest.mark.slow
@on_last_backend
def test_tokens_before_the_patches_are_the_second_of_a_pair():
    model = vit(register_tokens=2)
    x = np.zeros((2, 8, 16, 3), "float32")
    assert kerasvit.features(model)(x).shape == (2, 2, 4, 16)
    cells, tokens = kerasvit.features(model, 1, prefix=True)(x)
    assert cells.shape == (2, 2, 4, 16) and tokens.shape == (2, 3, 16)
    both = kerasvit.features(model, [0, 1], prefix=True)(x)
    np.testing.assert_array_equal(to_numpy(both[1][0]), to_numpy(cells))
    np.testing.assert_array_equal(to_numpy(both[1][1]), to_numpy(tokens))


@on_last_backend
def test_mixed_precision_returns_the_compute_dtype():
    for name in ("VisionTransformer", "SwinTransformer"):
        found = kerasvit.features(tiny(name, dtype="mixed_bfloat16"), prefix=False)
        assert {x.dtype for x in found.outputs} == {"bfloat16"}


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ("encoder_blok_1", "Did you mean encoder_block_1"),
        ("stride_8", "encoder_block_0 … encoder_block_2, stride_4. Received: 'stride_"),
        ("stage_0", "encoder_block_0 … encoder_block_2, stride_4"),
        (3, r"in \[-3, 2\], of encoder_block_0 … encoder_block_2"),
        (-4, r"in \[-3, 2\]"),
        (1.5, "or the name of a block"),
        (True, "or the name of a block"),
        ({"a": 1}, "or the name of a block"),
        ([None], "or the name of a block"),
        ([], "one or more different blocks"),
        ([0, "encoder_block_0"], "one or more different blocks"),
        (["stride_4", -1], "which are"),
    ],
)
def test_wrong_layers(layers, words):
    with pytest.raises(kerasvit.arguments.ArgumentError, match=words):
        kerasvit.features(vit(), layers)


@on_last_backend
def test_wrong_models_and_options():
    model = vit(pool="average")
    with pytest.raises(ValueError, match="encoder_block_2 has no class, dist"):
        kerasvit.features(model, prefix=True)
    with pytest.raises(ValueError, match="stage_0_unit_0 has no class, dist"):
        kerasvit.features(tiny("HybridVisionTransformer"), prefix=True)
    with pytest.raises(ValueError, match="`maps` must be one of True, False"):
        kerasvit.features(model, maps="yes")
    with pytest.raises(ValueError, match="For a trainer pass trainer.model"):
        kerasvit.features(kerasvit.SAM(model, 0.1))
    with pytest.raises(ValueError, match="Pass the model whose features these are"):
        kerasvit.features(kerasvit.features(model))
    other = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    for wrong in (other, 3, "ViTB16"):
        with pytest.raises(ValueError, match=r"keras.Model\(model.inputs"):
            kerasvit.features(wrong)
    part = keras.Model(model.input, model.get_layer("encoder_block_1").output)
    with pytest.raises(ValueError, match="must be one that kerasvit built"):
        kerasvit.features(part)
    with pytest.raises(ValueError, match="patch"):
        kerasvit.features(vit(image_size=3))


@pytest.mark.slow
@on_last_backend
def test_a_model_for_images_of_any_size_has_maps_of_stages_only():
    with pytest.raises(ValueError, match="Load it with an `image_size`"):
        kerasvit.features(vit(image_size=(None, None)))
    model = tiny("BigTransfer", image_size=(None, None))
    first, last = kerasvit.features(model)(X)
    assert first.shape == (2, 4, 4, 128) and last.shape == (2, 2, 2, 256)


def test_images_of_another_size():
    found = kerasvit.features(vit())
    with pytest.raises(ValueError, match="shape"):
        found(np.zeros((1, 3, 16, 3), "float32"))
