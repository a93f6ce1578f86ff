"""Fits a linear classifier to frozen features before fine-tuning, and sets the head.

start = linear_classifier.set_head(devices, model, dataset, config, folder)
"""

import dataclasses

import keras
import numpy as np
from command import command_line
from rich.table import Table
from scoring import label_table
from training import training_data
from training.progress import console
from training.quality import quality_of
from training.validation import kept_logs

import kerasvit
from kerasvit.evaluation import unpaired_difference
from kerasvit.fine_tuning import heads_of

MAX_IMAGES = 2_000  # images of each part that are looked at
PER_CLASS = 10  # raises MAX_IMAGES of the training images for many classes


@dataclasses.dataclass(frozen=True)
class Start:
    """Accuracies of the loaded weights before the training, in [0, 1].

    Attributes:
        kept: Of the validation images, with the head of the weights; None if they have
            no head for these classes.
        linear: Of the same, of a linear classifier on frozen features.
        images: Number of training images that the classifier was fitted to.
        tested: Number of validation images.
        kept_test, linear_test: Of the test images.
        test_images: Number of these.
        heads: (kernel, bias) of the classifier for each head of the model.

    Of several labels the accuracies are mAPs.
    """

    kept: float | None
    linear: float
    images: int
    tested: int
    kept_test: float | None
    linear_test: float
    test_images: int
    heads: list

    @property
    def accuracy(self):
        """The higher of the validation accuracies, which the training should exceed."""
        return max(self.linear, self.kept or 0.0)

    @property
    def test_accuracy(self):
        """That of the same head on the test images."""
        return self.linear_test if self.linear == self.accuracy else self.kept_test


BETTER = "accuracy", "test_accuracy"
NUMBERS = [f.name for f in dataclasses.fields(Start) if f.name != "heads"]


def measure(model: keras.Model, dataset, batch_options: dict, seed: int = 0) -> Start:
    """Fits a linear classifier to features of training images; the head stays.

    Args:
        model: Model with a head that `kerasvit.fit_head` takes. A head that contains
            only zeros is not measured.
        dataset: `kerasvit.data.LabelledImages`.
        batch_options: Keyword arguments of `Images.batches`.
        seed: Seed of the samples of images.
    """
    heads = heads_of(model)
    most = max(MAX_IMAGES, PER_CLASS * heads[0].units)

    def sampled(images, count=MAX_IMAGES):
        return images.sample(count, seed).batches(**batch_options)

    test = sampled(dataset.test)
    kept = [head.get_weights() for head in heads]
    train, validation = sampled(dataset.train.images, most), sampled(dataset.validation)
    found = kerasvit.fit_head(
        *(model, train, validation), task=dataset.task, max_images=most, seed=seed
    )
    fitted = [head.get_weights() for head in heads]
    linear_test, tested = _quality(model, test, dataset.task)
    _assign(model, kept)
    return Start(
        kept=found.before,
        linear=found.validation,
        images=found.images,
        tested=found.validation_images,
        kept_test=None
        if found.before is None
        else _quality(model, test, dataset.task)[0],
        linear_test=linear_test,
        test_images=tested,
        heads=fitted,
    )


def _quality(model, batches, task) -> tuple[float, int]:
    """Returns the accuracy, or the mAP of several labels, and the number of images."""
    outputs, labels = [], []
    for images, y in batches:
        outputs.append(
            keras.ops.convert_to_numpy(model.predict_on_batch(images.numpy()))
        )
        labels.append(y.numpy())
    logits, truth = np.concatenate(outputs).astype("float32"), np.concatenate(labels)
    if task == "multilabel":
        return label_table.of_outputs(logits, truth)["map"], len(truth)
    return float((logits.argmax(-1) == truth).mean()), len(truth)


def _assign(model, heads):
    for layer, weights in zip(heads_of(model), heads, strict=True):
        layer.set_weights(weights)


def set_head(devices, model, dataset, config, folder) -> dict | None:
    """Fits a linear classifier, sets the better head, and prints the accuracies.

    Args:
        devices: `Devices`. The first process writes the file of the head.
        model: `ImageModel`.
        dataset: `kerasvit.data.LabelledImages`.
        config: `finetune.Config`; without `linear_head` the model keeps its head.
        folder: Folder of the training. A continued training reads start.npz in it
            instead of fitting again.

    Returns:
        For result.json: the numbers of `Start`, and in `begins` the name of the head at
        the start of the training. None for fresh weights, whose features are random.

    Raises:
        command_line.BadInput: The model has no head that can be fitted.
    """
    if not config.weights:
        return None
    with command_line.checking_input(), devices.first_goes_first():
        return _set_head(model, dataset, config, folder)


