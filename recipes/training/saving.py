"""Saves a training while it runs, and continues it from any step.

progress = Progress(folder, seed, rounds, round_steps, log=log, batch_size=64)
progress.restore(trainer)
with progress:
    for step, part in progress.parts(trainer):
        trainer.fit(batches(step), callbacks=[progress], **part)
"""

import math
import signal
import threading
import time

import keras
from command.command_line import BadInput
from devices.devices import ONE, Devices
from training import seeds, selection, states, validation
from training.progress import console
from training.step_log import StepLog

LOG_SECONDS = 10
# Processes agree about this often on whether to save. One process needs no agreement.
AGREE_SECONDS = 1


class Progress(keras.callbacks.Callback):
    """Saves the state every few minutes and after every round; stops on SIGTERM.

    keras.callbacks.BackupAndRestore does not save the history, the metrics of an
    unfinished epoch and the seeds of dropout, and writes two files in place: if it is
    killed between them, it resumes at the wrong step.

    Args:
        folder: Folder of the states.
        seed: Seed of dropout.
        rounds: Number of rounds, which are the epochs of `fit`.
        round_steps: Steps per round.
        batch_size: Images per step, for the log.
        parts: Batches of `fit` per step.
        log: `StepLog`.
        minutes: Maximum time between two saved states.
        devices: Devices of the training. All processes read the states, from one file
            system.
        keep_best: Whether the weights of the best validation are kept.
        patience: Validations without a better one after which the training ends.

    Attributes:
        step: Number of finished steps.
        history: Metrics and seconds of each finished round.
    """

    # Keras calls `on_train_batch_end` in threads, which wait for the loss of a step,
    # while the next steps begin. (On TensorFlow, Keras waits for each step.)
    async_safe = True

    def __init__(
        self,
        folder,
        seed: int,
        rounds: int,
        round_steps: int,
        *,
        batch_size: int,
        parts: int = 1,
        log: StepLog,
        minutes: float = 10.0,
        devices: Devices = ONE,
        keep_best: bool = False,
        patience: int | None = None,
    ):
        super().__init__()
        self.keep_best, self.patience = keep_best or patience is not None, patience
        self._best = None
        self.folder, self.seed, self.devices = folder, seed, devices
        self.rounds, self.round_steps = rounds, round_steps
        self.batch_size, self.log, self.minutes = batch_size, log, minutes
        self.parts_of_step = parts
        self.step, self.history = 0, []
        self._check_at, self._check_every = 0, 1  # steps
        self._signalled = False
        self.folder.mkdir(exist_ok=True)

    def restore(self, trainer, batches=None) -> None:
        """Loads the last saved state.

        Args:
            trainer: Compiled `kerasvit.SAM`.
            batches: Batches for `evaluate`. One builds the metrics, whose variables are
                a part of the state inside a round.

        Raises:
            command_line.BadInput: Its files are damaged.
        """
        state = states.load_last(self.folder, trainer, self.round_steps)
        self.step, self.history = state.step, state.history
        self._metrics, self._seconds = state.metrics, state.seconds
        self._saved_step, self._best = state.step, state.best
        if state.metrics:
            trainer.evaluate(batches, steps=1, verbose=0)
        if self.step == self.rounds * self.round_steps:
            # As `fit` does at its end: a moving average becomes the weights.
            trainer.optimizer.finalize_variable_values(trainer.trainable_variables)
        if self.devices.is_first:
            self.log.begin(self.step)

    def parts(self, trainer):
        """Yields (first step, arguments of `fit`) for the remaining steps.

        There are two parts after a restored state inside a round: its rest, and the
        full rounds.
        """
        done, first = divmod(self.step, self.round_steps)
        if first:
            yield self.step, self._part(done, done + 1, self.round_steps - first)
            done += 1
            self.restore(trainer)  # `fit` may have put a moving average into weights
        if done < self.rounds and not self.stopped_early:
            steps = self.round_steps
            yield done * steps, self._part(done, self.rounds, steps)

    @property
    def stopped_early(self) -> bool:
        """Whether the training has ended before its last step."""
        before = self.step < self.rounds * self.round_steps
        return before and selection.is_exhausted(self.history, self.patience)

    def finish(self, trainer) -> dict:
        """Sets the weights that are kept, and returns facts for result.json.

        Args:
            trainer: As for `restore`, after `fit`.
        """
        if not self.keep_best:
            return {"history": self.history}
        trainer.model.set_weights(states.read_best(self.folder))
        numbers = selection.facts(self.history, self.round_steps, self.stopped_early)
        facts = {"history": self.history, **numbers}
        console.print(
            f"Kept: {selection.sentence(facts)}.", highlight=False, soft_wrap=True
        )
        return facts

    def _part(self, begin, end, steps):
        count = steps * self.parts_of_step
        return {"initial_epoch": begin, "epochs": end, "steps_per_epoch": count}

    def __enter__(self):
        self._handler = None
        # Python handles signals in the main thread only.
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and not self.devices.catches_sigterm:
            self._handler = signal.signal(signal.SIGTERM, self._on_signal)
        return self

    def __exit__(self, *_):
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)

    def _on_signal(self, number, frame):
        self._signalled = True

    def on_train_begin(self, logs=None):
        """Starts the time to the next saved state."""
        self._saved_at = self._checked_at = time.perf_counter()

    def on_epoch_begin(self, epoch, logs=None):
        """Restores the metrics of an unfinished round."""
        self._first_step, self._not_finite = self.step, []
        self._logged_at = time.perf_counter()
        self._began = self._logged_at - self._seconds
        self._logged = (0, 0.0)
        if self._metrics:
            self.devices.assign_metrics(self.model, self._metrics)
            self._logged = self._losses()
        self._metrics, self._seconds = [], 0.0

    def on_train_batch_begin(self, batch, logs=None):
        """Saves and logs if it is time to, and sets random seeds."""
        done, part = divmod(batch, self.parts_of_step)
        if part:  # of an unfinished step
            return
        self.step = self._first_step + done
        if done:
            self._between_steps()
        seeds.set_seeds(self)

    def on_train_batch_end(self, batch, logs=None):
        """Notes a batch after which the mean loss of the round is not finite."""
        if not math.isfinite(logs["loss"]):
            self._not_finite.append(batch // self.parts_of_step)

    def end_steps(self):
        """Logs the last steps of the round, before its validation."""
        self.step = (self._first_step // self.round_steps + 1) * self.round_steps
        self._write_row()

    def on_epoch_end(self, epoch, logs=None):
        """Saves the state, with the metrics of the round."""
        logs = {name: float(value) for name, value in logs.items()}
        seconds = round(time.perf_counter() - self._began, 2)
        self.history.append({**logs, "seconds": seconds})
        self.log.scalars(self.step, logs)
        if self.keep_best and selection.best_round(self.history) == epoch:
            self._write_best()
        self._save(states.State(self.step, self.history))
        self.model.stop_training = self.stopped_early
        if self.devices.preempted(self._signalled):
            self._exit()

    def _write_best(self):
        with validation.averaged(self.model):
            weights = self.devices.weights(self.model.model)
        if self.devices.is_first:
            self._best = states.write_best(self.folder, self.step, weights)

    def _between_steps(self):
        if self.step < self._check_at:
            return
        now = time.perf_counter()
        if self.devices.any(bool(self._not_finite)):
            self._raise_not_finite("loss")
        stop = self.devices.preempted(self._signalled)
        if stop or self.devices.any(now - self._saved_at >= 60 * self.minutes):
            self._write_row()
            metrics = self.devices.metric_values(self.model)
            seconds = now - self._began
            self._save(states.State(self.step, self.history, metrics, seconds))
        elif self.devices.any(now - self._logged_at >= LOG_SECONDS):
            self._write_row()
        if stop:
            self._exit()
        if self.devices.processes > 1:
            # Their clocks differ, but all count the same steps.
            rare = self.devices.any(now - self._checked_at > AGREE_SECONDS)
            self._check_every *= 1 if rare else 2
            self._check_at, self._checked_at = self.step + self._check_every, now

    def _losses(self):
        """Returns (steps of the round, their mean loss). Waits for the last step."""
        steps = (self.step - 1) % self.round_steps + 1
        return steps, float(self.model.get_metrics_result()["loss"])

    def _write_row(self):
        """Appends a row to the log.

        Raises:
            BadInput: The loss is not finite.
        """
        steps, mean = self._losses()
        if self.devices.any(not math.isfinite(mean)):
            self._raise_not_finite("loss")
        now, (before, mean_before) = time.perf_counter(), self._logged
        count = steps - before
        loss = (steps * mean - before * mean_before) / count
        # A variable of `tf.distribute` has no `float`.
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        speed = count * self.batch_size / (now - self._logged_at)
        seconds = sum(logs["seconds"] for logs in self.history) + now - self._began
        if self.devices.is_first:
            self.log.row(self.step, loss, rate, speed, seconds)
        self._logged, self._logged_at = (steps, mean), now

    def _save(self, state):
        if not self.devices.finite(self.model.trainable_variables):
            self._raise_not_finite("weights")
        state.best = self._best
        states.write(self.folder, state, self.model, self.devices)
        self.devices.wait(f"saved step {state.step}")
        self._saved_step, self._saved_at = state.step, time.perf_counter()
        self._logged_at = self._saved_at  # the speed is that without saving

    def _exit(self):
        if self.devices.is_first:
            console.print(
                f"Stopped by SIGTERM. Step {self.step:,} of "
                f"{self.rounds * self.round_steps:,} is saved; the same command "
                "continues."
            )
        raise SystemExit(0)

    def _raise_not_finite(self, what):
        step = self._first_step + min(self._not_finite, default=-1) + 1
        step = step if self._not_finite else self.step
        kept = f"Step {self._saved_step:,} is kept in {self.folder}."
        raise BadInput(
            f"The {what} became infinite or NaN in step {step:,} of "
            f"{self.rounds * self.round_steps:,} (batch {step - 1:,}, counted from 0). "
            f"{kept if self._saved_step else 'No step is saved yet.'} Train in another "
            "folder, --out, with a smaller --learning-rate, more --warmup-steps or, "
            "instead of mixed_float16, --dtype mixed_bfloat16. The same command tries "
            "the same steps again, which helps after a fault of the machine only."
        )
