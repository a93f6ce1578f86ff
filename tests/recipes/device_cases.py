"""Trainings on several devices or processes, which test_devices.py starts.

    python tests/recipes/device_cases.py IMAGES FOLDER CASE ...

Each CASE is pretrained on the images in FOLDER/CASE, on all devices. The environment
variable INTERRUPT="SIGKILL 13 1" sends process 1 a signal after 13 steps of the cases
"continued" and "mesh"; "all" sends it to each process, "torchrun" to their parent.
"""

import dataclasses
import os
import signal
import sys
import time
from pathlib import Path
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))

import tensorflow as tf  # noqa: E402

if __name__ == "__main__" and os.environ.get("LOGICAL_CPUS"):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * int(os.environ["LOGICAL_CPUS"]),
    )

import evaluate  # noqa: E402
import finetune  # noqa: E402
import pretrain  # noqa: E402
from command import device_request, startup  # noqa: E402
from scoring import settings as evaluate_settings  # noqa: E402
from training import progress  # noqa: E402

import kerasvit  # noqa: E402
from kerasvit.training import resume  # noqa: E402
from tests.recipes import small_training  # noqa: E402

RANDOM = {"rho": 0.05, "dropout": 0.1, "stochastic_depth": 0.1}

# {case: settings}. On one device `micro_batches` is the number of devices for "local".
CASES = {
    "plain": {},
    "local": {"rho": 0.05},
    "global": {"rho": 0.05, "perturbation": "global"},
    "resumed": {"rho": 0.05, "perturbation": "global"},  # ends after the first round
    "kept": {"ema": 0.9, "keep_best": True},
    "kept of a mesh": {"ema": 0.9, "patience": 3, "devices": "data=1,model=2"},
    "model": {"rho": 0.05, "devices": "data=1,model=2"},
    "mesh": {"rho": 0.05, "perturbation": "global", "devices": "data=2,model=2"},
    "whole": RANDOM,
    "continued": RANDOM,  # after an interruption
    "parts": {"rho": 0.05, "accumulate": 2},
    "remat": {"rho": 0.05, "remat": True},
    "dry": {"rho": 0.05, "remat": True, "dry_run": True},
    "stages": {"rho": 0.05, "perturbation": "global", "then_size": (42,)},
    "taught": {"teacher_input": "unit", "distill": "soft"},  # by its `teacher.keras`
    # From the model in FOLDER/weights:
    "head": {"rho": 0.0},
    "adapters": {"rho": 0.0, "lora": 2, "layer_decay": 0.75, "probe_epochs": 1},
    "scores": {},  # of evaluate.py
    "failing": {"epochs": 4_000},  # an error in the last process, after a round
    "killed": {"epochs": 4_000},
}
TUNED = ("head", "adapters")  # with finetune.py
TINY = kerasvit.Variant(
    "small_vit",
    kerasvit.VisionTransformer,
    image_size=28,
    patch_size=14,
    width=8,
    depth=1,
    num_heads=2,
    mlp_dim=8,
)


def run(case: str, images, folder, **changes) -> dict:
    """Trains for 20 steps, by default, or scores; returns the results.

    They are in FOLDER/CASE.

    Raises:
        KeyboardInterrupt: The case has an interruption, and its folder was new.
    """
    if case == "scores":
        model, out = Path(folder) / "weights/model", Path(folder) / case
        options = {"on": (str(images),), "batch_size": 8, "out": str(out)}
        options |= {"frozen": ("few_shot", "knn"), "shots": (1, 5), **changes}
        options.setdefault("corrupt", ("impulse_noise",))
        return evaluate.evaluate(evaluate_settings.Config((str(model),), **options))
    settings = {
        "data": str(images),
        "out": str(Path(folder) / case),
        "batch_size": 8,
        "optimizer": "sgd",
        "learning_rate": 0.03,
        "warmup_steps": 0,
        **CASES[case],
        **changes,
    }
    if case == "taught":
        settings["teacher"] = str(Path(folder) / "teacher.keras")
    if case in TUNED:
        settings["weights"] = str(Path(folder) / "weights/model")
        config = dataclasses.replace(finetune.Config(), steps=20, **settings)
        return finetune.finetune(config)
    settings.setdefault("epochs", 4)
    config = dataclasses.replace(pretrain.Config(), **settings)
    with mock.patch.dict(pretrain.SMALL, small_vit=TINY):
        return pretrain.pretrain(config)


def interrupt(printed):
    """Returns a method of `progress.Steps` that raises an error after a round."""

    def on_epoch_end(steps, epoch, logs=None):
        printed(steps, epoch, logs)
        raise KeyboardInterrupt

    return on_epoch_end


def send(name, target):
    """Returns a function that sends a signal to this process or to torchrun."""

    def interrupt():
        if target == "torchrun":
            os.kill(os.getppid(), signal.Signals[name])
            return time.sleep(2)
        for _ in range(2):
            os.kill(os.getpid(), signal.Signals[name])
            time.sleep(2)  # JAX looks for a signal each second

    return interrupt


def prepare(case, process):
    """Sets how a case ends before its last step, and its optimizer."""
    if case == "resumed" or (case == "failing" and process == 1):
        progress.Steps.on_epoch_end = interrupt(progress.Steps.on_epoch_end)
    if case in ("whole", "continued"):
        pretrain.make_optimizer = small_training.optimizer
    if case in ("continued", "mesh") and os.environ.get("INTERRUPT"):
        resume.AGREE_SECONDS = 0  # the processes agree after each step
        name, step, target = os.environ["INTERRUPT"].split()
        if target == "all" or process == (0 if target == "torchrun" else int(target)):
            begin = small_training.interrupted(int(step), send(name, target))
            kerasvit.Resume.on_train_batch_begin = begin


if __name__ == "__main__":
    process, _ = device_request.process_of(startup.backend())
    for case in sys.argv[3:]:
        prepare(case, process)
        run(case, sys.argv[1], sys.argv[2])
