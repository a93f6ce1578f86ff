"""Loads checkpoints into models: find, resolve, build, assign.

`load.load` is the four steps. This room is the only one that sees builders of models
and the rooms `hub` and `checkpoints`; `kerasvit.models.variant` calls it.
"""
