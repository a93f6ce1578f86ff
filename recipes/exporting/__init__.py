"""Exports models to the formats of other runtimes; `export.py` is the command."""
