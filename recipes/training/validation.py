"""Validates after each round, on any number of devices, and keeps the best weights.

The processes take the same number of full batches. Images that fill the last batch have
the weight 0. The history of a training, which its saved states have, decides which
weights are the best.
"""

import contextlib
import dataclasses
import time
import zipfile
from collections.abc import Iterator

import keras
import numpy as np
from command.command_line import BadInput
from devices.devices import Devices
from scoring import label_table
from scoring.outputs import Predictor
from training.progress import console
from training.quality import quality_of, share
from training.run_folder import replace_file

import kerasvit


def is_halved(config, count: int) -> bool:
    """Returns whether half of the validation images may not choose the epoch.

    Their scores calibrate the model, after the training or by `evaluate.py --trust`.

    Args:
        config: Dataclass of the settings.
        count: Number of validation images that are no test images.
    """
    chooses = config.keep_best or config.patience is not None
    return chooses and count >= kerasvit.Calibration.fewest


def seen_in_training(config, dataset):
    """Returns the images with those for validation that a training may look at.

    It prints a line if they are not all.

    Args:
        config: Dataclass of the settings.
        dataset: `kerasvit.data.LabelledImages`.
    """
    images = dataset.validation
    if images is dataset.test or not is_halved(config, len(images)):
        return dataset
    first, second = kerasvit.Calibration.halves(len(images))
    console.print(
        f"The best epoch is chosen on {len(first):,} validation images, the first half "
        f"of a calibration. The other {len(second):,} choose nothing.",
        highlight=False,
        soft_wrap=True,
    )
    return dataclasses.replace(dataset, validation=images.part(first))


class Evaluation:
    """Loss and metrics of a trainer on images.

    Args:
        images: `kerasvit.data.Images`.
        devices: Devices of the training.
        batch_options: Keyword arguments of `Images.batches`.
    """

    def __init__(self, images, devices: Devices, **batch_options):
        self.devices, self.images = devices, images
        self.options = batch_options
        if images.has_several_labels:
            self.predict = Predictor(devices, batch_options["batch_size"], placed=True)
            return
        batches = images.batches(
            shard=devices.shard, pad=devices.count > 1, **batch_options
        )
        self.batches = devices.distributed(batches)

    def __call__(self, trainer: keras.Model) -> dict[str, float]:
        """Returns {name: number}.

        Args:
            trainer: Compiled model. Its metrics are `weighted_metrics`, since those of
                `metrics` would count images of weight 0. Of several labels the numbers
                are those of `label_table`, exact of all images.
        """
        if self.images.has_several_labels:
            return self._of_labels(trainer)
        metrics = trainer.evaluate(self.batches, verbose=0, return_dict=True)
        return self.devices.sum_metrics(trainer) if self.devices.count > 1 else metrics

    def _of_labels(self, trainer):
        names = ("model", "normalize")
        transform, normalize = (self.options[name] for name in names)
        logits = self.predict(trainer.model, self.images, transform, normalize)
        labels = self.images.labels.astype("float32")
        tensors = map(keras.ops.convert_to_tensor, (labels, logits))
        loss = trainer.compute_loss(None, *tensors, training=False)
        shares = 1 / (1 + np.exp(-logits.astype("float64")))
        return {"loss": float(loss), **label_table.of_outputs(shares, labels)}


class Validation(keras.callbacks.Callback):
    """Evaluates after each round: adds `val_loss` and others, and `seconds`, to logs.

    It stands before the callbacks that need its results. The seconds are those of the
    round with its validation, since an interruption.

    Args:
        evaluation: Evaluation on the validation images.
    """

    def __init__(self, evaluation: Evaluation):
        super().__init__()
        self.evaluation = evaluation

    def on_epoch_begin(self, epoch, logs=None):
        """Begins to measure the time."""
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        """Replaces the training's metrics by those of all processes, and evaluates."""
        if self.evaluation.devices.processes > 1:
            logs.update(self.evaluation.devices.sum_metrics(self.model))
        with averaged(self.model):
            found = self.evaluation(self.model)
        logs.update({f"val_{name}": value for name, value in found.items()})
        logs["seconds"] = round(time.perf_counter() - self._began, 2)


@contextlib.contextmanager
def averaged(trainer: keras.Model) -> Iterator[None]:
    """Context in which the weights are their moving averages, if there are any.

    `keras.callbacks.SwapEMAWeights` uses NumPy arrays, which on PyTorch share their
    memory with the weights, so that it loses these.

    Args:
        trainer: Compiled model; all processes enter the context.
    """
    optimizer = trainer.optimizer
    if not getattr(optimizer, "inner_optimizer", optimizer).use_ema:
        yield
        return
    variables = trainer.trainable_variables
    values = [keras.ops.copy(variable) for variable in variables]
    optimizer.finalize_variable_values(variables)
    for variable in variables:  # JAX would give the averages' memory to `evaluate`
        variable.assign(keras.ops.copy(variable))
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


