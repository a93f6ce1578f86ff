"""Checkpoints made with the originals' own code, and every activation they gave.

The cases are described by `manifest.json`: what made each (repository and commit), its
numbers and files. `python -m tests.golden DIR` checks all cases of such a directory.
"""
