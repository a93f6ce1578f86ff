"""The papers' figures and tables: a file for each, NAME with "_" in place of "-".

A file has a docstring, whose first line `reproduce.py list` prints, and

    EXPERIMENT = Experiment(...)

with what is trained and measured, the paper's numbers and claims, the table and the
picture. `experiment.py` describes these parts, `trainings.py` has the small models and
the papers', and `laboratory.py` does the work.
"""
