"""The setting of scripts that load weights: which of several models in a file.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weights:
    """The weights that are loaded."""

    # of several models in the file, such as ema or teacher.backbone; None: the only one
    state: str | None = None
