"""The scripts, started in two processes by the commands of recipes/SCALE.md.

Other tests import the functions of a script, and so miss what its start does to the
devices.
"""

import json
import re
from pathlib import Path

import pytest

from tests.once import long_elsewhere

from .device_processes import BACKEND, SECONDS, programs, running

RECIPES = Path(__file__).parents[2] / "recipes"
COMMANDS = {
    "pretrain.py": ["--dataset", "mnist_subset", "--share", "0.1", "--rho", "0.05"],
    "finetune.py": ["--share", "0.1", "--rho", "0.05", "--no-compare"],
}
SCRIPTS = [
    pytest.param("pretrain.py", marks=long_elsewhere),
    pytest.param("finetune.py", marks=pytest.mark.long),
]


def outputs(folder):
    """[lines that a process printed]; torchrun writes them into files of its own."""
    names = [f"{i}.log" for i in range(2)]
    if BACKEND == "torch":
        names = [f"torchrun/*/attempt_0/{i}/std*.log" for i in range(2)]
    printed = [
        [line for path in folder.glob(name) for line in path.read_text().splitlines()]
        for name in names
    ]
    # Gloo, which connects the processes of JAX and PyTorch, and TensorFlow's libraries
    # print notes in each.
    notes = re.compile(r".*\[Gloo\]|I0000 |E0000 |WARNING: All log messages before")
    return [[line for line in lines if not notes.match(line)] for lines in printed]


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_trains_in_two_processes(script, tmp_path):
    out = tmp_path / "out"
    command = [str(RECIPES / script), *COMMANDS[script], "--steps", "4"]
    logs = ["--log-dir", str(tmp_path / "torchrun"), "--redirects", "3"]
    begun = programs(2, [*command, "--out", str(out)], torchrun=logs)
    with running(begun, tmp_path) as processes:
        codes = [process.wait(SECONDS) for process in processes]
    first, second = outputs(tmp_path)
    assert set(codes) == {0}, "\n".join([*first, *second])
    for printed in ("4 steps, validated", "Test: ", "hf upload"):
        assert sum(printed in line for line in first) == 1, printed
    assert not second
    found = json.loads((out / "result.json").read_text())
    assert len(found["history"]) == 1 and 0 <= found["accuracy"] <= 1
    assert (out / "model" / "model.safetensors").exists()
    assert not list(out.glob(".*")) and not (out / "with_SAM").exists()
