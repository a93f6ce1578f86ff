"""Times kerasvit on this machine, beside other libraries. Run from the repository root:

    python -m recipes.benchmarks forward    # ViT-B/16 at 224, inference
    python -m recipes.benchmarks train      # ViT-S/16 at 224, one AdamW step
    python -m recipes.benchmarks train --model BiTR50x1     # or any other model
    python -m recipes.benchmarks sam        # plain, SAM, LookSAM: seconds and memory
    python -m recipes.benchmarks load       # ViT-B/16 from a file: seconds and memory
    python -m recipes.benchmarks import     # what kerasvit adds to `import keras`
    python -m recipes.benchmarks data       # images per second of the input pipeline
    python -m recipes.benchmarks table      # the results so far, as Markdown

    python -m recipes.benchmarks.study      # what SAM changes: accuracy and sharpness

The contenders of a measurement run in one process and take turns: a round times one
step of each, and a ratio is the median over rounds, so that a machine that slows down
slows all. The backend is that of KERAS_BACKEND; without it, `sam`, `load` and `import`
run on every installed backend, each in its own process. Results are printed and saved
in runs/benchmarks/. Measured: recipes/README.md, and for `sam`
kerasvit/training/README.md.
"""

import sys
from pathlib import Path

# The recipes are scripts: they import each other from their own folder.
sys.path.insert(0, str(Path(__file__).parents[1]))
