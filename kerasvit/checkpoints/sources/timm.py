"""Tensor names that all of timm's files share, and the `config.json` beside them."""

ORIGIN = "timm"
KERNEL = "bicubic_antialias"  # timm/layers/pos_embed.py, resample_abs_pos_embed


def own_name(name):
    """The name without what a training script put around it."""
    return name.removeprefix("module.")


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    return None


def unlike(kwargs, known):
    """In words, what timm's models do not have, or None where they have it all.

    Args:
        kwargs: Of the model.
        known: {argument: the values that timm's models can have}.
    """
    wrong = []
    for key, values in known.items():
        if kwargs[key] not in values:
            timms = " or ".join(dict.fromkeys(map(repr, values)))
            wrong.append(f"its {key} is {kwargs[key]!r}, timm's {timms}")
    return "; ".join(wrong) or None


def ratio(mlp_dim, width):
    """The number from which timm computes an MLP's hidden size."""
    # timm cuts the product off to an integer, which rounding may make one less.
    ratio = mlp_dim / width
    return ratio if int(ratio * width) == mlp_dim else (mlp_dim + 0.5) / width


def ends(first_conv, classifier, fixed_input_size=True):
    """What timm needs to fit a model to other channels, classes or sizes."""
    return {
        "first_conv": first_conv,
        "classifier": classifier,
        "fixed_input_size": fixed_input_size,
    }


def model_args(config):
    """The arguments of timm's model that the configuration names."""
    return config.get("model_args") or {}


def image_size(config):
    """(height, width) that the configuration names, or None."""
    size = model_args(config).get("img_size")
    return (size, size) if isinstance(size, int) else size and tuple(size)


def label_names(config):
    """Names of the classes, or None."""
    names = config.get("label_names")
    if isinstance(names, dict):
        names = [names[key] for key in sorted(names, key=int)]
    return names
