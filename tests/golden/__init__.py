"""Checkpoints and activations that the original code computed.

The cases are described by `manifest.json`: what made each (repository and commit), its
numbers and files. `python -m tests.golden DIR` checks all cases of such a directory,
and `record.py` writes a new one of a torch model.
"""