def _set_head(model, dataset, config, folder):
    file = folder / "start.npz"
    start = _read(file) if file.exists() else None
    if start is None:
        options = training_data.batch_options(config, model)
        start = measure(model, dataset, options, config.seed)
        _write(file, start)
    kept_is_better = start.kept is not None and start.kept >= start.linear
    if config.linear_head and not kept_is_better:
        _assign(model, start.heads)
        begins = "the linear classifier"
    elif start.kept is not None:
        begins = "the head of the weights"
    else:
        begins = "a head of zeros"
    _print_start(start, begins, dataset.task)
    numbers = {name: getattr(start, name) for name in (*NUMBERS, *BETTER)}
    return {**numbers, "begins": begins}


def is_worse(before: float, after: float, count: int | None) -> bool:
    """Returns whether an accuracy fell by more than chance explains.

    Args:
        before, after: Accuracies in [0, 1], of as many images.
        count: Number of these images; None: not known, and any fall counts.
    """
    if count is None:
        return after < before
    right, other = (round(count * accuracy) for accuracy in (before, after))
    return unpaired_difference(right, count, other, count)[2] < 0


def warn_if_worse(result: dict) -> None:
    """Prints a warning if fewer images are right than before, beyond chance.

    Validation and test images together decide. If only the validation accuracy is
    lower, another sentence says so.
    """
    start = result.get("start")
    if not start:
        return
    kept = kept_logs(result)
    quality = quality_of(kept)
    final, before = kept[f"val_{quality}"], start["accuracy"]
    count = start["tested"]
    ends = f"It ends at {final:.2%} of the validation images; before it, the same "
    ends += f"weights had {before:.2%} of {count:,}."
    all_before, all_after = before, final
    if "test_accuracy" in start and not result["test_is_validation"]:
        tests = start["test_accuracy"], result[quality]
        ends += f" Of the test images: {tests[1]:.2%}, before {tests[0]:.2%}."
        more = start["test_images"]
        all_before, all_after = (
            (count * part + more * test) / (count + more)
            for part, test in zip((before, final), tests, strict=True)
        )
        count += more
    if is_worse(all_before, all_after, count):
        smaller = "--rho or --learning-rate" if result["rho"] else "--learning-rate"
        text = f"Warning: the training made the model worse. {ends} Give a smaller "
        text, style = f"{text}{smaller}, or more --steps.", "bold red"
    elif final < before - 0.5 / start["tested"]:  # other sums in float32
        text = f"No gain on the validation images is shown. {ends} Chance explains a "
        text, style = f"{text}difference of so few images (95 % interval).", None
    else:
        return
    console.print(text, style=style, soft_wrap=True, highlight=False)


def _print_start(start, begins, task):
    table = Table("before training", "validation", "test", title_justify="left")
    what = "mAP" if task == "multilabel" else "Accuracy"
    table.title = f"{what} of the loaded weights"
    if start.kept is not None:
        table.add_row("their head", f"{start.kept:.2%}", f"{start.kept_test:.2%}")
    fitted = f"linear classifier on frozen features of {start.images:,} images"
    table.add_row(fitted, f"{start.linear:.2%}", f"{start.linear_test:.2%}")
    console.print(table)
    console.print(
        f"Of {start.tested:,} validation and {start.test_images:,} test images. "
        f"Training begins with {begins}.",
        highlight=False,
        soft_wrap=True,
    )


def _write(file, start):
    numbers = {
        name: np.array(np.nan if value is None else value)
        for name, value in dataclasses.asdict(start).items()
        if name in NUMBERS
    }
    heads = {
        f"{part}_{i}": array
        for i, head in enumerate(start.heads)
        for part, array in zip(("kernel", "bias"), head, strict=True)
    }
    unfinished = file.with_name(f".{file.name}")
    with unfinished.open("wb") as stream:
        np.savez(stream, **numbers, **heads)
    unfinished.replace(file)


def _read(file):
    """Returns the `Start` in a file; None if an earlier version wrote less of it."""
    with np.load(file, allow_pickle=False) as found:
        if not set(NUMBERS) <= set(found):
            return None
        count = sum(name.startswith("kernel_") for name in found)
        numbers = {name: found[name].item() for name in NUMBERS}
        for name in ("kept", "kept_test"):
            numbers[name] = None if np.isnan(numbers[name]) else numbers[name]
        heads = [(found[f"kernel_{i}"], found[f"bias_{i}"]) for i in range(count)]
    return Start(**numbers, heads=heads)
