"""Flax names that all `.npz` files of vit_jax and big_vision share."""

ORIGIN = "vision_transformer"
KERNEL = "corner_linear"  # vit_jax/checkpoint.py, interpolate_posembed


def own_name(name):
    """The name without the tree it was saved in."""
    # A training state keeps the weights beside the optimiser's moments.
    return name.removeprefix("opt/target/").removeprefix("params/")


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    if name.startswith(("opt/state/", "opt/", "extra/")) or name in ("step", "epoch"):
        return "state of the optimiser"
    return None


def image_size(config):
    """An `.npz` says nothing of it."""
    return None


def label_names(config):
    """An `.npz` says nothing of them."""
    return None


def dense(name, path):
    """Rules of a dense layer or convolution."""
    return (
        (f"{name}/kernel", f"{path}/kernel"),
        (f"{name}/bias", f"{path}/bias"),
    )


def norm(name, path):
    """Rules of a normalisation."""
    return (f"{name}/scale", f"{path}/gamma"), (f"{name}/bias", f"{path}/beta")
