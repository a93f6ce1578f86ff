"""Classification heads: whether the head of loaded weights has the images' classes.

print(heads.reset_unless_same_classes(model, label_names))
"""

import re

import numpy as np

from kerasvit.fine_tuning import heads_of


def reset_unless_same_classes(model, label_names: list[str]) -> str:
    """Sets a loaded head to zeros if it has other classes than the images.

    kerasvit keeps a head if the number of classes is the same, even if the classes are
    not.

    Args:
        model: `ImageModel`, built with weights and the number of classes.
        label_names: Names of the images' classes, in the order of the labels.

    Returns:
        A sentence that states which head the model has and why.
    """
    count, named = len(label_names), model.record["label_names"]
    heads = heads_of(model)
    if not any(np.any(weight) for head in heads for weight in head.get_weights()):
        return f"Head: zeros, because the weights have none for {count} classes."
    if same_classes(named, label_names):
        return f"Head: that of the weights, because it has the same {count} classes."
    model.card = None  # that of another classifier
    for head in heads:
        head.set_weights([np.zeros_like(weight) for weight in head.get_weights()])
    if named is None:
        return (
            f"Head: zeros; the weights have one for {count} classes, but do not name "
            "them."
        )
    theirs = "ImageNet's" if isinstance(named, str) else f"{', '.join(named[:3])}, …"
    return f"Head: zeros; that of the weights is for {theirs}."


def same_classes(named, label_names: list[str]) -> bool:
    """Returns whether weights and images have the same classes in the same order.

    Args:
        named: `label_names` of a model's record: a list, "imagenet1k" or None.
        label_names: Names of the images' classes. "imagenet1k" equals the 1,000 sorted
            WordNet numbers, such as n01440764, of datasets and folders of ImageNet.
    """
    if named == "imagenet1k":
        numbers = all(re.fullmatch(r"n\d{8}", name) for name in label_names)
        return (
            numbers and len(label_names) == 1000 and sorted(label_names) == label_names
        )
    return named == label_names
