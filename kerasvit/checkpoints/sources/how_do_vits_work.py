"""Tensor names that all files of xxxnell/how-do-vits-work share.

Names as models/preresnet_dnn_block.py and models/classifier_block.py write them. The
authors' `.pth.tar` files are pickles, which are not read; the dictionary `state_dict`
in them, saved by `safetensors.torch.save_file`, is.
"""

from ..key_map import CONVOLUTION, torch_dense, torch_norm

ORIGIN = "how_do_vits_work"
KERNEL = "bicubic_antialias"  # no tensor depends on the image size

_UNIT = {"layer1.0.bn.weight", "layer1.0.conv1.weight", "classifier.0.bn.weight"}


def recognises_with(names, stem) -> bool:
    """Whether the names are of pre-activation units behind a stem of that name."""
    return stem in names and names >= _UNIT


def own_name(name):
    """The name without what parallel training put around it."""
    return name.removeprefix("module.")


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    if name.endswith(".num_batches_tracked"):
        return "count of the batches seen, which a momentum makes needless"
    return None


def cells(shapes, kwargs):
    """No tensor depends on the image size."""
    return None


def image_size(config):
    """A state dict says nothing of it."""
    return None


def label_names(config):
    """A state dict says nothing of them."""
    return None


def stages(shapes):
    """For each stage the names' beginnings of its units, such as "layer1.0."."""
    units = sorted(
        {
            tuple(int(number) for number in name.removeprefix("layer").split(".")[:2])
            for name in shapes
            if name.startswith("layer") and not name.startswith("layer0.")
        }
    )
    last = units[-1][0]
    return [
        [f"layer{i}.{j}." for stage, j in units if stage == i]
        for i in range(1, last + 1)
    ]


def sizes_of(shapes, stem):
    """What both architectures' tensors say of their numbers."""
    return {
        "depths": [len(units) for units in stages(shapes)],
        "bottleneck": "layer1.0.conv3.2.weight" in shapes,
        "stem": "imagenet" if shapes[stem][-1] == 7 else "cifar",
    }


def changes_of(shapes, stem):
    """What both architectures' tensors say of the rest."""
    return {
        "num_classes": shapes.get("classifier.0.dense.weight", (0,))[0],
        "widths": [shapes[f"{first}conv1.weight"][0] for first, *_ in stages(shapes)],
        "stem_width": shapes[stem][0],
    }


def batch_norm(name, path):
    """Rules of a batch normalisation."""
    return (
        *torch_norm(name, path),
        (f"{name}.running_mean", f"{path}/moving_mean"),
        (f"{name}.running_var", f"{path}/moving_variance"),
    )


def ends(stem):
    """Rules of the stem, the last normalisation and the head."""
    return (
        (stem, "stem/kernel", CONVOLUTION),
        *batch_norm("classifier.0.bn", "final_norm"),
        *torch_dense("classifier.0.dense", "head"),
    )


def conv_units(theirs, ours):
    """Rules of a stage's convolutional units."""
    return (
        *batch_norm(theirs + "bn", ours + "norm_0"),
        (theirs + "conv1.weight", ours + "conv_0/kernel", CONVOLUTION),
        *batch_norm(theirs + "conv2.0", ours + "norm_1"),
        (theirs + "conv2.2.weight", ours + "conv_1/kernel", CONVOLUTION),
        *batch_norm(theirs + "conv3.0", ours + "norm_2"),
        (theirs + "conv3.2.weight", ours + "conv_2/kernel", CONVOLUTION),
        (theirs + "shortcut.0.weight", ours + "projection/kernel", CONVOLUTION),
    )
