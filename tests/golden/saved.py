"""Files of version 0.1 that every later version reads: `saved_0_1/`.

    KERAS_BACKEND=jax python -m tests.golden.saved FOLDER
    KERAS_BACKEND=torch python -m tests.golden.saved FOLDER --run

The first command writes a model of every builder, as a `.keras` file and as a folder of
`save_pretrained`; a `.keras` file of every trainer after two steps; and `expected.npz`.
The second writes a run of `recipes/finetune.py` that was stopped halfway, on the
backend of the process. `saved_0_1/` was written on 2026-11-23 and does not change.
"""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

import keras
import numpy as np

import kerasvit
from kerasvit.training import ASAM, GSAM, MSAM, SAM, SAMON, LookSAM
from tests.contract import call
from tests.models.tiny import TINY, tiny

SAVED = Path(__file__).parent / "saved_0_1"
LABELS = ["ant", "bee", "cat"]
CHANGES = {  # smaller files, and arguments that are not the defaults
    "VisionTransformer": {"register_tokens": 1, "layer_scale": 0.1},
    "MLPMixer": {"normalization": {"mean": [0.4] * 3, "std": [0.2] * 3}},
    "BigTransfer": {"depths": [1]},
}
TRAINERS = {
    "SAM": lambda model: SAM(model, 0.1, micro_batches=2),
    "ASAM": lambda model: ASAM(model, 0.5),
    "GSAM": lambda model: GSAM(model, 0.1, 0.05, 0.4, lr_max=0.1, lr_min=0.0),
    "SAMON": lambda model: SAMON(model, 0.1),
    "LookSAM": lambda model: LookSAM(model, 0.1, 2),
    "MSAM": lambda model: MSAM(model, 0.1),
}
STEPS = 2
RUN = {  # two rounds
    "steps": 40,
    "batch_size": 64,
    "learning_rate": 1e-4,
    "seed": 3,
    "dataset": "digits",
}


def images(count=4, seed=0):
    """Images (count, 16, 16, 3) from -1 to 1, and their labels."""
    random = np.random.default_rng(seed)
    pixels = random.uniform(-1, 1, size=(count, 16, 16, 3)).astype("float32")
    return pixels, random.integers(3, size=count)


def outputs(model):
    """Logits of the images."""
    return keras.ops.convert_to_numpy(call(model, images()[0]))


def trained(trainer):
    """Logits after one step on other images."""
    trainer.train_on_batch(*images(seed=9))
    return outputs(trainer.model)


def write(folder):
    """Writes the models, the trainers and their expected outputs."""
    expected = {}
    for name in TINY:
        model = tiny(name, **CHANGES.get(name, {}))
        model.record["label_names"] = LABELS
        model.save(folder / f"{name}.keras")
        kerasvit.save_pretrained(model, folder / name)
        expected[name] = outputs(model)
    for name, wrap in TRAINERS.items():
        trainer = wrap(tiny("VisionTransformer", width=8, dropout=0.0))
        trainer.compile(
            keras.optimizers.SGD(0.05, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        for seed in range(STEPS):
            trainer.train_on_batch(*images(seed=seed))
        trainer.save(folder / f"{name}.keras")
        expected[f"{name} saved"] = outputs(trainer.model)
        expected[f"{name} trained"] = trained(trainer)
    np.savez_compressed(folder / "expected.npz", **expected)


def run_settings(weights, out):
    """Settings of the run that was stopped."""
    import finetune

    return finetune.Config(weights=str(weights), out=str(out), **RUN)


def write_run(folder):
    """Writes a run that was stopped after its first validation.

    The path of its weights depends on the machine: it is written as WEIGHTS.
    """
    import finetune
    from training import saving

    saved = saving.Progress.on_epoch_end

    def stop(self, epoch, logs=None):
        saved(self, epoch, logs)
        raise KeyboardInterrupt

    weights = folder / "VisionTransformer"
    out = folder / f"run-{keras.backend.backend()}"
    whole = finetune.finetune(run_settings(weights, folder / "whole"))
    expected = {k: whole[k] for k in ("loss", "accuracy")}
    shutil.rmtree(folder / "whole")
    saving.Progress.on_epoch_end = stop
    with contextlib.suppress(KeyboardInterrupt):
        finetune.finetune(run_settings(weights, out))
    config = (out / "config.json").read_text()
    (out / "config.json").write_text(config.replace(str(weights.resolve()), "WEIGHTS"))
    (out / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    sys.path.insert(0, os.fspath(Path(kerasvit.__file__).parents[1] / "recipes"))
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    write_run(where) if "--run" in sys.argv else write(where)
