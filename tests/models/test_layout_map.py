"""Which variables `layout_map` splits over devices.

tests/training/jax_devices.py has the steps on several devices.
"""

import keras
import pytest

import kerasvit

pytestmark = pytest.mark.slow

SIZES = {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 12, "patch_size": 4}
SMALL = {**SIZES, "image_size": 8, "num_classes": 3}


def mesh(axes=("batch", "model")):
    # Only names: these devices need not exist.
    return keras.distribution.DeviceMesh((1, 2), list(axes), ["cpu:0", "cpu:1"])


def split(model, layout):
    axes = {}
    for variable in model.variables:
        found = layout[variable.path]
        if found is not None:
            assert len(found.axes) == len(variable.shape), variable.path
            axes[variable.path] = found.axes
    return axes


def block(name):
    columns, rows = (None, "model"), ("model", None)
    return {
        f"{name}/attention/query/kernel": columns,
        f"{name}/attention/query/bias": ("model",),
        f"{name}/attention/key/kernel": columns,
        f"{name}/attention/key/bias": ("model",),
        f"{name}/attention/value/kernel": columns,
        f"{name}/attention/value/bias": ("model",),
        f"{name}/attention/output/kernel": rows,
        f"{name}/mlp/dense_0/kernel": columns,
        f"{name}/mlp/dense_0/bias": ("model",),
        f"{name}/mlp/dense_1/kernel": rows,
    }


def test_a_vit_is_split_in_its_blocks_and_nowhere_else():
    model = kerasvit.VisionTransformer(**SMALL)
    layout = kerasvit.layout_map(mesh())
    assert split(model, layout) == block("encoder_block_0")


def test_pooling_by_attention_and_layer_scale_too():
    model = kerasvit.VisionTransformer(**SMALL, pool="attention", layer_scale=0.1)
    layout = kerasvit.layout_map(mesh())
    assert split(model, layout) == {**block("encoder_block_0"), **block("pool")}


def test_the_gate_of_an_mlp_is_split_as_its_hidden_layer():
    model = kerasvit.VisionTransformer(**SMALL, mlp="swiglu")
    gate = {
        "encoder_block_0/mlp/gate/kernel": (None, "model"),
        "encoder_block_0/mlp/gate/bias": ("model",),
    }
    found = split(model, kerasvit.layout_map(mesh()))
    assert found == {**block("encoder_block_0"), **gate}


def test_both_mlps_of_mixer():
    model = kerasvit.MLPMixer(
        patch_size=4,
        width=8,
        depth=1,
        tokens_mlp_dim=4,
        channels_mlp_dim=12,
        image_size=8,
        num_classes=3,
    )
    found = split(model, kerasvit.layout_map(mesh()))
    assert found == {
        f"mixer_block_0/{kind}_mixing/{rest}": axes
        for kind in ("token", "channel")
        for rest, axes in {
            "dense_0/kernel": (None, "model"),
            "dense_0/bias": ("model",),
            "dense_1/kernel": ("model", None),
        }.items()
    }


def test_the_axis_has_any_name_that_the_mesh_knows():
    layout = kerasvit.layout_map(mesh(("data", "parts")), axis="parts")
    assert layout["encoder_block_3/mlp/dense_1/kernel"].axes == ("parts", None)
    with pytest.raises(ValueError, match="`axis` must be one of the mesh's"):
        kerasvit.layout_map(mesh(), axis="parts")
