"""`Resume`: a `fit` that is interrupted ends as if it had not been."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers, ops

import kerasvit
from kerasvit.training import saved_state
from tests.once import long_elsewhere, rest_long, rest_long_elsewhere
from tests.training.resumed import batches, compiled, network, samples

pytestmark = pytest.mark.slow

backend = keras.backend.backend()
TOLERANCE = 0 if backend == "jax" else 1e-5
VALIDATION = samples(1000)


def accumulated(model):
    return keras.optimizers.AdamW(
        0.01, use_ema=True, ema_momentum=0.9, gradient_accumulation_steps=2
    )


def by_layer(model):
    adam = keras.optimizers.Adam(0.01)
    return kerasvit.layer_decay(adam, model, 0.5, groups=["first", "second"])


# {name: (trainer of a model, optimizer for it)}
TRAINERS = {
    "sam": (lambda m: kerasvit.SAM(m, 0.05, every=2, diagnostics=True), None),
    "plain": (lambda m: m, None),
    "momentum": (lambda m: m, lambda m: keras.optimizers.SGD(0.1, momentum=0.9)),
    "accumulated": (lambda m: m, accumulated),
    "layer_decay": (lambda m: m, by_layer),
    "looksam": (lambda m: kerasvit.LookSAM(m, 0.05, 3), None),
    "distillation": (
        lambda m: kerasvit.DistillationTrainer(m, network(9), "soft", rho=0.05),
        None,
    ),
}


def made(name, seed=1, **options):
    model = network(seed)
    trainer, optimizer = TRAINERS[name]
    trainer = trainer(model)
    return compiled(trainer, optimizer and optimizer(model), **options)


class Interrupt(keras.callbacks.Callback):
    """Raises after a number of batches."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class Do(keras.callbacks.Callback):
    """Calls a function before a batch, counted from 0 in this `fit`."""

    def __init__(self, at, function):
        super().__init__()
        self.left, self.function = at + 1, function

    def on_train_batch_begin(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            self.function(self.model)


def fit(trainer, folder, *callbacks, data=None, epochs=3, resume=None):
    data = data or batches()
    resume = resume or kerasvit.Resume(folder, data, minutes=1e-9)
    return trainer.fit(
        data,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        validation_data=VALIDATION,
        callbacks=[*callbacks, resume],
    )


def interrupted(make, folder, *after, **options):
    """A trainer whose `fit` was interrupted after numbers of batches, and its history.

    Each part has a trainer of its own, with other weights and seeds at first.
    """
    for seed, count in enumerate([*after, -1], 1):
        trainer = make(seed)
        try:
            history = fit(trainer, folder, Interrupt(count), **options)
        except KeyboardInterrupt:
            continue
    return trainer, history


def arrays(variables):
    return [ops.convert_to_numpy(v).astype("float64") for v in variables]


def assert_alike(trainer, expected, tolerance=TOLERANCE):
    for group in ("variables", "optimizer"):
        mine, other = (getattr(each, group) for each in (trainer, expected))
        mine, other = (getattr(each, "variables", each) for each in (mine, other))
        for a, b in zip(arrays(mine), arrays(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def assert_same_history(history, expected):
    assert history.epoch == expected.epoch
    assert history.history.keys() == expected.history.keys()
    for name, values in expected.history.items():
        np.testing.assert_allclose(history.history[name], values, atol=1e-5)


@pytest.mark.parametrize("name", rest_long(rest_long_elsewhere(TRAINERS), 4))
def test_an_interrupted_training_ends_alike(name, tmp_path):
    straight = made(name)
    history = fit(straight, tmp_path / "straight")
    trainer, resumed = interrupted(
        lambda seed: made(name, seed), tmp_path / "resumed", 3, 1, 6
    )
    assert_alike(trainer, straight)
    assert_same_history(resumed, history)
    assert len(list((tmp_path / "resumed").iterdir())) == 2


@pytest.mark.parametrize("policy", rest_long_elsewhere(["mixed_bfloat16", "bfloat16"]))
def test_bfloat16(policy, tmp_path):
    keras.config.set_dtype_policy(policy)
    straight = made("plain")
    fit(straight, tmp_path / "straight")
    trainer, _ = interrupted(lambda seed: made("plain", seed), tmp_path / "b", 7)
    assert_alike(trainer, straight)


@pytest.mark.long
@pytest.mark.not_on("torch", reason="Keras executes one step there")
def test_several_steps_per_execution(tmp_path):
    straight = made("plain", steps_per_execution=2)
    fit(straight, tmp_path / "straight")
    trainer, _ = interrupted(
        lambda seed: made("plain", seed, steps_per_execution=2), tmp_path / "b", 2, 3
    )
    assert_alike(trainer, straight)


@pytest.mark.xfail(
    keras.__version__ >= "3.16" and keras.backend.backend() != "tensorflow",
    reason="Keras 3.16 orders arrays by the number of epochs since `fit` was called",
    strict=True,
)
def test_arrays_continue_from_the_end_of_an_epoch(tmp_path):
    x, y = (np.concatenate(a) for a in zip(*map(samples, range(5)), strict=True))

    def train(trainer, folder, *callbacks):
        resume = kerasvit.Resume(folder)
        callbacks = [*callbacks, resume]
        return trainer.fit(x, y, 8, epochs=3, verbose=0, callbacks=callbacks)

    # Arrays on TensorFlow have an order that the test's seed determines, at `fit`.
    straight = made("plain")
    history = train(straight, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        train(made("plain"), tmp_path / "b", Interrupt(8))
    assert sorted(f.name for f in (tmp_path / "b").iterdir()) == [
        "state_00000_00000000.npz",
        "state_00001_00000000.npz",
    ]
    resumed = made("plain", seed=1)
    assert_same_history(train(resumed, tmp_path / "b"), history)
    assert_alike(resumed, straight)


@long_elsewhere
def test_a_finished_training_returns_at_once_and_larger_epochs_continue(tmp_path):
    straight = made("accumulated")
    longer = fit(straight, tmp_path / "straight", epochs=4)
    first = made("accumulated")
    history = fit(first, tmp_path / "b", epochs=2)
    again = made("accumulated", seed=5)
    calls = []
    same = fit(again, tmp_path / "b", Do(0, calls.append), epochs=2)
    assert calls == []
    assert_same_history(same, history)
    assert_alike(again, first, 0)
    assert_same_history(fit(again, tmp_path / "b", epochs=4), longer)
    assert_alike(again, straight)


def test_a_later_fit_without_the_callback_begins_at_its_first_epoch(tmp_path):
    model = made(
        "momentum"
    )  # Keras on JAX cannot call `fit` twice with moving averages
    fit(model, tmp_path, epochs=2)
    assert model.fit(*samples(0), verbose=0).epoch == [0]


def test_the_first_state_has_the_first_weights_and_the_seed(tmp_path):
    first, second = made("plain"), made("plain", seed=2)
    resume = kerasvit.Resume(tmp_path, batches())
    for trainer in (first, second):
        with pytest.raises(ZeroDivisionError):
            fit(trainer, tmp_path, Do(0, lambda model: 1 / 0), resume=resume)
    assert_alike(second, first, 0)
    assert (resume.epoch, resume.batch) == (0, 0)


def test_training_that_a_callback_ended(tmp_path):
    class Enough(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    history = fit(made("plain"), tmp_path, Enough())
    assert fit(made("plain"), tmp_path).epoch == history.epoch == [0]
    assert fit(made("plain"), tmp_path, epochs=4).epoch == [0, 1, 2, 3]


@long_elsewhere
def test_an_epoch_that_a_callback_stopped(tmp_path):
    def stop(model):
        model.stop_training = True

    straight = made("plain")
    expected = fit(straight, tmp_path / "straight")
    resume = kerasvit.Resume(tmp_path / "b", batches(), minutes=60)
    fit(made("plain"), tmp_path / "b", Do(6, stop), resume=resume)
    assert (resume.epoch, resume.batch) == (1, 2)
    resumed = made("plain")
    assert_same_history(fit(resumed, tmp_path / "b"), expected)
    assert_alike(resumed, straight)


def kept(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "other, words",
    [
        (lambda: compiled(network(2), keras.optimizers.SGD(0.1)), "optimizer is Adam"),
        (lambda: made("sam"), "model is Functional there and SAM here"),
        (
            lambda: compiled(
                keras.Sequential([keras.Input((6,)), layers.Dense(4), layers.Dense(3)])
            ),
            r"\(6, 8\), float32, there is .*\(6, 4\)",
        ),
    ],
    ids=["optimizer", "trainer", "model"],
)
def test_a_state_of_another_training_raises(other, words, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(made("plain"), tmp_path, Interrupt(2))
    before, trainer = kept(tmp_path), other()
    weights = trainer.get_weights()
    with pytest.raises(ValueError, match=f"(?s){words}.*another folder, or delete"):
        fit(trainer, tmp_path)
    assert kept(tmp_path) == before
    for now, then in zip(trainer.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(now, then)


@long_elsewhere
def test_a_state_inside_an_epoch_needs_the_same_data(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(made("plain"), tmp_path, Interrupt(2))
    with pytest.raises(ValueError, match="inside an epoch.*batch 1 of 5.*Pass `data`"):
        fit(made("plain"), tmp_path, resume=kerasvit.Resume(tmp_path))
    with pytest.raises(ValueError, match="5 batches in an epoch, and `data` has 4"):
        fit(made("plain"), tmp_path, data=batches(length=4))
    resume = kerasvit.Resume(tmp_path, batches(length=4))
    with pytest.raises(ValueError, match="`data` of 4 batches, and `fit` takes 5"):
        fit(made("plain"), tmp_path, resume=resume)


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="`data` must be batches of kerasvit.data"):
        kerasvit.Resume(tmp_path, [1, 2])
    with pytest.raises(ValueError, match="`minutes` must be a finite number ≥ 0"):
        kerasvit.Resume(tmp_path, minutes=-1)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="`folder`: no state can be written to"):
        fit(made("plain"), tmp_path / "file")


@pytest.mark.parametrize("damage", rest_long_elsewhere(["cut", "changed"], 0))
def test_a_damaged_state(damage, tmp_path):
    straight = made("plain")
    fit(straight, tmp_path / "straight")
    folder = tmp_path / "b"
    with pytest.raises(KeyboardInterrupt):
        fit(made("plain"), folder, Interrupt(8))
    before, last = sorted(folder.iterdir())
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    trainer = made("plain", seed=3)
    with pytest.warns(UserWarning, match=f"{last.name} is damaged.*batch 1 of 5"):
        fit(trainer, folder)
    assert_alike(trainer, straight)
    for file in folder.iterdir():
        file.write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"cannot be read.*delete .* to begin anew"):
        fit(trainer, folder)


def test_no_damage_is_overlooked(tmp_path):
    """Any byte that changes leads to the same content or to an error that is known."""
    values = np.arange(8, dtype="float32")
    state = saved_state.SavedState(1, variables={"model": [["a", [8], "float32"]]})
    state.arrays = {"model": [values]}
    path = saved_state.write(tmp_path, state, None)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= rng.integers(1, 256)
        path.write_bytes(damaged)
        try:
            found, _ = saved_state.read_last(tmp_path)
        except ValueError as error:
            assert "is damaged" in str(error)
            continue
        np.testing.assert_array_equal(found.arrays["model"][0], values)


def test_a_full_disk_and_weights_that_are_not_finite(tmp_path, monkeypatch):
    data = batches()
    resume = kerasvit.Resume(tmp_path, data, minutes=60)

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    def fill(model):
        monkeypatch.setattr(np, "savez", full)

    with pytest.warns(UserWarning, match="No space left.*is kept. The training goes"):
        fit(made("plain"), tmp_path, Do(6, fill), data=data, epochs=2, resume=resume)
    monkeypatch.undo()
    assert sorted(kept(tmp_path)) == ["state_00001_00000000.npz"]

    def spoil(model):
        model.trainable_variables[0].assign(np.full((6, 8), np.nan))

    with pytest.warns(
        UserWarning, match="not finite.*state_00001_00000001.npz is kept"
    ):
        fit(made("plain"), tmp_path, Do(2, spoil), epochs=2)
    names = ["state_00001_00000000.npz", "state_00001_00000001.npz"]
    assert sorted(kept(tmp_path)) == names


@long_elsewhere
def test_sigterm(tmp_path):
    """The state is saved, and then the signal has its former effect."""

    def terminate(model):
        os.kill(os.getpid(), signal.SIGTERM)

    resume = kerasvit.Resume(tmp_path, batches(), minutes=60)
    before = signal.SIG_DFL
    signal.signal(signal.SIGTERM, before)
    with pytest.raises(KeyboardInterrupt):  # its handler counts for nothing
        fit(made("plain"), tmp_path / "raised", Interrupt(2))
    with pytest.raises(SystemExit) as ended:
        fit(made("plain"), tmp_path, Do(3, terminate), resume=resume)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert (resume.epoch, resume.batch) == (0, 3)
    caught = []
    signal.signal(signal.SIGTERM, lambda *_: caught.append(resume.batch))
    try:
        # It begins after batch 3; the handler is called before the last one.
        fit(made("plain"), tmp_path, Do(1, terminate), resume=resume)
        assert caught == [4]
        assert (resume.epoch, resume.batch) == (1, 0)
        # After a `fit` that raised, the signal is the script's own again.
        with pytest.raises(KeyboardInterrupt):
            fit(made("plain"), tmp_path, Interrupt(2), resume=resume)
        terminate(None)
        assert len(caught) == 2
    finally:
        signal.signal(signal.SIGTERM, before)


def run(folder, kind="one", wait=None, kill=None):
    """Runs the script; if `wait` is given, kills it after the first state and that."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    count = 1
    if kind == "two" and backend == "torch":
        count = 2
        address = {
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(29_600 + os.getpid() % 900),
        }
        environment |= {**address, "WORLD_SIZE": "2"}
    if kind == "two" and backend == "jax":
        flags = os.environ.get("XLA_FLAGS", "")
        flags += " --xla_force_host_platform_device_count=2"
        environment |= {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.resumed", str(folder), kind],
            cwd=Path(__file__).parents[2],
            env={**environment, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    if wait is not None:
        known = set((folder / "states").glob("*"))
        while set((folder / "states").glob("*")) <= known:
            if processes[0].poll() is not None:
                break
            time.sleep(0.01)
        time.sleep(wait)
        for process in processes:
            process.send_signal(kill or signal.SIGKILL)
    errors = [process.communicate(timeout=300)[1] for process in processes]
    codes = [process.returncode for process in processes]
    allowed = {0} if wait is None else {0, -signal.SIGKILL, 128 + signal.SIGTERM}
    assert set(codes) <= allowed, errors
    return codes[0] == 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["one", "two"])
def test_a_script_that_is_killed_at_random_moments(kind, tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for folder in (straight, killed):
        folder.mkdir()
    assert run(straight, kind)
    moments = random.Random(kind)
    for kill in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        run(killed, kind, moments.uniform(0, 0.8), kill)
    assert not list(killed.glob("weights*"))
    assert run(killed, kind)
    for file in straight.glob("weights*"):
        expected, found = np.load(file), np.load(killed / file.name)
        for name in expected.files:
            np.testing.assert_allclose(found[name], expected[name], atol=TOLERANCE)
