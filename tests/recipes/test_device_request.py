"""Which devices `--devices` and the environment select, and which are refused."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import finetune
import keras
import pretrain
import pytest
from command import device_request
from command.command_line import BadInput
from command.device_request import Request, check
from devices import devices

from tests.once import on_last_backend

BACKEND = keras.backend.backend()
CLUSTER = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker"}}
TORCHRUN = {
    "WORLD_SIZE": "2",
    "RANK": "1",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
only = {
    name: pytest.mark.only_on(name, reason=f"the engine of {name}")
    for name in ("jax", "tensorflow", "torch")
}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for names in device_request.STARTED_BY.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)


def config(**changes):
    return pretrain.Config(data=".", **changes)


@on_last_backend
@pytest.mark.parametrize(
    ("text", "available", "sizes"),
    [
        ("all", 4, (4, 1)),
        ("2", 4, (2, 1)),
        ("data=2,model=2", 4, (2, 2)),
        ("model=2,data=1", 4, (1, 2)),
        ("model=2", 4, (2, 2)),
        ("data=3", 4, (3, 1)),
    ],
)
def test_number_of_devices(text, available, sizes):
    assert Request.parse(text).sizes(available) == sizes


@on_last_backend
@pytest.mark.parametrize(
    "text", ["", "0", "-1", "two", "data=2;model=2", "data=2,data=2", "rows=2", "data="]
)
def test_a_misspelt_option(text):
    with pytest.raises(ValueError, match="must be all, a number, or axes such as"):
        check(text, "jax")


@on_last_backend
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8", "8 are more than the 4 that there are. Give --devices 4"),
        ("data=4,model=2", "8 are more than the 4"),
        ("model=8", "8 are more than the 4"),
        ("model=3", "4 devices cannot be divided by model=3"),
    ],
)
def test_more_devices_than_there_are(text, message):
    with pytest.raises(ValueError, match=message):
        Request.parse(text).sizes(4)


@on_last_backend
@pytest.mark.parametrize(
    ("backend", "variables", "message"),
    [
        ("jax", {"TF_CONFIG": "{}"}, "TF_CONFIG is set, .* but the backend is jax"),
        ("torch", {"TF_CONFIG": "{}"}, "TF_CONFIG is set, .* but the backend is torch"),
        ("jax", TORCHRUN, "WORLD_SIZE is set, .*processes of torch, but .* is jax"),
        ("tensorflow", TORCHRUN, "WORLD_SIZE is set, .* but .* is tensorflow"),
        (
            "torch",
            {"KERAS_DISTRIBUTION_NUM_PROCESSES": "2"},
            "KERAS_DISTRIBUTION_NUM_PROCESSES is set, .* but .* is torch",
        ),
        (
            "jax",
            {"KERAS_DISTRIBUTION_NUM_PROCESSES": "2"},
            "KERAS_DISTRIBUTION_PROCESS_ID must be set in each process",
        ),
        (
            "jax",
            {
                "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
                "KERAS_DISTRIBUTION_PROCESS_ID": "2",
            },
            "must be from 0 to 1, for 2 processes.*: 2",
        ),
        ("torch", {**TORCHRUN, "RANK": "first"}, "must be numbers. Received: 'first'"),
        ("tensorflow", {"TF_CONFIG": "{"}, "TF_CONFIG must be JSON such as"),
        ("tensorflow", {"TF_CONFIG": "{}"}, "TF_CONFIG must be JSON such as"),
        (
            "tensorflow",
            {"TF_CONFIG": json.dumps({**CLUSTER, "task": {"type": "ps", "index": 0}})},
            "the task's type must be worker or chief. Received: 'ps'",
        ),
    ],
)
def test_processes_that_were_started_for_another_backend(
    backend, variables, message, monkeypatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        check("all", backend)


@on_last_backend
@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_only_jax_divides_a_model(backend):
    with pytest.raises(ValueError, match=r"model=2 divides .* needs the backend jax"):
        check("data=1,model=2", backend)
    check("data=1,model=2", "jax")


@on_last_backend
@pytest.mark.parametrize(
    ("kind", "index", "number"), [("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)]
)
def test_number_of_a_process_of_tensorflow(kind, index, number, monkeypatch):
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    task = {"type": kind, "index": index}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    assert device_request.process_of("tensorflow") == (number, 3)


@on_last_backend
@pytest.mark.parametrize(
    ("count", "size", "nearest"), [(4, 50, "48 or 52"), (4, 3, "4"), (3, 100, "99 or")]
)
def test_a_batch_that_does_not_divide(count, size, nearest):
    with pytest.raises(ValueError, match=f"Give --batch-size {nearest}"):
        devices.Devices(count).check_batch(size)
    devices.Devices(count).check_batch(4 * count)


@on_last_backend
def test_settings_of_both_recipes_train_on_all_devices():
    for settings in (config(), finetune.Config()):
        assert (settings.devices, settings.perturbation) == ("all", "local")


def test_one_device_is_the_default_here():
    assert devices.start_devices(config()) is devices.ONE
    assert devices.start_devices(config(devices="1")) is devices.ONE


@pytest.mark.parametrize("devices", ["64", "data=64"])
def test_more_devices_end_a_command_before_images_are_read(devices):
    message = "64 are more than" if BACKEND != "torch" else "--nproc-per-node 64"
    with pytest.raises(BadInput, match=message):
        pretrain.pretrain(config(devices=devices))


@on_last_backend
def test_an_error_of_the_first_process_is_one_of_all():
    class Second(devices.Devices):
        def any(self, condition):
            return True

    with pytest.raises(ValueError, match="Process 0 failed"):
        with Second(2, 1, 2).first_goes_first():
            pass


@only["jax"]
@pytest.mark.parametrize("on_tpu", [True, False])
def test_jax_connects_a_tpu_vm_without_arguments(on_tpu, monkeypatch):
    from devices import jax_devices

    calls = []
    monkeypatch.setattr(device_request, "on_tpu_vm", lambda: on_tpu)
    monkeypatch.setattr(
        "jax.distributed.initialize", lambda *given, **options: calls.append(given)
    )
    jax_devices.connect()
    assert calls == ([()] if on_tpu else [])


@only["jax"]
def test_jax_connects_processes_by_the_variables(monkeypatch):
    from devices import jax_devices

    calls = []
    monkeypatch.setenv("KERAS_DISTRIBUTION_JOB_ADDRESSES", "a:1,b:1")
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "2")
    monkeypatch.setenv("KERAS_DISTRIBUTION_PROCESS_ID", "1")
    monkeypatch.setattr(
        "jax.distributed.initialize", lambda *given, **options: calls.append(given)
    )
    jax_devices.connect()
    assert calls == [("a:1", 2, 1)]


@only["jax"]
def test_devices_that_share_a_model_perturb_with_the_mean_gradient():
    from devices import jax_devices

    shared = jax_devices.JaxDevices(count=2, model=2)
    with pytest.raises(ValueError, match="Give --perturbation global, or data=1"):
        shared.perturbation("local", 0.05)
    assert shared.perturbation("local", 0.0) == "global"
    assert shared.perturbation("global", 0.05) == "global"
    assert jax_devices.JaxDevices(count=2).perturbation("local", 0.05) == "local"


def tensorflow_with(monkeypatch, gpus=0, tpu=False):
    """Stand-ins for the strategies, which return their name and arguments."""
    import tensorflow as tf

    def stand_in(name, count):
        return lambda *given: types.SimpleNamespace(
            name=name, given=given, num_replicas_in_sync=count or len(given[0])
        )

    devices_of = [types.SimpleNamespace(name=f"GPU:{i}") for i in range(gpus)]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: devices_of)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: devices_of)
    monkeypatch.setattr(device_request, "on_tpu_vm", lambda: tpu)
    resolver = types.SimpleNamespace(connect=lambda place: place)
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", stand_in("tpu", 4))
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", stand_in("mirrored", None))


@only["tensorflow"]
@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("all", {"gpus": 4}, ("mirrored", (["GPU:0", "GPU:1", "GPU:2", "GPU:3"],))),
        ("2", {"gpus": 4}, ("mirrored", (["GPU:0", "GPU:1"],))),
        ("all", {"tpu": True}, ("tpu", ("local",))),
    ],
)
def test_strategy_of_tensorflow(text, options, expected, monkeypatch):
    from devices import tensorflow_devices

    tensorflow_with(monkeypatch, **options)
    request = Request.parse(text)
    here = tensorflow_devices.start(request, config(devices=text))
    assert (here.strategy.name, here.strategy.given) == expected
    assert here.count == here.strategy.num_replicas_in_sync


@only["tensorflow"]
def test_strategy_of_several_processes(monkeypatch):
    from devices import tensorflow_devices

    text = json.dumps({**CLUSTER, "task": {"type": "worker", "index": 1}})
    monkeypatch.setenv("TF_CONFIG", text)
    several = types.SimpleNamespace(num_replicas_in_sync=16)
    monkeypatch.setattr(tensorflow_devices, "MultiWorkerStrategy", lambda: several)
    here = tensorflow_devices.start(Request(), config())
    assert (here.strategy, here.count) == (several, 16)
    assert here.shard == (1, 2) and not here.is_first
    with pytest.raises(ValueError, match="2 processes train on all their 16 devices"):
        tensorflow_devices.start(Request(8), config(devices="8"))


@only["tensorflow"]
@pytest.mark.slow
def test_imports_do_not_start_tensorflow():
    """Its devices can be set, and processes connected, until the first tensor."""
    code = """
