"""What all of timm's state dicts share, and the `config.json` beside them."""

ORIGIN = "timm"
KERNEL = "bicubic_antialias"  # timm/layers/pos_embed.py, resample_abs_pos_embed


def own_name(name):
    """The name without what a training script put around it."""
    return name.removeprefix("module.")


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    return None


def model_args(config):
    """The arguments of timm's model that the configuration names."""
    return config.get("model_args") or {}


def image_size(config):
    """(height, width) that the configuration names, or None."""
    size = model_args(config).get("img_size")
    if size is None:
        size = (config.get("pretrained_cfg") or {}).get("input_size", (None,))[1:]
    if isinstance(size, int):
        size = (size, size)
    return tuple(size) or None


def label_names(config):
    """Names of the classes, or None."""
    names = config.get("label_names")
    if isinstance(names, dict):
        names = [names[key] for key in sorted(names, key=int)]
    return names
