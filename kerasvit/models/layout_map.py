"""`layout_map`: the split of a Transformer's variables over devices."""

import keras

# {path: axes}, with 1 for the axis that is split. The first product of a branch is
# split by columns and the second by rows, so that devices communicate once per branch,
# to add their results.
SPLIT = {
    r".*attention/(query|key|value)/kernel": (0, 1),
    r".*attention/(query|key|value)/bias": (1,),
    r".*attention/output/kernel": (1, 0),
    r".*(mlp|mixing)/(dense_0|gate)/kernel": (0, 1),
    r".*(mlp|mixing)/(dense_0|gate)/bias": (1,),
    r".*(mlp|mixing)/dense_1/kernel": (1, 0),
}


def layout_map(
    device_mesh: keras.distribution.DeviceMesh, axis: str = "model"
) -> keras.distribution.LayoutMap:
    """Returns a `LayoutMap` that splits a ViT's blocks over devices.

    The heads and the MLP's hidden units are distributed: each device holds a share of
    every block's weights, of their gradients and of the optimizer's variables.
    Embeddings, norms and the head, a few per cent of ViT-B/16, are on every device.

        mesh = keras.distribution.DeviceMesh((2, 4), ["batch", "model"])
        layout = kerasvit.layout_map(mesh)
        with keras.distribution.ModelParallel(layout_map=layout).scope(): ...

    Build, compile and fit the model inside the scope (JAX). The map splits the blocks
    of `VisionTransformer`, DeiT, BEiT, hybrids, Swin and PiT, both MLPs of Mixers and
    the attention of AlterNets, and nothing in BiTs. The number of devices along the
    axis must divide the width and the MLP's size; otherwise JAX raises a `ValueError`.
    If it does not divide the number of heads, the results are the same but devices
    communicate more.

    Args:
        device_mesh: Mesh with an axis for the batch, which may have size 1, and an axis
            for the model.
        axis: Name of the model axis.

    Returns:
        Map of variable paths; further entries can be added.

    Raises:
        ValueError: The mesh has no such axis.

    Reference: Shoeybi et al. 2019, arXiv 1909.08053, section 3.
    """
    if axis not in device_mesh.axis_names:
        raise ValueError(
            "`axis` must be one of the mesh's axes, over which variables are split. "
            f"Received: axis={axis!r} and {device_mesh}."
        )
    layout = keras.distribution.LayoutMap(device_mesh)
    for path, axes in SPLIT.items():
        layout[path] = tuple(axis if split else None for split in axes)
    return layout
