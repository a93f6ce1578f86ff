"""A small training of `pretrain.py`, which a test may end at any moment.

    python tests/recipes/small_training.py FOLDER SAVE_MINUTES EPOCHS [KILL_AT_STEP]

trains in a process of its own. It has every kind of state: an optimizer with a moving
average, dropout, stochastic depth, and SAM.
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))

import keras
import numpy as np
import pretrain
from training import run_folder

import kerasvit

SIZES = {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8, "image_size": 28}
ROW = pretrain.SMALL["small_vit"]
MODEL = kerasvit.Variant("small_vit", ROW.builder, **{**ROW.numbers, **SIZES})


def settings(out, minutes=10.0, epochs=4, **changes):
    """Settings of a training with 10 steps per round and per epoch."""
    values = {"epochs": epochs, "dropout": 0.1, "stochastic_depth": 0.1, "rho": 0.05}
    return pretrain.Config(out=str(out), save_minutes=minutes, **{**values, **changes})


def optimizer(config, model, steps):
    """An optimizer with a moving average of the weights."""
    parts = config.accumulate if config.accumulate > 1 else None
    average = {"use_ema": True, "ema_momentum": 0.9}
    return keras.optimizers.AdamW(1e-3, **average, gradient_accumulation_steps=parts)


def interrupted(at, interrupt):
    """`Resume.on_train_batch_begin`, with a call between the batches at and at + 1."""
    begin = kerasvit.Resume.on_train_batch_begin

    def begin_or_interrupt(self, batch, logs=None):
        begin(self, batch, logs)
        if self.epoch * len(self.data) + self.batch == at:
            interrupt()

    return begin_or_interrupt


def last_state(run):
    """The last state of a training: its number of steps, of 10 in a round."""
    files = sorted((Path(run) / "with_SAM").glob("state_*.npz"))
    epoch, batch = map(int, files[-1].stem.split("_")[1:])
    return 10 * epoch + batch


def check_same(run, other, exact=True):
    """Checks that two finished trainings have the same weights and metrics.

    With `exact`, the weights are bit-equal on JAX.
    """
    exact = exact and keras.backend.backend() == "jax"
    models = [kerasvit.from_pretrained(f"{each}/model") for each in (run, other)]
    for a, b in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=0 if exact else 1e-5)
    a, b = (run_folder.finished_result(Path(each)) for each in (run, other))
    tested = [{key: result[key] for key in ("loss", "accuracy")} for result in (a, b)]
    logs = zip([*a["history"], tested[0]], [*b["history"], tested[1]], strict=True)
    for first, second in logs:
        for name in first.keys() - {"seconds"}:
            np.testing.assert_allclose(first[name], second[name], rtol=1e-5)


def main(out, minutes, epochs, kill_at=None):
    pretrain.SMALL["small_vit"], pretrain.make_optimizer = MODEL, optimizer
    if kill_at is not None:
        kill = interrupted(int(kill_at), lambda: os.kill(os.getpid(), signal.SIGKILL))
        kerasvit.Resume.on_train_batch_begin = kill
    pretrain.pretrain(settings(out, float(minutes), int(epochs)))


if __name__ == "__main__":
    main(*sys.argv[1:])
