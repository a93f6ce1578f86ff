"""A saved training continues like an uninterrupted one."""

import keras
import numpy as np
import pytest
from keras import layers

from kerasvit.training import SAM, LookSAM
from tests.once import rest_long_elsewhere
from tests.trainers import NAMES, TRAINERS, assert_same, batch, compiled, small, values

pytestmark = pytest.mark.slow

TOLERANCE = 0 if keras.backend.backend() == "jax" else 1e-6


class Batches(keras.utils.PyDataset):
    """Four batches of three, in another order in each epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def __len__(self):
        return 4

    def __getitem__(self, index):
        x, y = batch(12)
        order = np.random.default_rng([5, self.epoch]).permutation(12)
        chosen = order[3 * index : 3 * index + 3]
        return x[chosen], y[chosen]

    def on_epoch_end(self):
        self.epoch += 1


def resumable(name, seed):
    """A trainer with dropout; Keras on PyTorch needs a seed to keep its state."""
    model = small(layers.Dropout(0.5, seed=seed), seed=seed)
    makers = {**TRAINERS, "looksam": lambda m: LookSAM(m, 0.3, 3)}
    makers["every"] = lambda m: SAM(m, 0.3, every=3)
    return compiled(
        makers[name](model),
        keras.optimizers.Adam(0.01),
        run_eagerly=False,
        jit_compile="auto",
    )


@pytest.mark.parametrize("name", rest_long_elsewhere(["looksam", "sam", "every"]))
def test_backup_and_restore(name, tmp_path):
    straight = resumable(name, 1)
    straight.fit(Batches(0), epochs=4, shuffle=False, verbose=0)

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)

    stopped = resumable(name, 1)
    stopped.fit(Batches(0), epochs=2, shuffle=False, callbacks=[backup()], verbose=0)
    resumed = resumable(name, 2)  # other weights and seeds, until they are restored
    history = resumed.fit(
        Batches(2), epochs=4, shuffle=False, callbacks=[backup()], verbose=0
    )
    assert history.epoch == [2, 3]
    assert int(resumed.optimizer.iterations) == 16
    assert_same(values(resumed), values(straight), TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_trainer_continues(name, tmp_path):
    x, y = batch()
    trainer = compiled(
        TRAINERS[name](small(layers.Dropout(0.5, seed=3))),
        keras.optimizers.Adam(0.01),
    )
    for _ in range(3):
        trainer.train_on_batch(x, y)
    trainer.save(tmp_path / "trainer.keras")
    trainer.save_weights(tmp_path / "trainer.weights.h5")
    loaded = keras.saving.load_model(tmp_path / "trainer.keras")
    assert type(loaded) is type(trainer)
    config, again = trainer.get_config(), loaded.get_config()
    del config["model"], again["model"]
    assert config == again
    filled = compiled(
        TRAINERS[name](small(layers.Dropout(0.5, seed=4), seed=4)),
        keras.optimizers.Adam(0.01),
    )
    filled.load_weights(tmp_path / "trainer.weights.h5")
    for other in (loaded, filled):
        assert other.batches == trainer.batches
        assert_same(values(other), values(trainer), 0)
        assert_same(values(other.optimizer), values(trainer.optimizer), 0)
    for each in (trainer, filled):
        for _ in range(2):
            each.train_on_batch(x, y)
    assert_same(values(filled), values(trainer), TOLERANCE)


def test_weights_of_another_trainer(tmp_path):
    """Another method loads the model and the optimizer; missing memory is no error."""
    x, y = batch()
    sam, looksam = (compiled(TRAINERS[name](small())) for name in ("sam", "looksam"))
    for trainer in (sam, looksam):
        trainer.train_on_batch(x, y)
    sam.save_weights(tmp_path / "sam.weights.h5")
    looksam.save_weights(tmp_path / "looksam.weights.h5")
    for trainer, file, source in (
        (compiled(TRAINERS["looksam"](small(seed=2))), "sam", sam),
        (compiled(TRAINERS["sam"](small(seed=2))), "looksam", looksam),
    ):
        trainer.load_weights(tmp_path / f"{file}.weights.h5")
        assert_same(values(trainer.model), values(source.model), 0)
        assert int(trainer.optimizer.iterations) == 1
        trainer.train_on_batch(x, y)
        assert all(np.isfinite(v).all() for v in values(trainer))


def test_weights_of_another_model_raise(tmp_path):
    compiled(TRAINERS["looksam"](small())).save_weights(tmp_path / "a.weights.h5")
    wider = keras.Sequential([keras.Input((5,)), layers.Dense(7), layers.Dense(3)])
    with pytest.raises(ValueError):
        compiled(LookSAM(wider)).load_weights(tmp_path / "a.weights.h5")


def test_dropout_can_be_added_or_removed(tmp_path):
    x, y = batch()
    with_dropout = compiled(SAM(small(layers.Dropout(0.5, seed=3))))
    without = compiled(SAM(small(seed=2)))
    with_dropout.save_weights(tmp_path / "with.weights.h5")
    without.load_weights(tmp_path / "with.weights.h5")
    assert_same(without.get_weights(), with_dropout.get_weights(), 0)
    without.save_weights(tmp_path / "without.weights.h5")
    again = compiled(SAM(small(layers.Dropout(0.5, seed=5), seed=3)))
    again.load_weights(tmp_path / "without.weights.h5")
    assert_same(again.get_weights(), without.get_weights(), 0)
    assert np.isfinite(again.train_on_batch(x, y))
