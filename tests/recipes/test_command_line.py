import dataclasses
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import finetune
import pretrain
import pytest
from command import command_line, names, paths, startup

import kerasvit
from recipes.benchmarks import settings as benchmarks
from tests.once import on_last_backend

pytestmark = pytest.mark.slow

RECIPES = Path(command_line.__file__).parents[1]
BACKEND = os.environ.get("KERAS_BACKEND", "jax")
SCRIPTS = "finetune", "pretrain", "evaluate", "export", "inspection", "segmentation"
COMMANDS = {
    "finetune.py": [RECIPES / "finetune.py"],
    "pretrain.py": [RECIPES / "pretrain.py"],
    **{f"-m {name}": ["-m", f"recipes.{name}"] for name in SCRIPTS},
    "benchmarks": ["-m", "recipes.benchmarks"],
    "reproduce.py": [RECIPES / "reproduce.py"],
}
HEAVY = {"keras", "tensorflow", "jax", "torch", "kerasvit", "tensorflow_datasets"}


def run(script, arguments, **environment):
    """Runs a script; returns its exit status, stderr and imported modules."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMANDS[script], *arguments],
        env={**os.environ, "PYTHONPATH": str(RECIPES.parent), **environment},
        capture_output=True,
        text=True,
    )
    lines = done.stderr.splitlines()
    imported = {line.split("|")[-1].strip() for line in lines if "|" in line[:30]}
    messages = [line for line in lines if not line.startswith("import time:")]
    return done.returncode, "\n".join(messages), imported


@on_last_backend
@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        (
            "finetune.py",
            "--lr 3",
            "no option --lr. Did you mean --learning-rate?",
        ),
        ("finetune.py", "--help", ""),
        ("-m evaluate", "nowhere --on digits", "there is no file or folder nowhere"),
        ("-m export", "nowhere --format onnx", "there is no file or folder nowhere"),
        *((f"-m {name}", "--help", "") for name in SCRIPTS),
        ("finetune.py", "--steps 3 --epochs=1", "Give --steps or --epochs, not both."),
        ("finetune.py", "--image-size 0", "`image_size` must be at least 1."),
        ("finetune.py", "--image-size 100", "of its patches, 8. Received: 100"),
        ("finetune.py", "pets --weights no.npz", "there is no file or folder no.npz"),
        ("pretrain.py", "--rho=-1", "`rho` must be at least 0. Received: -1.0."),
        ("reproduce.py", "touvron2021 --data nowhere", "there is no folder nowhere"),
        ("reproduce.py", "touvron2020", "no experiment 'touvron2020'. Close: touvron"),
        ("finetune.py", "--model vitb61", "there is no 'vitb61'. Close: ViTB16"),
        ("pretrain.py", "--model small_vitt", "no 'small_vitt'. Close: small_vit"),
        ("benchmarks", "train --model ViTs16", "no 'ViTs16'. Close: ViTS16"),
        ("benchmarks", "train --bs 3", "Did you mean --batch-size?"),
    ],
)
def test_a_mistake_is_found_before_the_slow_imports(script, arguments, expected):
    status, error, imported = run(script, arguments.split())
    assert (status != 0) == bool(expected)
    assert expected in error and "Traceback" not in error
    assert "tyro" in imported and not imported & HEAVY


@on_last_backend
def test_the_help_ends_quietly_where_nobody_reads_it():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, RECIPES / "finetune.py", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@on_last_backend
def test_the_header_of_a_table_is_read_before_the_slow_imports(tmp_path):
    (tmp_path / "a.csv").write_text("photo,class\n")
    status, error, imported = run("finetune.py", ["--data", f"{tmp_path}/a.csv"])
    assert status == 1 and not imported & HEAVY
    assert "line 1 must be a header with one column path" in error


@on_last_backend
@pytest.mark.parametrize("command", ["finetune.py", "reproduce.py touvron2021"])
def test_a_misspelt_data_set_is_found_before_the_slow_imports(command):
    script, *name = command.split()
    status, error, imported = run(script, [*name, "--dataset", "cifra10"])
    assert status == 1 and not imported & (HEAVY - {"tensorflow_datasets"})
    assert error == (
        "Error: `dataset`: there is no 'cifra10'. Close: cifar10, cifar100, cifar10_n."
    )


@on_last_backend
def test_names_of_models_are_read_without_importing_them():
    assert sorted(names.models()) == sorted(kerasvit.list_models())
    assert finetune.Config.small == ("small",)
    assert pretrain.Config.small == tuple(pretrain.SMALL)


@on_last_backend
@pytest.mark.parametrize("version", ["1.0.0", "tiny/1.0.0"])
def test_a_dataset_with_only_a_prepared_folder(offline, version):
    with pytest.raises(ValueError, match="`dataset`: there is no 'my_signs'"):
        names.check_dataset("my_signs")
    (offline / "my_signs" / version).mkdir(parents=True)
    (offline / "my_signs" / version / "dataset_info.json").touch()
    names.check_dataset("my_signs")
    names.check_dataset("my_signs/" + version.replace("/", ":"))


@on_last_backend
@pytest.mark.parametrize("script", ["finetune.py", "reproduce.py", "benchmarks"])
def test_an_unknown_backend_gives_a_one_line_error(script):
    first = {"benchmarks": ["train"], "reproduce.py": ["touvron2021"]}
    arguments = first.get(script, [])
    status, error, imported = run(script, arguments, KERAS_BACKEND="tensorfow")
    assert status == 1 and not imported & HEAVY
    expected = "KERAS_BACKEND is 'tensorfow'. Expected one of tensorflow, jax, torch."
    assert error == f"Error: {expected}"


@on_last_backend
def test_a_backend_that_is_not_installed(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(startup.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"not installed. Install it, pip .*\[jax,rec"):
        startup.check_backend()


@on_last_backend
def test_the_backend_of_keras_json(monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    startup.check_backend()
    (tmp_path / "keras.json").write_text('{"backend": "theano"}')
    with pytest.raises(ValueError, match="The backend in keras.json is 'theano'"):
        startup.check_backend()


OPTIONS = {
    "lr": "learning-rate",
    "img-size": "image-size",
    "drop-path": "stochastic-depth",
    "bs": "batch-size",
    "batch": "batch-size",
    "epoch": "epochs",
    "wd": "weight-decay",
    "modle": "model",
    "licence": "license",
    "output": "out",
    "checkpoint": "weights",
}


@on_last_backend
@pytest.mark.parametrize(("wrong", "right"), OPTIONS.items())
def test_a_wrong_option_suggests_the_right_one(wrong, right, capsys):
    settings = pretrain if right in ("weight-decay", "stochastic-depth") else finetune
    with pytest.raises((SystemExit, command_line.BadInput)) as raised:
        command_line.parse([f"--{wrong}", "3"], settings.PRESETS, "recipe.py")
    assert f"--{right}" in f"{raised.value} {capsys.readouterr().err}"


@on_last_backend
def test_aliases_are_of_options_that_exist():
    kinds = (finetune.Config, pretrain.Config, benchmarks.Config)
    fields = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    fields = {name.replace("_", "-") for name in fields}
    assert set(command_line.ALIASES.values()) <= fields


@on_last_backend
@pytest.mark.parametrize(
    ("arguments", "compared"),
    [
        ("", True),
        ("--rho 0.1", True),
        ("--no-compare", False),
        ("digits --data photos", True),
        ("--data photos", False),
        ("--dataset cifar10", False),
        ("--data photos --compare", True),
        ("pets", False),
    ],
)
def test_only_the_demo_compares_by_default(arguments, compared):
    presets = finetune.PRESETS
    config = command_line.parse(arguments.split(), presets, "finetune.py")
    assert config.compare is compared


@on_last_backend
@pytest.mark.parametrize("weights", ["sam", "hf://user/name", __file__, "~"])
def test_possible_names_of_weights_pass(weights):
    paths.check_weights(weights)


@on_last_backend
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("vit.npz", "no file or folder vit.npz"),
        ("runs/model", "On the Hugging Face Hub: hf://runs/model"),
        ("~/vit.safetensors", "no file or folder ~/vit.safetensors"),
        ("", "no file or folder"),
    ],
)
def test_missing_weights_raise(weights, message):
    with pytest.raises(ValueError, match=message):
        paths.check_weights(weights)


@on_last_backend
def test_servers_are_those_of_the_data_set():
    assert names.servers("cifar10") == [("www.cs.toronto.edu", 443)]
    assert names.servers("oxford_iiit_pet") == [("thor.robots.ox.ac.uk", 443)]
    assert names.servers("no_such_data") == []
    assert names.servers("segment_anything") == []  # only in a comment


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Makes all servers unreachable; returns an empty folder for tfds."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(names, "any_answers", lambda servers: False)
    monkeypatch.setattr(names.urllib.request, "getproxies", dict)
    return tmp_path


@on_last_backend
def test_a_data_set_that_cannot_be_downloaded(offline, capsys):
    with pytest.raises(ValueError, match=r"(?s)cifar10 is not in .*toronto.*--data"):
        names.check_reachable("cifar10")
    with pytest.raises(ValueError, match=r"(?s)`on`: cifar10 is not in .*--on FOLDER"):
        names.check_reachable("cifar10", "on", "--on FOLDER")
    with pytest.raises(SystemExit, match="no file or folder missing.npz"):
        arguments = ["pets", "--weights", "missing.npz"]
        command_line.read(arguments, finetune.PRESETS, "finetune.py")


@on_last_backend
@pytest.mark.parametrize(
    "file",
    ["cifar10/3.0.2/dataset_info.json", "downloads/a.INFO", "downloads/cifar10/a.INFO"],
)
def test_a_data_set_that_is_here_or_partly(offline, file):
    (offline / file).parent.mkdir(parents=True)
    (offline / file).touch()
    names.check_reachable("cifar10:3.*.*")


@on_last_backend
def test_skipped_server_checks(offline, monkeypatch):
    for name in ("digits", "mnist_subset", "no_such_data"):
        names.check_reachable(name)
    monkeypatch.setattr(names.urllib.request, "getproxies", lambda: {"https": "x"})
    names.check_reachable("cifar10")


@on_last_backend
def test_servers_are_checked_in_parallel_with_a_timeout(monkeypatch):
    never, closed = threading.Event(), []

    def connect(address, timeout):
        if address[0] == "hangs":
            never.wait(20)
        if address[0] != "answers":
            raise OSError
        return type("Connection", (), {"close": lambda self: closed.append(address)})()

    monkeypatch.setattr(names.socket, "create_connection", connect)
    monkeypatch.setattr(names, "TIMEOUT", 1.0)
    start = time.monotonic()
    assert not names.any_answers([("refuses", 443), ("hangs", 443)])
    assert not names.any_answers([("refuses", 443)])
    assert names.any_answers([("hangs", 443), ("answers", 443)])
    assert closed and time.monotonic() - start < 10
    never.set()


@on_last_backend
def test_a_given_length_replaces_that_of_the_preset():
    presets = finetune.PRESETS

    def lengths(*options):
        config = command_line.parse(options, presets, "finetune.py")
        return config.steps, config.epochs

    assert lengths("deit_384") == (None, 30)
    assert lengths("deit_384", "--steps", "3") == (3, None)
    assert lengths("imagenet", "--epochs=3") == (None, 3)
