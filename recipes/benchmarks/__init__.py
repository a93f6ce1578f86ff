"""Times kerasvit and other libraries on this machine. Run from the repository root:

    python -m recipes.benchmarks forward    # ViT-B/16 at 224, inference
    python -m recipes.benchmarks train      # ViT-S/16 at 224, one AdamW step
    python -m recipes.benchmarks train --model BiTR50x1     # any other model
    python -m recipes.benchmarks sam        # plain, SAM, LookSAM: seconds and memory
    python -m recipes.benchmarks load       # ViT-B/16 from a file: seconds and memory
    python -m recipes.benchmarks import     # time that kerasvit adds to `import keras`
    python -m recipes.benchmarks data       # images per second of the input pipeline
    python -m recipes.benchmarks hessian    # an eigenvalue of ViT-S/16 and PyHessian's
    python -m recipes.benchmarks int8 --folder runs/pets    # exports of a training
    python -m recipes.benchmarks serve      # the ways to answer with ViT-S/16
    python -m recipes.benchmarks results    # the saved results, as Markdown

    python -m recipes.benchmarks.exports    # the table of exports in MEASURED.md

All implementations of a measurement run in turns in one process: a round times one step
of each, and a ratio is the median over rounds, so that a change in the machine's speed
affects all. KERAS_BACKEND sets the backend; without it, `sam`, `load`, `import` and
`hessian` run on every installed backend, each in a separate process. Results are
printed and saved in runs/benchmarks/. recipes/MEASURED.md has measured results.
"""
