"""The radius as a number or a schedule, compiled and saved."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.training import ASAM, GSAM, MSAM, SAM, SAMON, LookSAM
from tests.once import on_last_backend
from tests.trainers import (
    NAMES,
    RATE,
    TRAINERS,
    assert_same,
    batch,
    compiled,
    small,
    values,
)

pytestmark = pytest.mark.slow

# Written before the radius was a variable, with Keras 3.15 on JAX.
FILES = Path(__file__).parent / "trainer_files"
backend = keras.backend.backend()
# With XLA, which is the default of TensorFlow and JAX.
GRAPH = {"run_eagerly": False, "jit_compile": backend != "torch"}
FAST = GRAPH if backend == "jax" else {}
compiles = pytest.mark.not_on("torch", reason="eager by default")
scheduled = pytest.mark.parametrize("name", sorted({*NAMES} - {"gsam"}))


def falling(*radii):
    """A schedule with a radius for each update."""
    boundaries = list(range(len(radii) - 1))
    return keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, list(radii))


def watched(trainer):
    """The trainer and a list to which each trace of its step appends."""
    step, traces = trainer.step_gradients, []

    def counted(*arguments):
        traces.append(1)
        return step(*arguments)

    trainer.step_gradients = counted
    return trainer, traces


@compiles
@pytest.mark.parametrize("name", ["sam", "asam", "gsam", "looksam", "msam"])
def test_another_radius_compiles_nothing(name):
    x, y = batch()
    trainer, traces = watched(TRAINERS[name](small()))
    compiled(trainer, **GRAPH)
    trainer.train_on_batch(x, y)
    before = len(traces)
    for i in range(24):
        trainer.rho = 0.2 + i / 50
        trainer.train_on_batch(x, y)
    assert before and len(traces) == before
    if name == "msam":
        trainer.rho = 0.0  # one pass in any case
        trainer.train_on_batch(x, y)
        assert len(traces) == before


@compiles
def test_a_schedule_compiles_once():
    x, y = batch()
    schedule = keras.optimizers.schedules.CosineDecay(0.5, 6)
    trainer, traces = watched(SAM(small(), schedule))
    compiled(trainer, **GRAPH)
    trainer.train_on_batch(x, y)
    before = len(traces)
    for _ in range(5):
        trainer.train_on_batch(x, y)
    assert len(traces) == before


# At 0 the schedule takes two passes, with rounding in what LookSAM remembers; a number
# compiles again.
RADII = (0.1, 0.5, 0.0, 0.3) if backend == "torch" else (0.1, 0.5, 0.3)


@scheduled
def test_a_schedule_gives_each_update_its_radius(name):
    x, y = batch()
    follows, assigned = (TRAINERS[name](small()) for _ in range(2))
    follows.rho = falling(*RADII)
    for trainer in (follows, assigned):
        compiled(trainer, **FAST)
    for rho in RADII:
        assigned.rho = rho
        for trainer in (follows, assigned):
            trainer.train_on_batch(x, y)
    assert_same(values(follows), values(assigned))
    assert_same(
        [ops.convert_to_numpy(follows.current_rho())], [np.float32(RADII[-1])], 0
    )


def test_a_schedule_counts_updates_where_gradients_accumulate():
    x, y = batch(12)
    results = []
    for rho in (falling(0.1, 0.5), None):
        optimizer = keras.optimizers.SGD(RATE, gradient_accumulation_steps=2)
        trainer = compiled(SAM(small(), rho or 0.1), optimizer, **FAST)
        for i in range(4):
            if rho is None:
                trainer.rho = (0.1, 0.1, 0.5, 0.5)[i]
            trainer.train_on_batch(x[3 * i : 3 * i + 3], y[3 * i : 3 * i + 3])
        results.append(values(trainer))
    assert_same(*results)


def test_a_schedule_counts_updates_where_an_overflow_skips_one():
    x, y = batch()
    keras.config.set_dtype_policy("mixed_float16")
    results = []
    for rho in (falling(0.1, 0.5), None):
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), 64)
        trainer = compiled(SAM(small(), rho or 0.1), optimizer, **FAST)
        for i, first in enumerate((1.0, np.inf, 1.0)):
            if rho is None and i == 2:
                trainer.rho = 0.5
            trainer.train_on_batch(first * x, y)
        assert int(optimizer.iterations) == 2
        results.append(values(trainer))
    assert_same(*results)


def test_a_schedule_in_fit():
    x, y = batch(12)
    at_once = 1 if backend == "torch" else 2
    results = []
    for rho, steps in ((falling(0.1, 0.4, 0.2, 0.3), at_once), (0.1, 1)):
        trainer = compiled(SAM(small(), rho), **GRAPH, steps_per_execution=steps)

        def change(step, logs, trainer=trainer):
            trainer.rho = (0.4, 0.2, 0.3, 0.3)[step]  # not `callback.model.rho`

        callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=change)]
        trainer.fit(
            x,
            y,
            batch_size=3,
            shuffle=False,
            callbacks=[] if rho != 0.1 else callbacks,
            verbose=0,
        )
        results.append(values(trainer))
    assert_same(*results)
    changed = compiled(SAM(small(), 0.1))
    changed.fit(x, y, batch_size=3, shuffle=False, verbose=0)
    assert np.abs(values(changed)[0] - results[0][0]).max() > 1e-4


def test_zero_is_one_pass():
    x, y = batch()
    trainer = SAM(small(), 0.0)
    step, passes = trainer.step_gradients, []

    def counted(loss_and_gradients, weights, memory):
        def one(values):
            passes.append(1)
            return loss_and_gradients(values)

        return step(one, weights, memory)

    trainer.step_gradients = counted
    compiled(trainer)
    for rho, expected in ((0.0, 1), (0.3, 2), (0, 1), (falling(0.0, 0.1), 2), (0.2, 2)):
        trainer.rho = rho
        passes.clear()
        trainer.train_on_batch(x, y)
        assert len(passes) == expected, rho


@scheduled
def test_the_config_has_the_number_or_the_schedule(name, tmp_path):
    trainer = TRAINERS[name](small())
    assert trainer.rho == 0.3 and type(trainer.rho) is float
    trainer.rho = schedule = falling(0.1, 0.5)
    assert trainer.rho is schedule
    compiled(trainer)
    x, y = batch()
    trainer.train_on_batch(x, y)
    trainer.save(tmp_path / "trainer.keras")
    again = keras.saving.load_model(tmp_path / "trainer.keras")
    assert again.rho.get_config() == schedule.get_config()
    for each in (trainer, again):
        each.train_on_batch(x, y)
    assert_same(values(again), values(trainer))
    lines = []
    trainer.summary(print_fn=lambda line, **_: lines.append(line))
    assert "rho=<PiecewiseConstantDecay>" in lines[0]


def test_weights_do_not_have_the_radius(tmp_path):
    x, y = batch()
    trainer = compiled(TRAINERS["looksam"](small()))
    trainer.train_on_batch(x, y)
    weights = trainer.get_weights()
    assert len(weights) == len(small().get_weights()) + 6  # and what is remembered
    trainer.save_weights(tmp_path / "trainer.weights.h5")
    trainer.rho = 0.7
    trainer.set_weights(weights)
    trainer.load_weights(tmp_path / "trainer.weights.h5")
    assert trainer.rho == 0.7
    assert float(ops.convert_to_numpy(trainer.current_rho())) == np.float32(0.7)


def test_older_files_load_and_continue(tmp_path):
    loaded = keras.saving.load_model(FILES / "looksam.keras")
    assert type(loaded) is LookSAM and (loaded.rho, loaded.k) == (0.3, 2)
    filled = compiled(
        LookSAM(small(layers.Dropout(0.5, seed=4), seed=4), 0.3, 2),
        keras.optimizers.Adam(0.01),
    )
    filled.load_weights(FILES / "looksam.weights.h5")
    for trainer in (loaded, filled):
        assert trainer.batches == 3 and int(trainer.optimizer.iterations) == 3
        assert all(np.any(v) for v in values(trainer))
    assert_same(values(filled), values(loaded), 0)
    assert_same(values(filled.optimizer), values(loaded.optimizer), 0)
    filled.save_weights(tmp_path / "now.weights.h5")
    h5py = pytest.importorskip("h5py")
    layouts = []
    for path in (FILES / "looksam.weights.h5", tmp_path / "now.weights.h5"):
        with h5py.File(path) as file:
            layouts.append([])
            file.visit(layouts[-1].append)
    assert layouts[0] == layouts[1]
    loaded.train_on_batch(*batch())


@on_last_backend
def test_gsam_raises_for_a_schedule():
    rates = {"lr_max": 0.2, "lr_min": 0.0}
    with pytest.raises(ValueError, match="follows the optimizer's learning rate"):
        GSAM(small(), falling(0.1, 0.2), 0.0, **rates)
    trainer = GSAM(small(), **rates)
    with pytest.raises(ValueError, match="follows the optimizer's learning rate"):
        trainer.rho = falling(0.1, 0.2)
    assert trainer.rho == 0.6


@on_last_backend
def test_repr_is_one_line_with_all_settings():
    model = small()
    shown = {
        SAM(model, 0.1, every=3): "<SAM rho=0.1, perturbation='local', "
        f"micro_batches=1, every=3, name='sam', model='{model.name}'>",
        ASAM(model, eta=0.02): "eta=0.02",
        GSAM(model, lr_max=0.5, lr_min=0): "<GSAM rho_max=0.6, rho_min=0.1, alpha=0.6",
        LookSAM(model, falling(0.1, 0.2), 4): "<LookSAM k=4, alpha=0.7, "
        "rho=<PiecewiseConstantDecay>, ",
        MSAM(model, 2, 0.8): "momentum=0.8",
        SAMON(model): "<SAMON rho=0.5, ",
    }
    for trainer, text in shown.items():
        assert text in repr(trainer) and "\n" not in repr(trainer)
        assert model.name in repr(trainer)
