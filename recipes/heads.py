"""The heads of a model, and whether those of given weights fit the images' classes.

print(heads.settle(model, label_names))
"""

import re

import numpy as np

HEADS = ("head", "head_distillation")


def heads_of(model) -> list:
    """The model's last dense layers: one, or the two of a distilled DeiT."""
    return [layer for layer in model.layers if layer.name in HEADS]


def settle(model, label_names: list[str]) -> str:
    """Keeps a loaded head that is for the same classes; makes any other a fresh one.

    kerasvit keeps a head by the number of classes alone. One that is for other
    classes of the same number would have to be unlearned.

    Args:
        model: `ImageModel`, as it was built with weights and the number of classes.
        label_names: Of the images, in the order of their labels.

    Returns:
        A sentence that says which, and why.
    """
    count, named = len(label_names), model.record["label_names"]
    heads = heads_of(model)
    if not any(np.any(weight) for head in heads for weight in head.get_weights()):
        return f"Head: made afresh, as the weights have none for {count} classes."
    if fits(named, label_names):
        return f"Head: that of the weights fits; it is for the same {count} classes."
    for head in heads:
        head.set_weights([np.zeros_like(weight) for weight in head.get_weights()])
    if named is None:
        return (
            f"Head: made afresh; the weights have one for {count} classes, but do not "
            "name them."
        )
    theirs = "ImageNet's" if isinstance(named, str) else f"{', '.join(named[:3])}, …"
    return f"Head: made afresh; that of the weights is for {theirs}."


def fits(named, label_names: list[str]) -> bool:
    """Whether the classes of weights are those of the images, in the same order.

    Args:
        named: `label_names` of a model's record: a list, "imagenet1k" or None.
        label_names: Of the images. For "imagenet1k" the 1,000 sorted WordNet numbers,
            such as n01440764, fit: data sets and folders of ImageNet have these.
    """
    if named == "imagenet1k":
        numbers = all(re.fullmatch(r"n\d{8}", name) for name in label_names)
        return (
            numbers and len(label_names) == 1000 and sorted(label_names) == label_names
        )
    return named == label_names