class KeepBest(keras.callbacks.Callback):
    """Keeps the weights of the best validation, and may end the training.

    It stands after `Validation`, and before `kerasvit.Resume`: a file of weights is
    there before the state in which it is the best. The one before it stays, for the
    state before.

    Args:
        resume: `kerasvit.Resume` of the same `fit`, whose folder has the weights too.
        devices: Devices of the training.
        patience: Validations without a better one after which the training ends; None:
            it does not end early.
    """

    def __init__(self, resume, devices: Devices, patience: int | None = None):
        super().__init__()
        self.folder, self.resume, self.devices = resume.folder, resume, devices
        self.patience = patience

    @classmethod
    def of(cls, config, resume, devices: Devices) -> list["KeepBest"]:
        """Returns the callback of the settings, if they ask for one."""
        asked = config.keep_best or config.patience is not None
        return [cls(resume, devices, config.patience)] if asked else []

    def on_train_begin(self, logs=None):
        """Begins a training, or the rest of one."""
        self._is_read = False

    def on_epoch_begin(self, epoch, logs=None):
        """Reads the weights that were kept before an interruption, as a check."""
        if self.resume.history and not self._is_read:
            self._read()
        self._is_read = True

    def on_epoch_end(self, epoch, logs=None):
        """Writes the weights if they are the best."""
        history = [*rounds(self.resume.history), logs]
        if best_round(history) == epoch:
            with averaged(self.model):
                weights = self.devices.weights(self.model.model)
            if self.devices.is_first:
                self._write(epoch, weights)
        if is_exhausted(history, self.patience):
            self.model.stop_training = True

    def set_best(self, model: keras.Model) -> None:
        """Sets the best weights of the training, after `fit`.

        Raises:
            BadInput: Their file is damaged.
        """
        model.set_weights(self._read())

    def _read(self):
        file = self._file(best_round(rounds(self.resume.history)))
        try:
            with np.load(file, allow_pickle=False) as found:
                return [found[f"arr_{i}"] for i in range(len(found.files))]
        except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
            raise BadInput(
                f"The best weights of a training, {file}, are damaged: {error}. "
                f"Restore the file from a copy, or delete {self.folder} to train again "
                "from the first step."
            ) from error

    def _write(self, epoch, weights):
        before = rounds(self.resume.history)
        best = self._file(best_round(before)) if before else None
        for old in self.folder.glob("best_*.npz"):
            if old != best:
                old.unlink()
        unfinished = self.folder / "unfinished.best"
        with unfinished.open("wb") as stream:
            np.savez(stream, *weights)
        replace_file(unfinished, self._file(epoch))

    def _file(self, epoch):
        return self.folder / f"best_{epoch:05d}.npz"


def rounds(history: dict[str, list[float]]) -> list[dict]:
    """Returns the metrics of each round, of `kerasvit.Resume.history`."""
    names = [*history]
    return [
        dict(zip(names, each, strict=True))
        for each in zip(*history.values(), strict=True)
    ]


def score(logs: dict) -> tuple[float, float]:
    """Returns what is larger for a better validation: accuracy, then the lower loss.

    Of several labels it is the mAP instead of the accuracy.
    """
    return logs[f"val_{quality_of(logs)}"], -logs["val_loss"]


def best_round(history: list[dict]) -> int:
    """Returns the index of the round with the best `score`, the first of equal ones.

    Args:
        history: Metrics of each finished round; at least one.
    """
    return max(range(len(history)), key=lambda i: score(history[i]))


def is_exhausted(history: list[dict], patience: int | None) -> bool:
    """Returns whether the last `patience` validations were no better than the best."""
    if patience is None or not history:
        return False
    return len(history) - 1 - best_round(history) >= patience


def kept_logs(result: dict) -> dict:
    """Returns the metrics of the round whose weights are kept.

    Args:
        result: Content of result.json.
    """
    return result["history"][result.get("kept_round", 0) - 1]


def facts(history: list[dict], round_steps: int, stopped_early: bool) -> dict:
    """Returns what result.json states of a training that keeps the best weights.

    Args:
        history: As for `best_round`.
        round_steps: Steps between validations.
        stopped_early: Whether the training ended before its last step.
    """
    kept = best_round(history) + 1
    steps = {"kept_step": kept * round_steps, "steps": len(history) * round_steps}
    return {"kept_round": kept, **steps, "stopped_early": stopped_early}


def sentence(result: dict) -> str | None:
    """Returns which weights are kept, or None for the last.

    Args:
        result: As for `kept_logs`.
    """
    if "kept_round" not in result:
        return None
    logs = kept_logs(result)
    stage = " of the last stage" if "after_stages" in result else ""
    best = share(score(logs)[0], quality_of(logs))
    text = (
        f"weights of step {result['kept_step']:,} of {result['steps']:,}{stage}, "
        f"the best on the validation images ({best}, loss "
        f"{logs['val_loss']:.4f})"
    )
    return f"{text}; stopped early" if result["stopped_early"] else text
