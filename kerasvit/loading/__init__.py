"""Loading of checkpoints into models in four steps: find, resolve, build, assign.

`load.load` runs the four steps. Only this package uses model builders together with the
packages `hub` and `checkpoints`. `kerasvit.models.variant` calls it.
"""
