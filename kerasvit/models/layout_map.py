"""A `LayoutMap` that splits a Transformer's variables over devices."""

import keras

# Path → axes, of which 1 is the split one. What a first product splits by columns, the
# second one takes by rows, so that devices meet once a branch, to add up.
SPLIT = {
    r".*attention/(query|key|value)/kernel": (0, 1),
    r".*attention/(query|key|value)/bias": (1,),
    r".*attention/output/kernel": (1, 0),
    r".*(mlp|mixing)/dense_0/kernel": (0, 1),
    r".*(mlp|mixing)/dense_0/bias": (1,),
    r".*(mlp|mixing)/dense_1/kernel": (1, 0),
}


def layout_map(
    device_mesh: keras.distribution.DeviceMesh, axis: str = "model"
) -> keras.distribution.LayoutMap:
    """Returns a `LayoutMap` that splits a ViT's blocks over devices.

    Heads and the MLP's hidden units are dealt out, so a device has its share of every
    block's weights, of their gradients and of what the optimizer keeps beside them.
    Embeddings, norms and the head, a few per cent of ViT-B/16, are on every device.

        mesh = keras.distribution.DeviceMesh((2, 4), ["batch", "model"])
        layout = kerasvit.layout_map(mesh)
        with keras.distribution.ModelParallel(layout_map=layout).scope(): ...

    Build, compile and fit inside the scope (JAX). The variables of `VisionTransformer`,
    DeiT, hybrids and Swin are split, of Mixer both MLPs, of AlterNet the attention, and
    of BiT none. The number of devices along the axis must divide the width and the
    MLP's size, or JAX raises a `ValueError`; where it does not divide the number of
    heads, results are the same but devices talk more.

    Args:
        device_mesh: With an axis for the batch, which may be 1 long, and one for the
            model.
        axis: Name of the latter.

    Returns:
        Map from variables' paths; more can be added to it.

    Raises:
        ValueError: The mesh has no such axis.

    Reference: Shoeybi et al. 2019, arXiv 1909.08053, section 3.
    """
    if axis not in device_mesh.axis_names:
        raise ValueError(
            "`axis` must be one of the mesh's, that over which variables are split. "
            f"Received: axis={axis!r} and {device_mesh}."
        )
    layout = keras.distribution.LayoutMap(device_mesh)
    for path, axes in SPLIT.items():
        layout[path] = tuple(axis if split else None for split in axes)
    return layout
