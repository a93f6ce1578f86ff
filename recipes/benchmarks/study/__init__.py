"""Studies of SAM with small models. Run from the repository's root:

python -m recipes.benchmarks.study                # Table 1 of arXiv 2106.01548, small
python -m recipes.benchmarks.study claim          # whether SAM helps with few images
python -m recipes.benchmarks.study optimizers     # SGD, AdamW and SAM, several rates

A command computes in one thread. Started several times, its processes share the
trainings; stopped, the same command goes on.
"""
