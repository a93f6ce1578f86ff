"""Scripts to read, run and change: `python recipes/finetune.py`, or `python -m`."""

import sys
from pathlib import Path

# The scripts import each other from their folder.
sys.path.insert(0, str(Path(__file__).parent))
