"""Checkpoint sources: one class per code base and architecture.

`Source` is the interface. A new source is a module here with a subclass, which
`known.py` lists: in `TIMM` if it is a `TimmSource`, else in `SOURCES`. Modules named
after a code base alone, such as `timm` and `google`, contain what its classes share.
`SavedFolder` reads what `save_pretrained` wrote.
"""

from collections.abc import Iterable

from ..config import Config
from .known import CODE_BASES as CODE_BASES
from .known import SOURCES as SOURCES
from .known import TIMM
from .known import VARIABLE_PATHS as VARIABLE_PATHS
from .known import resampling_kernel as resampling_kernel
from .known import timm_source as timm_source
from .saved import FORMAT as FORMAT
from .saved import SavedFolder
from .source import Source as Source
from .timm import normalized as normalized


def source_of(names: Iterable[str], config: Config) -> Source | None:
    """Returns the source that can read a file, or None.

    Args:
        names: Names of the tensors in the file.
        config: Content of the config.json beside the file.

    Raises:
        CheckpointError: The record in config.json is damaged or has a newer format.
    """
    if config.get("kerasvit"):
        return SavedFolder(names, config)
    names = list(names)
    for source in SOURCES:
        if source.recognises({source.short_name(name) for name in names}):
            if source in TIMM:  # whose names some models share
                return next((one for one in TIMM if one.named(config)), source)
            return source
    return None
