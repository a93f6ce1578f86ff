"""Files of version 0.1 that every later version reads: `saved_0_1/`.

    KERAS_BACKEND=jax python -m tests.golden.saved FOLDER

It writes a model of every builder, as a `.keras` file and as a folder of
`save_pretrained`; a `.keras` file of every trainer after two steps, and of features;
adapters; and `expected.npz`. What the folder has is kept: the files of `saved_0_1/` do
not change.
"""

import sys
from pathlib import Path

import keras
import numpy as np

import kerasvit
from kerasvit.training import (
    ASAM,
    GSAM,
    MSAM,
    SAM,
    SAMON,
    DistillationTrainer,
    FriendlySAM,
    LookSAM,
    MaskedPatches,
)
from tests.contract import call
from tests.models.tiny import TINY, tiny

SAVED = Path(__file__).parent / "saved_0_1"
LABELS = ["ant", "bee", "cat"]
CHANGES = {  # smaller files, and arguments that are not the defaults
    "VisionTransformer": {"register_tokens": 1, "layer_scale": 0.1},
    "MLPMixer": {"normalization": {"mean": [0.4] * 3, "std": [0.2] * 3}},
    "BigTransfer": {"depths": [1]},
    "RotaryVisionTransformer": {
        "branch_norm": "after",
        "pool": "attention",
        "mlp": "swiglu",
    },
    "BEiTTransformer": {"layer_scale": 0.1},
    "PoolingVisionTransformer": {"distilled": True},
}
TRAINERS = {
    "SAM": lambda model: SAM(model, 0.1, micro_batches=2),
    "ASAM": lambda model: ASAM(model, 0.5),
    "GSAM": lambda model: GSAM(model, 0.1, 0.05, 0.4, lr_max=0.1, lr_min=0.0),
    "SAMON": lambda model: SAMON(model, 0.1),
    "LookSAM": lambda model: LookSAM(model, 0.1, 2),
    "MSAM": lambda model: MSAM(model, 0.1),
    "FriendlySAM": lambda model: FriendlySAM(model, 0.1, 0.5),
    "DistillationTrainer": lambda model: DistillationTrainer(model, teacher(), rho=0.1),
    "MaskedPatches": lambda model: MaskedPatches(
        model, "mae", decoder={"width": 8, "depth": 1, "num_heads": 2}, rho=0.1
    ),
}
# Where they are not SGD and the cross-entropy.
OPTIMIZERS = {
    "FriendlySAM": lambda model: kerasvit.layer_decay(
        kerasvit.AdamW(1e-3, epsilon=1e-2), model, 0.8
    ),
}
LOSSES = {
    "FriendlySAM": kerasvit.LogitAdjustedCrossentropy([5, 3, 2]),
    "MaskedPatches": None,
}
STEPS = 2


def images(count=4, seed=0):
    """Images (count, 16, 16, 3) from -1 to 1, and their labels."""
    random = np.random.default_rng(seed)
    pixels = random.uniform(-1, 1, size=(count, 16, 16, 3)).astype("float32")
    return pixels, random.integers(3, size=count)


def outputs(model):
    """Logits of the images; of features, those of the first block."""
    found = call(model, images()[0])
    return keras.ops.convert_to_numpy(found[0] if isinstance(found, list) else found)


def teacher():
    """The teacher, which no file contains."""
    return tiny("ResNeXt")


def trained(trainer):
    """Logits after one step on other images."""
    if isinstance(trainer, DistillationTrainer) and trainer.teacher is None:
        trainer.set_teacher(teacher())
    trainer.train_on_batch(*images(seed=9))
    return outputs(trainer.model)


def adapted():
    """A model without the adapters that the file `adapters.safetensors` has."""
    return tiny("VisionTransformer", depth=2)


def write(folder):
    """Writes what the folder lacks, and all expected outputs."""
    expected = {}
    if (file := folder / "expected.npz").is_file():
        expected |= np.load(file)
    for name in set(TINY) - set(expected):
        model = tiny(name, **CHANGES.get(name, {}))
        model.record["label_names"] = LABELS
        model.save(folder / f"{name}.keras")
        kerasvit.save_pretrained(model, folder / name)
        expected[name] = outputs(model)
    for name in set(TRAINERS) - {each.partition(" ")[0] for each in expected}:
        trainer = compiled(name)
        for seed in range(STEPS):
            trainer.train_on_batch(*images(seed=seed))
        trainer.save(folder / f"{name}.keras")
        expected[f"{name} saved"] = outputs(trainer.model)
        if name != "MaskedPatches":  # whose masks are by chance
            expected[f"{name} trained"] = trained(trainer)
    if "FeatureModel" not in expected:
        model = kerasvit.features(tiny("SwinTransformer"), [0, 1])
        model.save(folder / "FeatureModel.keras")
        expected["FeatureModel"] = outputs(model)
    if "adapters" not in expected:
        kerasvit.add_lora(model := adapted(), rank=2, alpha=3)
        random = np.random.default_rng(0)
        for weight in model.trainable_weights:
            weight.assign(random.normal(size=weight.shape, scale=0.3))
        kerasvit.save_adapters(model, folder / "adapters.safetensors")
        expected["adapters"] = outputs(model)
    np.savez_compressed(file, **expected)


def compiled(name):
    """A trainer of a small ViT."""
    trainer = TRAINERS[name](tiny("VisionTransformer", width=8, dropout=0.0))
    sgd = keras.optimizers.SGD(0.05, momentum=0.9)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    loss = LOSSES.get(name, loss)
    trainer.compile(
        OPTIMIZERS[name](trainer.model) if name in OPTIMIZERS else sgd,
        loss,
        metrics=["accuracy"] if loss else None,
    )
    return trainer


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    write(where)
