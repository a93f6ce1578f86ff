"""`--method auto`: short trainings decide whether `finetune.py` trains with SAM.

plan, tried = sam_trial.decided(devices, plan, model, images, folder, reasons)
"""

import dataclasses
import json
from pathlib import Path

import keras
from command import command_line
from training import dry_run, stages, training_data
from training.progress import console, counted
from training.run_folder import TRIAL, write_json

import kerasvit

MAX_IMAGES = 2_000  # training images that are read, all at once
FEWEST = 40  # training images of which `kerasvit.suggest_training` tries SAM


def check_processes(config, devices) -> None:
    """Raises a `ValueError` if several processes would have to decide."""
    if config.method == "auto" and devices.processes > 1:
        raise ValueError(
            f"`method`: auto tries SAM in one process. Received: {devices.processes} "
            "processes. Start one first, and give what it chooses here: --method sam, "
            "or --rho 0 for plain training."
        )


def decided(
    devices, plan: list, model, images, folder: Path, reasons: dict
) -> tuple[list, str | None]:
    """Returns the plan with the method that the trial chose, and why.

    It prints the reason. A continued training reads the decision in the folder instead
    of trying again.

    Args:
        devices: `Devices` of one process.
        plan: Result of `stages.of`.
        model: `ImageModel` with its weights, which stay.
        images: `kerasvit.data.LabelledImages`.
        folder: Folder of the training.
        reasons: {setting: reason} of `defaults.choose`; that of rho is replaced.

    Returns:
        The same plan and None, unless the method is auto.

    Raises:
        command_line.BadInput: The model cannot be tried, or the memory is too small.
    """
    config = stages.main_of(plan).config
    if config.method != "auto":
        return plan, None
    file = folder / TRIAL
    if not file.exists():
        explained = dry_run.explained_out_of_memory(devices, config)
        with command_line.checking_input(), explained:
            write_json(file, _tried(config, model, images))
    found = json.loads(file.read_text("utf-8"))
    # The trial drew random seeds, which a continued training would not draw.
    keras.utils.set_random_seed(config.seed)
    console.print(f"Method: {found['why']}.", highlight=False, soft_wrap=True)
    reasons["rho"] = "chosen by the trial"
    chosen = {"method": "sam", "rho": found["rho"]}
    plan = [
        dataclasses.replace(stage, config=dataclasses.replace(stage.config, **chosen))
        for stage in plan
    ]
    return plan, found["why"]


def _tried(config, model, images):
    """Returns the radius, 0 for plain training, and why."""
    count = len(images.train)
    if count < FEWEST:
        why = f"plain training: to try SAM takes {FEWEST} training images or more, and "
        return {"rho": 0.0, "why": f"{why}here are {count}"}
    sample = images.train.images.sample(MAX_IMAGES, config.seed)
    console.print(
        f"Tries SAM in short trainings on {counted(len(sample))}, for about "
        f"{config.try_minutes:g} minutes (--try-minutes).",
        highlight=False,
        soft_wrap=True,
    )
    found = kerasvit.suggest_training(
        *(model, sample),
        batch_size=training_data.batch_options(config, model)["batch_size"],
        pretrained=config.weights is not None,
        adapters=bool(config.lora),
        try_sam=config.try_minutes,
    )
    return {"rho": found.rho, "why": found.reasons["rho"]}
