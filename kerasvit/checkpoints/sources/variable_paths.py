"""Our own format: variable paths, for models that timm cannot express."""

from ..key_map import KeyMap
from .google_hybrid import stride

ORIGIN = "kerasvit"
BUILDERS = ()  # any: the configuration says which
KERNEL = "bicubic_antialias"


def recognises(names) -> bool:
    """Whether the names are variable paths of ours."""
    return any(name.endswith("_norm/gamma") for name in names)


def own_name(name):
    """The name as it is."""
    return name


def dropped(name, names):
    """Why a tensor of the file is left out on purpose, or None."""
    return None


def sizes(shapes, config):
    """The folder's `config.json` says it all."""
    return {}


def builder_changes(shapes, config):
    """The folder's `config.json` says it all."""
    return {}


def cells(shapes, kwargs):
    """(name of the position table, cells it covers, pixels a cell), or None.

    The folder's `config.json` says it all, but for hybrids: the last of their cells may
    be only in part in the image.
    """
    if "resnet_depths" not in kwargs:
        return None
    name = "position_embedding/table"
    rows = shapes[name][1] - (kwargs["pool"] == "token")
    return name, rows, kwargs["patch_size"] * stride(kwargs)


def image_size(config):
    """The folder's `config.json` says it in its own block."""
    return None


def label_names(config):
    """Names of the classes, or None."""
    return config.get("label_names")


def key_map(kwargs, shapes=None) -> KeyMap:
    """Every name is its own path."""
    return KeyMap(("{path}", "{path}"))
