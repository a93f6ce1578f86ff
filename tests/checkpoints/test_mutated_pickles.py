"""Mutated files of `torch.save` are read as PyTorch reads them, or refused.

Nothing that they name is run or imported, and no file is written. A seed determines
each; `python -m tests.checkpoints.mutated_pickles SEED 1` reads one.
"""

import io
import json
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from kerasvit.checkpoints import Checkpoint, CheckpointError
from kerasvit.checkpoints.pickled import Inert, Named, unpickled
from kerasvit.checkpoints.reader import Reader
from tests.checkpoints import torch_files
from tests.once import on_last_backend

pytestmark = on_last_backend

ROOT = Path(__file__).parents[2]


def outcomes(first, count):
    """Outcomes in a separate process: its audit cannot be ended."""
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.checkpoints.mutated_pickles",
            *map(str, (first, count)),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
def test_some_mutations():
    found = outcomes(100_000, 200)
    assert not found["failed"], found["failed"]
    assert found["read"] > 20 and found["refused"] > 20


@pytest.mark.long
def test_ten_thousand_mutations():
    found = outcomes(0, 10_000)
    assert not found["failed"], found["failed"]
    assert found["read"] > 1000 and found["refused"] > 1000


class Command:
    """An object that makes `pickle` run a command."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.slow
@pytest.mark.parametrize("form", torch_files.FORMS)
@pytest.mark.parametrize("place", ["alone", "beside", "inside", "above"])
def test_commands_are_not_run(form, place, tmp_path):
    torch = pytest.importorskip("torch")
    command, made = Command(tmp_path / "made"), tmp_path / "made"
    model = torch_files.tensors(torch_files.golden())
    content = {
        "alone": command,
        "beside": {"model": model, "args": command},
        "inside": {"model": {**model, "args": command}},
        "above": [command, model],
    }[place]
    path = torch_files.write(tmp_path / "x.pth", content, form)
    if place == "beside":
        assert Checkpoint(path).shapes.keys() == model.keys()
    else:
        with pytest.raises(CheckpointError, match="posix.system|no dict of tensors"):
            Checkpoint(path)
    assert not made.exists()
    torch.load(path, weights_only=False)
    assert made.exists()  # the file is one that runs


def value_of(program, stored=None):
    """The value of the instructions between the first and the last."""
    return unpickled(io.BytesIO(b"\x80\x02" + program + b"."), {}, stored or list)


def test_what_is_named_stays_a_name():
    assert value_of(b"cos\nsystem\n") == Named("os.system")
    assert value_of(b"X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93") == Named(
        "os.system"
    )
    for program in (
        b"cos\nsystem\n(X\x01\x00\x00\x00atR",  # REDUCE
        b"cos\nsystem\n(X\x01\x00\x00\x00at\x81",  # NEWOBJ
        b"cos\nsystem\n)}\x92",  # NEWOBJ_EX
        b"(cos\nsystem\nX\x01\x00\x00\x00ao",  # OBJ
        b"(X\x01\x00\x00\x00aios\nsystem\n",  # INST
        b"cos\nsystem\n)R}X\x01\x00\x00\x00aX\x01\x00\x00\x00bsb",  # BUILD
    ):
        assert value_of(program) == Inert("os.system")
    assert value_of(b"cos\nsystem\n)R)R") == Inert("os.system")
    assert value_of(b"\x82\x07") == Named("copyreg.extension_7")


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values(protocol):
    shared = ["a", {"b": None}]
    plain = {
        "numbers": [0, -1, 255, 65_536, -(2**31), 2**70, -(2**80), 0.5, True, False],
        "text": ["", "ä\0\n", "x" * 300],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "shared": [shared, shared],
    }
    file = io.BytesIO(pickle.dumps(plain, protocol) + b"rest")
    assert unpickled(file, {}, list) == plain
    assert file.read() == b"rest"
    itself = []
    itself.append(itself)
    found = unpickled(io.BytesIO(pickle.dumps(itself, protocol)), {}, list)
    assert found[0] is found


def test_keys_other_than_text_are_left_out():
    """A key of nested tuples takes a time to hash that doubles with each level."""
    key = b")" + b"q\x00h\x00\x86" * 200
    assert value_of(b"}" + key + b"K\x01sX\x01\x00\x00\x00aK\x02s") == {"a": 2}
    assert value_of(b"(]K\x01X\x01\x00\x00\x00aK\x02d") == {"a": 2}


HOSTILE = {
    "a text of 4 GB": b"X\xff\xff\xff\x7fa",
    "a text of 2**62 bytes": b"\x8d" + (2**62).to_bytes(8, "little") + b"a",
    "a text of more than any": b"\x8d" + b"\xff" * 8 + b"a",
    "bytes of 2**62": b"\x8e" + (2**62).to_bytes(8, "little") + b"a",
    "an array of 2**62 bytes": b"\x96" + (2**62).to_bytes(8, "little") + b"a",
    "an integer of 2 GB": b"\x8b\xff\xff\xff\x7fa",
    "an integer of negative length": b"\x8b\xff\xff\xff\xffa",
    "digits without end": b"I" + b"9" * 100_000 + b"\n",
    "long digits without end": b"L" + b"9" * 100_000 + b"L\n",
    "the last number of the memo": b"Nr\xff\xff\xff\xffj\xfe\xff\xff\xff",
    "a frame of 2**63 bytes": b"\x95" + b"\xff" * 8 + b"0",
    "nothing to take": b"0",
    "nothing to add to": b"a",
    "no mark": b"e",
    "no pair": b"}(Nu",
    "a list that is none": b"NNa",
    "a dict that is none": b"NNNs",
    "a call of a number": b"K\x01)R",
    "a call without arguments": b"cos\nsystem\nNR",
    "a class named by a number": b"K\x01K\x02\x93",
    "an object outside": b"\x97",
    "a persistent id of text": b"Pstorage\n",
    "an unknown instruction": b"\xfe",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles(name, tmp_path):
    """They are refused, with little memory."""
    pickles = b"\x80\x02" + HOSTILE[name] + b"."
    for path in (
        torch_files.archive(tmp_path / "zip.pth", pickles),
        torch_files.older(tmp_path / "older.pth", pickles),
    ):
        tracemalloc.start()
        with pytest.raises(CheckpointError, match="cannot be read") as caught:
            Reader(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2_000_000 and len(str(caught.value)) < 5000


@pytest.mark.slow
@pytest.mark.parametrize("program", [b"N0", b"}", b"(", b"(t", b"N\x94"])
def test_too_many_instructions(program):
    start = time.process_time()
    with pytest.raises(ValueError, match="over 500,000 instructions"):
        value_of(b"(" + program * 500_000 + b"t")
    assert time.process_time() - start < 5


ITEMS, CALLS = 100_000, 40_000  # of one container, which is passed so many times
ONE = b"\x80\x02(" + b"K\x01" * ITEMS + b"t"  # a tuple
ORDERED = b"ccollections\nOrderedDict\n"
LONG = b"\x80\x04X" + (1_000_000).to_bytes(4, "little") + b"a" * 1_000_000
DICT = b"".join(b"X\x06\x00\x00\x00%06dK\x01" % i for i in range(ITEMS))
REPEATED = {
    "items of a dict": b"\x80\x02]q\x01("
    + b"X\x01\x00\x00\x00aK\x01\x86" * ITEMS
    + b"e\x85q\x02"
    + ORDERED
    + b"q\x03"
    + b"h\x03h\x02R0" * CALLS,
    "arguments": ONE + b"q\x02" + ORDERED + b"q\x03" + b"h\x03h\x02R0" * CALLS,
    "parts of an id": ONE + b"q\x02" + b"h\x02Q0" * CALLS,
    "letters of a name": LONG + b"q\x02" + b"h\x02h\x02\x93\x94" * CALLS,
    "a dict in dicts": b"\x80\x02}("
    + DICT
    + b"uq\x020}("
    + b"".join(b"X\x06\x00\x00\x00%06dh\x02" % i for i in range(9000))
    + b"u",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REPEATED)
def test_what_is_passed_many_times_is_counted(name, tmp_path):
    start = time.process_time()
    path = torch_files.archive(tmp_path / "x.pth", REPEATED[name] + b".")
    with pytest.raises(CheckpointError, match="calls|passes|too long|over 20,000"):
        Reader(path)
    assert time.process_time() - start < 5


def test_tensors_may_not_be_much_larger_than_the_file(tmp_path):
    """A storage of one megabyte in a thousand tensors would fill a gigabyte."""
    torch = pytest.importorskip("torch")

    shared = torch.zeros(250_000)
    state = {f"blocks.{i}.weight": shared for i in range(1000)}
    torch.save(state, tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match="250,000,000 values of tensors in"):
        Reader(tmp_path / "x.pth")


@pytest.mark.slow
def test_deep_nesting_is_no_recursion(tmp_path):
    for program in (b"]" * 100_000 + b"a" * 99_999, b")" + b"\x85" * 100_000):
        path = tmp_path / "x.pth"
        torch_files.archive(path, b"\x80\x02}X\x01\x00\x00\x00a" + program + b"s.")
        with pytest.raises(CheckpointError, match="no dict of tensors"):
            Reader(path)


CALLS = {
    "torch._utils\n_rebuild_tensor_v2": [b")", b"N\x85", b"(NNNNNNt"],
    "torch._utils\n_rebuild_tensor_v3": [b")", b"(NNNNNNNt"],
    "torch._utils\n_rebuild_parameter": [b")", b"(NNNt"],
    "torch._tensor\n_rebuild_from_type_v2": [b")", b"(NNNNt"],
    "collections\nOrderedDict": [b"N\x85", b"K\x01\x85", b"]K\x01a\x85", b"(NNt"],
}


@pytest.mark.parametrize(
    ("name", "arguments"), [(name, each) for name in CALLS for each in CALLS[name]]
)
def test_calls_with_wrong_arguments(name, arguments, tmp_path):
    program = b"c" + name.encode() + b"\n" + arguments + b"R"
    path = torch_files.archive(tmp_path / "x.pth", torch_files.pickled({"a": program}))
    with pytest.raises(CheckpointError, match="cannot be read"):
        Reader(path)


IDS = (b"N", b"]", b")", b"K\x01", torch_files.text("storage"))
IDS += (torch_files.many([torch_files.text("storage")] * 5), b"(NNNNNt")


@pytest.mark.parametrize("identity", IDS)
def test_persistent_ids_that_name_no_storage(identity, tmp_path):
    pickles = torch_files.pickled({"a": torch_files.tensor(source=identity + b"Q")})
    path = torch_files.archive(tmp_path / "x.pth", pickles)
    with pytest.raises(CheckpointError, match="cannot be read"):
        Reader(path)
