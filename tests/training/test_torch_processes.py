"""SAM in two processes of `torch.distributed` equals SAM in one process.

Run as a script, with a rank and a folder, this file is one of the two; each takes every
case and leaves what it found in the folder.
"""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.training import (
    ASAM,
    GSAM,
    MSAM,
    SAM,
    SAMON,
    DistillationTrainer,
    LookSAM,
)
from tests.once import elsewhere, once

if keras.backend.backend() != "torch":
    elsewhere("torch.distributed")

pytestmark = [pytest.mark.waits_for("torch_processes"), pytest.mark.slow]
SAMPLES = 4  # of a process in a step


class Sometimes(layers.Layer):
    """Scales samples whose first value exceeds 2; has an unused weight."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), name="scale")
        self.never = self.add_weight(shape=(3,), name="never")

    def call(self, inputs):
        large = inputs[:, :1] > 2
        return ops.where(large, inputs * self.scale, inputs) if large.any() else inputs


def plain(seed):
    """Dense layers, of which one is frozen."""
    keras.utils.set_random_seed(seed)
    frozen = layers.Dense(6, trainable=False)
    return keras.Sequential(
        [keras.Input((5,)), layers.Dense(8, activation="tanh"), frozen, layers.Dense(3)]
    )


def noisy(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(8, activation="tanh"),
            layers.BatchNormalization(momentum=0.5),
            layers.Dropout(0.5, seed=7),
            layers.Dense(3),
        ]
    )


def branching(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((5,)), Sometimes(), layers.Dense(3)])


def float8(seed):
    model = plain(seed)
    model.layers[-1].quantize("float8")
    return model


def sgd():
    return keras.optimizers.SGD(0.1, momentum=0.9)


def adamw():
    return keras.optimizers.AdamW(0.01, weight_decay=0.1)


def scaled():
    return keras.optimizers.LossScaleOptimizer(sgd(), 64.0)


def gsam(model, **options):
    return GSAM(model, 0.6, 0.1, lr_max=0.2, lr_min=0.0, **options)


def distilled(model, **options):
    return SAM(DistillationTrainer(model, plain(9)), 0.5, **options)


FALLING = keras.optimizers.schedules.PolynomialDecay(0.5, 3, 0.1)

# Model, optimizer, trainer in each of two processes, trainer in one.
CASES = {
    "local": (
        noisy,
        sgd,
        lambda m: SAM(m, 0.5),
        lambda m: SAM(m, 0.5, micro_batches=2),
    ),
    "schedule": (
        plain,
        sgd,
        lambda m: SAM(m, FALLING),
        lambda m: SAM(m, FALLING, micro_batches=2),
    ),
    "float8": (
        float8,
        sgd,
        lambda m: SAM(m, 0.5),
        lambda m: SAM(m, 0.5, micro_batches=2),
    ),
    "parts": (
        noisy,
        adamw,
        lambda m: SAM(m, 0.5, micro_batches=2),
        lambda m: SAM(m, 0.5, micro_batches=4),
    ),
    "global": (
        plain,
        adamw,
        lambda m: SAM(m, 0.5, perturbation="global"),
        lambda m: SAM(m, 0.5),
    ),
    "asam": (plain, sgd, ASAM, lambda m: ASAM(m, micro_batches=2)),
    "gsam": (plain, adamw, gsam, lambda m: gsam(m, micro_batches=2)),
    "sam_on": (
        noisy,
        sgd,
        lambda m: SAMON(m, 0.5),
        lambda m: SAMON(m, 0.5, micro_batches=2),
    ),
    "msam": (noisy, adamw, MSAM, lambda m: MSAM(m, micro_batches=2)),
    "looksam": (
        noisy,
        sgd,
        lambda m: LookSAM(m, 0.5, k=2),
        lambda m: LookSAM(m, 0.5, k=2, micro_batches=2),
    ),
    "distilled": (
        noisy,
        adamw,
        distilled,
        lambda m: distilled(m, micro_batches=2),
    ),
    "every": (
        plain,
        sgd,
        lambda m: SAM(m, 0.5, every=3),
        lambda m: SAM(m, 0.5, every=3, micro_batches=2),
    ),
    "overflow": (
        plain,
        scaled,
        lambda m: SAM(m, 0.5),
        lambda m: SAM(m, 0.5, micro_batches=2),
    ),
    "branch": (
        branching,
        adamw,
        lambda m: SAM(m, 0.5, perturbation="global"),
        lambda m: SAM(m, 0.5),
    ),
}


def batches(case, rank=None):
    """Four batches, or the rows of a process in each."""
    rng = np.random.default_rng(2)
    rows = slice(None) if rank is None else slice(SAMPLES * rank, SAMPLES * (rank + 1))
    for i in range(4):
        x = rng.uniform(-1, 1, size=(2 * SAMPLES, 5)).astype("float32")
        y = rng.normal(size=(2 * SAMPLES, 3)).astype("float32")
        if case == "branch":
            x[-2, 0] = 3.0  # in the second process alone
        if case == "overflow" and i == 1:
            x[-1] = np.inf
        yield x[rows], y[rows]


def start(case, rank=None):
    """The trainer; other processes have other initial weights and start later."""
    build, optimizer, several, one = CASES[case]
    keras.config.set_dtype_policy("mixed_float16" if case == "overflow" else "float32")
    trainer = (one if rank is None else several)(build(rank or 0))
    trainer.compile(optimizer(), "mse")
    keras.config.set_dtype_policy("float32")
    if rank:
        trainer.optimizer.build(trainer.trainable_variables)
        trainer.optimizer.iterations.assign(9)
        trainer.batches = 1
    return trainer


def state(trainer):
    variables = [*trainer.variables, *trainer.sums(), *trainer.optimizer.variables]
    return [ops.convert_to_numpy(v).astype("float64") for v in variables]


def train(case, rank=None):
    trainer = start(case, rank)
    for x, y in batches(case, rank):
        trainer.train_on_batch(x, y)
    return state(trainer)


def unequal(rank):
    """Six samples of the first process, five of the second."""
    x, y = next(batches("local"))
    x, y = np.concatenate([x, -x]), np.concatenate([y, y])
    return (x[:6], y[:6]) if rank == 0 else (x[6:11], y[6:11])


def fit(rank, folder):
    trainer = SAM(plain(rank), 0.5)
    trainer.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = unequal(rank)
    validation = unequal(0)
    history = trainer.fit(
        x, y, 4, shuffle=False, verbose=0, validation_data=validation
    ).history
    loss = trainer.evaluate(*validation, verbose=0)
    np.testing.assert_allclose(history["val_loss"][-1], loss, rtol=1e-5)
    if rank == 0:
        trainer.save(folder / "sam.keras")
    return [*state(trainer)[: len(trainer.variables)], np.array(loss)]


def refusal(ask):
    try:
        ask()
    except ValueError as error:
        return str(error)
    return "nothing"


def refusals():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    yield refusal(lambda: SAM(DistributedDataParallel(plain(0))))
    sharded = plain(0)
    fully_shard(sharded, mesh=init_device_mesh("cpu", (2,)))
    yield refusal(lambda: SAM(sharded))
    trainer = SAM(plain(0), micro_batches=3, perturbation="global")
    trainer.compile("sgd", "mse")
    x, y = next(batches("local"))
    yield refusal(lambda: trainer.train_on_batch(x[:2], y[:2]))


def process(rank, folder):
    from torch import distributed

    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'meeting'}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    results = {case: train(case, rank) for case in CASES}
    results["fit"] = fit(rank, folder)
    results["refusals"] = [np.array(text) for text in refusals()]
    arrays = {
        f"{case} {i}": array
        for case, found in results.items()
        for i, array in enumerate(found)
    }
    np.savez(folder / f"{rank}.npz", **arrays)
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """{case: arrays} of each of two processes."""
    folder = once(tmp_path_factory, "torch_processes", run_two)
    return [by_case(np.load(folder / f"{rank}.npz")) for rank in range(2)], folder


def run_two(folder):
    environment = {
        **os.environ,
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(folder)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [each.communicate(timeout=180)[1] for each in processes]
    finally:
        for each in processes:
            each.kill()
    assert [each.returncode for each in processes] == [0, 0], "\n".join(errors)


def by_case(arrays):
    found = {}
    for name in arrays.files:
        found.setdefault(name.split()[0], []).append(arrays[name])
    return found


def assert_same(actual, expected, tolerance=2e-6):
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one(found, case):
    (first, second), _ = found
    assert_same(first[case], second[case], 0.0)
    expected = train(case)
    before = state(start(case))
    assert not np.allclose(before[0], expected[0], atol=1e-3)
    assert_same(first[case], expected, 2e-5)


def test_an_overflow_in_one_process_is_skipped_by_all(found):
    (first, _), _ = found
    trainer = start("overflow")
    for i, (x, y) in enumerate(batches("overflow")):
        if i != 1:
            trainer.train_on_batch(x, y)
    weights = len(trainer.variables)
    assert_same(first["overflow"][:weights], state(trainer)[:weights], 2e-3)
    assert any(np.array_equal(value, 32.0) for value in first["overflow"][weights:])


def test_each_process_counts_equally_in_fit_and_the_first_can_save(found):
    (first, second), folder = found
    assert_same(first["fit"], second["fit"], 0.0)
    trainer = SAM(plain(0), 0.5)
    # Accumulation takes the mean of batches, whatever their sizes.
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    trainer.compile(optimizer, "mse")
    for part in (slice(0, 4), slice(4, 8)):
        for rank in range(2):
            x, y = unequal(rank)
            trainer.train_on_batch(x[part], y[part])
    weights = [ops.convert_to_numpy(v) for v in trainer.variables]
    assert_same(first["fit"][:-1], weights, 1e-5)
    saved = keras.saving.load_model(folder / "sam.keras")
    assert_same(
        [ops.convert_to_numpy(v) for v in saved.variables], first["fit"][:-1], 0.0
    )


def test_unsupported_inspections_are_explained(found):
    for process in found[0]:
        wrapped, sharded, few = (str(text) for text in process["refusals"])
        assert "`model.module`" in wrapped and "DistributedDataParallel" in wrapped
        assert "nor sharded" in sharded
        assert "a batch must have at least 3 samples" in few


@pytest.mark.skipif(keras.version() >= "3.16", reason="since then Keras takes them")
@pytest.mark.parametrize("every", [1, 3])
def test_several_steps_per_execution_raise(every):
    trainer = SAM(plain(0), every=every)
    trainer.compile("sgd", "mse", steps_per_execution=2)
    with pytest.raises(ValueError, match="`steps_per_execution` must be 1 .* PyTorch"):
        trainer.fit(*unequal(0), verbose=0)


if __name__ == "__main__":
    process(int(sys.argv[1]), Path(sys.argv[2]))
