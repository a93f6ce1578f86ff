"""Files of version 0.1 that every later version reads: `saved_0_1/`.

    KERAS_BACKEND=jax python -m tests.golden.saved FOLDER

It writes a model of every builder, as a `.keras` file and as a folder of
`save_pretrained`; a `.keras` file of every trainer after two steps; and `expected.npz`.
`saved_0_1/` was written on 2026-11-23 and does not change.
"""

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


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    write(where)
