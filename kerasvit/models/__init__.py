# ruff: noqa: F403
"""Models: one module per architecture, one line per variant.

A family's `__all__` lists its public names; `kerasvit` exports them.
"""

from kerasvit.patterns import chosen, near

from .alternet import *
from .beit import *
from .bit import *
from .builder import BuilderOf
from .deit import *
from .hybrid import *
from .image_model import ImageModel as ImageModel
from .layout_map import layout_map as layout_map
from .mixer import *
from .pit import *
from .resnext import *
from .rotary_vit import *
from .swin import *
from .variant import Variant as Variant
from .vit import *
from .vit_ablation import *

VARIANTS = tuple(each for each in [*globals().values()] if isinstance(each, Variant))
# {name in a record: builder}; each has variants.
BUILDERS: dict[str, BuilderOf[...]] = {
    variant.builder.__name__: variant.builder for variant in VARIANTS
}


class Names(list[str]):
    """A list of names; an empty one prints the available names."""

    empty = "[]"

    def __repr__(self) -> str:
        return super().__repr__() if self else self.empty


def list_models(pattern: str = "*") -> Names:
    """Returns the names of the variants; each is a `Variant` in `kerasvit`.

    Args:
        pattern: Part of a name such as "vit", or a shell pattern of a complete name
            such as "vits*". Case is ignored.

    Returns:
        List of str. An empty list prints as a sentence with the nearest names.

    Raises:
        ValueError: The pattern is not a string.
    """
    names = [variant.name for variant in VARIANTS if variant.name]
    matches = Names(chosen(names, pattern))
    if not matches:
        matches.empty = (
            f"[]: no model matches {pattern!r:.80}. Nearest: "
            f"{', '.join(near(names, pattern)) or 'none'}. All: {', '.join(names)}."
        )
    return matches
