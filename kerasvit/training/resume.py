"""Saves a training while it runs, and continues it."""

import inspect
import logging
import os
import random
import signal
import threading
import time
import types
import warnings
import zlib
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kerasvit.arguments import ArgumentError, check_built, number
from kerasvit.backend import TrainStep
from kerasvit.backend.keras_private import build_metrics, set_first_epoch
from kerasvit.backend.processes import Processes, processes_of, seed_torch

from . import saved_state
from .saved_state import SavedState

log = logging.getLogger("kerasvit")

# Processes agree about this often on whether to save. One process needs no agreement.
AGREE_SECONDS = 1


class Resume(keras.callbacks.Callback):
    """Saves the whole state of `fit`, which continues from it when it is called again.

    The weights are then those of a training without the interruption: the same bits on
    JAX, and within 1e-5 on TensorFlow and PyTorch, where sums may be rounded otherwise.

        train = images.train.batches(model, 32)                  # of kerasvit.data
        resume = kerasvit.Resume("runs/pets", train)
        model.fit(train, epochs=4, callbacks=[early_stopping, resume])

    Run the same script again after an interruption. `fit` has the weights and the
    history of all epochs when it returns, as if it had never been interrupted. A
    training that has its `epochs` returns at once; with larger `epochs` it goes on.

    A state has all variables of the model and of a trainer around it (weights, moving
    statistics, seeds, stored gradients), the optimizers, the history, and inside an
    epoch the metrics. It is written before the first batch, at the end of each epoch
    and, with `data`, every `minutes`. It replaces no other state until it is whole: the
    folder has the last two, and if the last one is damaged, `fit` warns and continues
    from the other. If a state cannot be written, or has weights that are not finite,
    `fit` warns and goes on; the states before stay.

    On SIGTERM the state is written after the present batch (without `data`, that of the
    last epoch stays; in a validation, after its end). Then the signal has the effect
    that it has without this callback: the process ends, with status 143, and does not
    go on with a model that is half trained. If the script has a handler of its own, it
    is called, and `fit` stops after the next batch. For `fit` in the main thread.

    Give it as the last callback: what others do at an epoch's end, such as lowering the
    learning rate, is then in the state. Their own counts and weights are not: the
    patience of `EarlyStopping` begins anew. What `fit` was given does not matter, but
    the variables do: a learning rate that is a number continues as it was.

    Several devices and processes (`keras.distribution`, `tf.distribute`, `torchrun`):
    the first process writes, and all read, from one file system.

    Random numbers: at the beginning of each epoch the generators of Python, NumPy and
    PyTorch are seeded, so that data which `fit` or a `DataLoader` shuffles has the same
    order again. (On TensorFlow, arrays have it with `keras.utils.set_random_seed`
    only. Keras 3.16 orders arrays by the epochs since `fit` was called, so that they
    begin again with the first epoch's order; `data` does not.) With `data`, PyTorch's
    are seeded before each batch, for `Dropout` without a seed.

    Args:
        folder: Folder of the states, which is created; one for each training.
        data: What `fit` gets, if it can begin at any batch: batches of `kerasvit.data`,
            or an object with `len(data)`, the batches of an epoch, and
            `data.start_at(n)`, after which its next iteration begins with batch n,
            counted from 0 over all epochs, and ends with the epoch of this batch. None:
            a training continues at the beginning of an epoch.
        minutes: Time between two states inside an epoch; 0: one between all batches.

    Attributes:
        epoch: Number of finished epochs.
        batch: Number of finished batches of the present epoch.
        history: {name: one number for each finished epoch}, of all calls of `fit`.

    Raises:
        ValueError: An argument is of another type or out of its range. In `fit`, before
            its first batch: the folder cannot be written, or its state is damaged, or
            belongs to another model, trainer, optimizer or length of `data`.
    """

    def __init__(self, folder: Any, data: Any = None, minutes: float = 10.0) -> None:
        super().__init__()
        self.folder = Path(os.path.expanduser(folder))
        if data is not None and not (
            hasattr(data, "start_at") and hasattr(data, "__len__")
        ):
            raise ArgumentError(
                "`data` must be batches of kerasvit.data, or have their `start_at` and "
                "length. Leave it out for other data: states are then those of the "
                f"ends of epochs. Received: data={data!r:.200}.",
                "data",
            )
        self.data = data
        self.minutes = number(
            "minutes", minutes, 0, meaning="the time between two states"
        )
        self.epoch = self.batch = 0
        self.history: dict[str, list[float]] = {}
        self._epochs: list[int] = []  # of the history
        self._length: int | None = None
        self._processes = Processes()
        self._path: Path | None = None  # of the last whole state
        self._former: Any = None  # handler of SIGTERM, while there is another
        self._quiet: Any = None  # context without a warning, in a resumed epoch
        self._after = 0  # finished batches of the epoch after the present one

    def on_train_begin(self, logs: Any = None) -> None:
        """Continues from the last state, or writes the first one."""
        self._end_quiet()  # of a `fit` that raised, as is the handler
        self._release()
        model = self.model
        check_built(model)
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        self._processes = processes_of(model)
        self._length = self._checked_length()
        self._listed = self._signalled = self._stopped = False
        self._restored: SavedState | None = None
        found = self._read()
        if found is None:
            self._seed = self._processes.values(random.getrandbits(31))[0]
            self.epoch = self.batch = 0
            self.history, self._epochs, self._path = {}, [], None
            if error := self._written():
                raise ValueError(
                    f"`folder`: no state can be written to {self.folder}: {error}."
                )
        else:
            state, self._path = found
            self._check_place(state)
            self._restore(state)
        self._saved_number = self._number()
        self._saved_at = self._asked_at = time.monotonic()
        self._ask_every, self._batches, self._ask_at = 1, 0, 0
        self._catch()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Puts data, metrics and generators where they were."""
        set_first_epoch(self._model, None)  # for later calls of `fit`
        self._list_earlier_epochs()
        state, self._restored = self._restored, None
        self.epoch = epoch
        self.batch = self._after = self._offset = state.batch if state else 0
        if state and state.batch:
            metrics = saved_state.groups_of(self.model)["metrics"]
            own = map(self._processes.own_metric, state.arrays["metrics"])
            saved_state.assign(metrics, [*own])
            # Keras expects as many batches as in other epochs, and warns.
            self._quiet = warnings.catch_warnings()
            self._quiet.__enter__()
            warnings.filterwarnings("ignore", "Your input ran out of data")
        if self.data is not None:
            self.data.start_at(self._number())
        seeds = np.random.SeedSequence([self._seed, self._number()]).generate_state(1)
        random.seed(int(seeds[0]))
        np.random.seed(seeds)
        self._seed_torch()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Saves if it is time to."""
        # Not at the end of a batch: Keras would then wait for each one.
        self.batch = self._offset + batch
        if self._quiet is not None and self.batch >= (self._length or 0):
            # The end of a resumed epoch. On TensorFlow a step without data would
            # advance the seeds before it fails.
            raise StopIteration
        self._after = self.batch + self._model.steps_per_execution
        self._between_batches()
        if self.data is not None:
            self._seed_torch()

    def on_test_begin(self, logs: Any = None) -> None:
        """Saves an epoch that a callback has stopped, before metrics are reset."""
        if self._is_stopped_inside():
            self._save_inside()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves the state and the history of the epoch."""
        self._end_quiet()
        if self._is_stopped_inside():
            self._save_inside()
            return
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(float(value))
        self._epochs.append(epoch)
        self.epoch, self.batch = epoch + 1, 0
        ended = self._model.stop_training and not self._stopped
        self._save(ended=self.params["epochs"] if ended else None)
        if self._processes.preempted(self._signalled):
            self._stop()

    def on_train_end(self, logs: Any = None) -> None:
        """Gives SIGTERM back to the handler that was there before."""
        set_first_epoch(self._model, None)
        self._list_earlier_epochs()
        self._release()

    def _checked_length(self) -> int | None:
        """Returns the number of batches of an epoch, None if it is not known."""
        steps = (self.params or {}).get("steps")
        if self.data is None:
            return steps
        if steps not in (None, len(self.data)):
            raise ValueError(
                "`data` must be what `fit` gets, without `steps_per_epoch`. Received: "
                f"`data` of {len(self.data):,} batches, and `fit` takes {steps:,}."
            )
        return len(self.data)

    def _read(self) -> tuple[SavedState, Path] | None:
        found = saved_state.read_last(self.folder)
        place = str(found and found[1].name)
        # All have read before the first one writes.
        if len(set(self._processes.values(zlib.crc32(place.encode()) >> 1))) > 1:
            raise ValueError(
                f"The processes find different states in {self.folder}: this one finds "
                f"{place}. Give a folder of a file system that all have in common."
            )
        return found

    def _check_place(self, state: SavedState) -> None:
        """Checks that `fit` can begin where a state ends."""
        if state.batch and self.data is None:
            raise ValueError(
                f"The state in {self.folder} is inside an epoch, {state.place}. Pass "
                "`data` as before, or delete the folder to begin anew."
            )
        if self.data is not None and state.length not in (None, self._length):
            raise ValueError(
                f"The state in {self.folder} belongs to a training with {state.length} "
                f"batches in an epoch, and `data` has {self._length}. Give the same "
                "data and `batch_size`, or `Resume` another folder."
            )

    def _restore(self, state: SavedState) -> None:
        """Gives the model a state, and sets the first epoch of `fit`."""
        model = self.model
        self.epoch, self.batch = state.epoch, state.batch
        if state.batch:
            self.data.start_at(self._number())
            build_metrics(model, next(iter(self.data)))
        saved_state.check(state, model, self.folder)
        groups = saved_state.groups_of(model)
        for group in ("model", "optimizer"):
            saved_state.assign(groups[group], state.arrays.pop(group))
        if isinstance(model, TrainStep):
            model.batches = state.position
        self._seed, self._restored = state.seed, state
        self.history, self._epochs = state.history, state.epochs
        ended = state.ended is not None and self.params["epochs"] <= state.ended
        set_first_epoch(model, self.params["epochs"] if ended else state.epoch)
        log.info("Continues %s, from %s.", state.place, self.folder)

    def _end_quiet(self) -> None:
        """Lets Keras warn again, after a resumed epoch."""
        if self._quiet is not None:
            self._quiet.__exit__(None, None, None)
            self._quiet = None

    def _list_earlier_epochs(self) -> None:
        """Gives the `History` of `fit` the epochs before, once."""
        if self._listed:
            return
        self._listed = True
        history = self._model.history
        history.epoch = [*self._epochs]
        history.history = {name: [*each] for name, each in self.history.items()}

    def _number(self) -> int:
        """Returns the number of finished batches."""
        return self.epoch * (self._length or 1) + self.batch

    def _seed_torch(self) -> None:
        seed_torch(self._seed, self._number(), self._processes.number)

    def _between_batches(self) -> None:
        """Saves and stops if it is time to; processes ask each other, not each time."""
        if self._batches < self._ask_at:
            self._batches += 1
            return
        now, processes = time.monotonic(), self._processes
        stop = processes.preempted(self._signalled)
        late = processes.any(now - self._saved_at >= 60 * self.minutes)
        if stop or late:
            self._save_inside()
        if stop:
            self._stop()
        if processes.count > 1:
            # Their clocks differ, but all count the same batches.
            rare = processes.any(now - self._asked_at > AGREE_SECONDS)
            self._ask_every *= 1 if rare else 2
            self._ask_at, self._asked_at = self._batches + self._ask_every, now
        self._batches += 1

    def _is_stopped_inside(self) -> bool:
        """Returns whether a callback has stopped the epoch before its last batch."""
        inside = self._length is not None and 0 < self._after < self._length
        if not (inside and self._model.stop_training):
            return False
        self.batch = self._after
        return True

    def _save_inside(self) -> None:
        """Saves a state inside an epoch, from which only `data` can continue."""
        if self.data is not None and self._saved_number != self._number():
            self._save()

    def _save(self, ended: int | None = None) -> None:
        if error := self._written(ended):
            kept = f" {self._path} is kept." if self._path else ""
            warnings.warn(
                f"The state after batch {self.batch:,} of epoch {self.epoch:,} cannot "
                f"be saved in {self.folder}: {error}.{kept} The training goes on.",
                stacklevel=2,
            )

    def _written(self, ended: int | None = None) -> str:
        """Writes the state; returns why it is not written, or ""."""
        model, error = self.model, ""
        groups = saved_state.groups_of(model)
        metrics = groups.pop("metrics")
        arrays = {k: self._processes.arrays(v) for k, v in groups.items()}
        if self.batch:
            arrays["metrics"] = self._processes.metrics(metrics)
        state = SavedState(
            seed=self._seed,
            epoch=self.epoch,
            batch=self.batch,
            length=self._length,
            history=self.history,
            epochs=self._epochs,
            ended=ended,
            position=model.batches if isinstance(model, TrainStep) else 0,
            arrays=arrays,
            **saved_state.described(model),
        )
        self._saved_at, self._saved_number = time.monotonic(), self._number()
        if not saved_state.is_finite(state):
            return "its weights are not finite"
        if self._processes.number == 0:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._path = saved_state.write(self.folder, state, self._path)
            except OSError as caught:
                error = str(caught)
        # No process goes on, or ends, while the first one writes.
        failed = self._processes.any(bool(error))
        return error or ("the first process could not write it" if failed else "")

    def _catch(self) -> None:
        """Catches SIGTERM, as far as Python can: in the main thread."""
        if threading.current_thread() is threading.main_thread():
            former: Any = signal.getsignal(signal.SIGTERM)
            # That of a callback whose `fit` has raised counts for nothing.
            while isinstance(owner := getattr(former, "__self__", None), Resume):
                if owner._is_fitted(inspect.currentframe()):
                    break
                former = owner._release()
            # None is the handler of JAX, which tells all its processes.
            if former not in (None, signal.SIG_IGN):
                self._former = former
                signal.signal(signal.SIGTERM, self._on_signal)

    def _release(self) -> Any:
        """Restores the former handler of SIGTERM, and returns it."""
        former, self._former = self._former, None
        if former is not None:
            signal.signal(signal.SIGTERM, former)
        return former

    def _is_fitted(self, frame: types.FrameType | None) -> bool:
        """Returns whether a frame is called, at any depth, by the model's `fit`."""
        while frame is not None:
            is_fit = frame.f_code.co_name == "fit"
            if is_fit and frame.f_locals.get("self") is self._model:
                return True
            frame = frame.f_back
        return False

    def _on_signal(self, number: int, frame: types.FrameType | None) -> None:
        if self._is_fitted(frame):
            self._signalled = True
        else:  # `fit` has raised
            self._release()
            signal.raise_signal(number)

    def _stop(self) -> None:
        """Lets SIGTERM have the effect that it has without this callback."""
        self._model.stop_training = self._stopped = True
        self._signalled = False
        kept = self._path or "The first process has its state"
        log.warning("Stopped by SIGTERM. %s; the same script continues.", kept)
        former = self._release()
        if not callable(former):
            raise SystemExit(128 + signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