import finetune, pretrain, tensorflow as tf
cpu, *_ = tf.config.list_physical_devices("CPU")
one = [tf.config.LogicalDeviceConfiguration()]
tf.config.set_logical_device_configuration(cpu, one)
"""
    recipes = Path(device_request.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{recipes}:{recipes.parent}"}
    command = [sys.executable, "-c", code]
    subprocess.run(command, env=environment, check=True, timeout=300)


@only["tensorflow"]
def test_keras_cannot_accumulate_on_several_devices(monkeypatch):
    from devices import tensorflow_devices

    tensorflow_with(monkeypatch, gpus=2)
    settings = types.SimpleNamespace(devices="all", accumulate=2)
    with pytest.raises(ValueError, match="cannot accumulate gradients on several"):
        tensorflow_devices.start(Request(), settings)


@only["torch"]
def test_torch_needs_torchrun(monkeypatch):
    monkeypatch.setattr("sys.argv", ["recipes/pretrain.py", "--devices", "2"])
    command = "torchrun --nproc-per-node 2 recipes/pretrain.py --devices 2"
    with pytest.raises(ValueError, match=command):
        devices.start_devices(config(devices="2"))


@only["torch"]
def test_torch_says_how_to_use_all_devices(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    assert devices.start_devices(config()) is devices.ONE
    assert "1 of 8 GPUs. For all, start it with: torchrun" in capsys.readouterr().out


@only["torch"]
def test_torchrun_with_another_number(monkeypatch):
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="torchrun has started 2 processes"):
        devices.start_devices(config(devices="4"))


@only["torch"]
def test_torchrun_with_more_processes_than_gpus(monkeypatch):
    for name, value in {**TORCHRUN, "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ValueError, match="Give --nproc-per-node 1"):
        devices.start_devices(config())
