"""Searches for the radius rho of SAM on a model and its data."""

import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from kerasvit.arguments import integer, number
from kerasvit.backend.in_place_step import restored
from kerasvit.backend.keras_private import compile_arguments
from kerasvit.backend.threads import using
from kerasvit.training.sam import SAM

from .data import divide
from .report import Advice, Seen, Trial, compare, mean_of

RHOS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)  # the grid of SAM's paper, arXiv 2010.01412
RUNS = "at least two, to estimate the noise between runs"
# Arguments of the model's `compile` that the trials use.
USED = (
    "loss",
    "loss_weights",
    "metrics",
    "weighted_metrics",
    "run_eagerly",
    "jit_compile",
)
RATE = 1e-4  # small enough for pretrained weights


def suggest_rho(
    model: keras.Model,
    data: Any,
    *,
    validation: Any = 0.2,
    rhos: Any = None,
    steps: int = 300,
    runs: int = 3,
    optimizer: Any = None,
    loss: Any = None,
    batch_size: int = 32,
    seed: int = 0,
) -> Advice:
    """Trains briefly at several radii and reports whether SAM helps on the data.

        print(kerasvit.suggest_rho(model, (x, y)))

    Every radius starts from the model's present weights and trains on the same batches
    in the same orders, with the same dropout masks, so that only the radius differs.
    The result is measured on held-out batches: the loss and the metrics, as `evaluate`
    computes them; the gradient norm ‖∇L(w)‖₂ and the sharpness, which SAM lowers,
    L(w + r · g / ‖g‖₂) − L(w), both in training mode (per batch, with dropout). r is
    the same for all trials: the middle one of the radii above 0.

    A radius counts as a benefit if its loss is below that of plain training by more
    than three standard errors of that difference, between runs and between batches.
    This is a rule of thumb: with three runs chance alone passes it now and then, and a
    few hundred steps are not a whole training.

    The cost is `runs` × `steps` × two passes per radius, 10 800 passes with the
    defaults (a plain training step has one), and the measurements. The model, its
    optimizer and all random seeds are restored; meanwhile other threads must not call
    the model, except by functions of kerasvit, which wait.

    Args:
        model: As for `SAM`, compiled or not; or a `SAM`, whose `perturbation` and
            `micro_batches` are used.
        data: `(x, y)` or `(x, y, sample_weight)`, arrays in a tuple; or an iterable of
            such batches (tf.data, a torch DataLoader, a PyDataset), shuffled and
            without repetition. At most one batch per step is kept in memory; the runs
            use the same batches in different orders.
        validation: Share of the data to hold out, in (0, 1), or separate data. At most
            32 batches are used.
        rhos: Radii, ≥ 0; 0 is added if it is missing. None: 0.02, 0.05, 0.1, 0.2 and
            0.5, as in SAM's paper, or a power of ten smaller where the model's
            gradients are so large that even these radii raise its loss L, to first
            order, by more than L itself: pretrained weights need about 0.002.
        steps: Number of steps per run, ≥ 1.
        runs: Number of runs per radius, ≥ 2, with different orders of the batches.
        optimizer: Optimizer of the trials. None: a copy of the model's, without its
            state, or AdamW with the learning rate 1e-4 if the model is not compiled. It
            should not have the warm-up of a long schedule, which would take up all
            steps. It is copied by its configuration, which does not contain the effect
            of `exclude_from_weight_decay`.
        loss: Loss of the trials. None: the model's, or, if it is not compiled, the
            cross-entropy; the targets must then be integer labels, (N,) or (N, 1), and
            the outputs logits or probabilities, (N, classes).
        batch_size: Number of samples per batch, for arrays; ≥ 1.
        seed: Seed of the orders and, for arrays, of the choice of held-out samples (of
            an iterable the first batches are held out). Dropout masks depend on the
            model's own seeds.

    Returns:
        `Advice`, which prints as a table. It names the optimizer and the loss if they
        are defaults; its `rho` is 0 if no benefit is found.

    Raises:
        ValueError: As for `SAM`; there are no targets, or no loss is given and the
            targets are not labels; there are too few samples; a number is out of its
            range.
    """
    rhos = None if rhos is None else _radii(rhos)
    steps = integer("steps", steps, 1, meaning="the number of steps per run")
    meaning = "the number of samples per batch"
    batch_size = integer("batch_size", batch_size, 1, meaning=meaning)
    runs = integer("runs", runs, 2, meaning=RUNS)
    learner, observer = _probes(model)
    train, held = divide(data, validation, steps, batch_size, seed)
    options, assumed = compile_options(model, held[0], optimizer, loss)
    _compile(learner, observer, options)
    losses, seen = [], []
    with using(model.variables, alone=True):
        with restored(learner):
            if rhos is None:
                rhos = _grid(observer.measure(held, RHOS[1])[1])
            radius = rhos[len(rhos) // 2]
            _, before = observer.measure(held, radius)
        for rho in rhos:
            measured = []
            for run in range(runs):
                with restored(learner):
                    learner.rho = rho
                    stream = _in_order(train, steps, (seed, run))
                    learner.fit(stream, steps_per_epoch=steps, shuffle=False, verbose=0)
                    measured.append(observer.measure(held, radius))
            losses.append([each for each, _ in measured])
            seen.append(mean_of([each for _, each in measured]))
    gains, noises = compare(np.array(losses))
    trials = map(Trial, rhos, gains.tolist(), noises.tolist(), seen)
    return Advice(before, tuple(trials), radius, runs, steps, assumed)


def _grid(seen: Seen) -> list[float]:
    """Returns the paper's radii, divided by a power of ten if the gradients are large.

    The largest is then 2 to 20 times the radius at which the loss rises by itself, to
    first order. A trained ViT-S/14 still learns at twice that radius, and no more at 7
    times (kerasvit/training/README.md).
    """
    loss, length = seen.loss, seen.gradient_norm
    power = 0
    if 0 < loss < math.inf and 0 < length < math.inf:  # neither for NaN
        power = min(0, math.ceil(math.log10(2 * loss / length / RHOS[-1])))
    return [float(f"{rho * 10.0**power:.6g}") for rho in RHOS]


def _radii(rhos: Any) -> list[float]:
    """Returns the radii in ascending order, 0 included."""
    rhos = [number("rhos", rho, 0, meaning="radii to try") for rho in np.ravel(rhos)]
    rhos = sorted({0.0, *rhos})
    if len(rhos) < 2:
        raise ValueError(
            "`rhos` must have a radius above 0, for 0 is training without SAM. "
            f"Received: rhos={rhos}."
        )
    return rhos


def _in_order(
    batches: list[tuple[Any, ...]], steps: int, seed: tuple[int, int]
) -> Iterator[tuple[Any, ...]]:
    """Yields one batch per step; every batch once before any is repeated."""
    generator = np.random.default_rng(seed)
    rounds = -(-steps // len(batches))
    order = np.concatenate([generator.permutation(len(batches)) for _ in range(rounds)])
    for i in order[:steps]:
        x, y, sample_weight = batches[i]
        yield (x, y) if sample_weight is None else (x, y, sample_weight)


class Probe(SAM):
    """SAM that measures losses and gradients, with two passes even for radius 0.

    Args:
        model: As for `SAM`; it is trained in place.
        options: `perturbation` and `micro_batches`, as for `SAM`.
    """

    plain_at_zero = False
    advises = False  # on its radii, which are trials

    def __init__(self, model: keras.Model, **options: Any) -> None:
        super().__init__(model, name="probe", **options)

    def measure(
        self, held: list[tuple[Any, ...]], radius: float
    ) -> tuple[np.ndarray, Seen]:
        """Measures the model at its present weights.

        The trainer must be compiled with an optimizer that changes nothing.

        Args:
            held: Batches `(x, y, sample_weight)`.
            radius: Length of the step of the sharpness, > 0.

        Returns:
            The loss of every batch, an array, and `Seen`.
        """
        logs, steps = [], []
        for x, y, sample_weight in held:
            self.reset_metrics()
            logs.append(
                self.test_on_batch(x, y, sample_weight=sample_weight, return_dict=True)
            )
        self.rho = radius
        for x, y, sample_weight in held:
            self.reset_metrics()
            self.train_on_batch(x, y, sample_weight=sample_weight)
            seen = self.ascent()
            finite = seen.steps > 0
            steps.append([seen.slope / radius, seen.rise] if finite else [np.nan] * 2)
        means = {name: float(np.mean([log[name] for log in logs])) for name in logs[0]}
        length, rise = np.mean(steps, axis=0)
        losses = np.array([float(log["loss"]) for log in logs])
        return losses, Seen(means.pop("loss"), means, float(length), float(rise))


def _probes(model: keras.Model) -> tuple[Probe, Probe]:
    """Returns two trainers of one model: one learns, the other measures."""
    plain: keras.Model = model
    options: dict[str, Any] = {}
    if isinstance(model, SAM):
        if type(model) is not SAM:
            raise ValueError(
                "`model` must be a plain model or a SAM: radii of SAM's successors are "
                "not comparable with SAM's. Pass `trainer.model`. Received: a "
                f"{type(model).__name__}."
            )
        plain = model.model
        options = {
            "perturbation": model.perturbation,
            "micro_batches": model.micro_batches,
        }
    return Probe(plain, **options), Probe(plain, **options)


def _compile(learner: Probe, observer: Probe, options: dict[str, Any]) -> None:
    """Compiles the learner, and the observer with an optimizer that changes nothing."""
    optimizer = keras.optimizers.get(options["optimizer"])
    copy = type(optimizer).from_config(optimizer.get_config())
    learner.compile(**{**options, "optimizer": copy})
    # No loss scaling: the observer's gradients are measured and not applied.
    still = {"optimizer": keras.optimizers.SGD(0.0), "auto_scale_loss": False}
    observer.compile(**{**options, **still})
    learner.optimizer.build(learner.trainable_variables)
    observer.optimizer.build(observer.trainable_variables)


def compile_options(
    model: keras.Model, batch: tuple[Any, ...], optimizer: Any = None, loss: Any = None
) -> tuple[dict[str, Any], str]:
    """Returns arguments of `compile`, with an optimizer and a loss.

    Args:
        model: Built `keras.Model`, compiled or not.
        batch: `(x, y, sample_weight)`, NumPy arrays, which may determine the loss.
        optimizer: Replaces the model's optimizer.
        loss: Replaces the model's loss.

    Returns:
        Dictionary, and a sentence that names the defaults used, or an empty string.

    Raises:
        ValueError: The model has no loss, `loss` is None, and the targets are not
            labels.
    """
    options, assumed = _compiled(model), []
    if loss is not None:
        options = {**options, "loss": loss, "loss_weights": None}
    if optimizer is not None:
        options["optimizer"] = optimizer
    if "loss" not in options:
        options.update(_classification(model, *batch[:2]))
        assumed.append("the cross-entropy of labels")
    if options.get("optimizer") is None:
        options["optimizer"] = keras.optimizers.AdamW(RATE)
        assumed.append(f"AdamW at a learning rate of {RATE:g}")
    if not assumed:
        return options, ""
    return options, (
        f"The model is not compiled, so it was trained with {' and '.join(assumed)}. "
        "Pass `loss` and `optimizer` for others."
    )


def _compiled(model: keras.Model) -> dict[str, Any]:
    """Returns the arguments of the model's `compile`, or an empty dictionary."""
    if not model.compiled:
        return {}
    config = compile_arguments(model)
    options = {name: config[name] for name in USED}
    return {**options, "optimizer": model.optimizer}


def _classification(model: keras.Model, x: Any, y: Any) -> dict[str, Any]:
    """Returns a loss and a metric, if the targets are labels of the classes."""
    outputs = model.predict_on_batch(x)
    single = isinstance(outputs, np.ndarray) and outputs.ndim == 2
    classes = outputs.shape[-1] if single else 0
    labels = np.issubdtype(getattr(y, "dtype", None), np.integer)
    labels = labels and y.shape in ((len(y),), (len(y), 1))
    if not labels or classes < 2 or y.min() < 0 or y.max() >= classes:
        shapes = keras.tree.map_structure(lambda a: (a.shape, str(a.dtype)), y)
        raise ValueError(
            "`model` must be compiled, or `loss` be given, or the targets be integer "
            "labels, one per sample, from 0 to the number of outputs - 1. "
            f"Received: targets of {shapes} and outputs of shape "
            f"{keras.tree.map_structure(np.shape, outputs)}. Pass a loss: "
            '`suggest_rho(model, data, loss="mse")`, or '
            "`loss=keras.losses.CategoricalCrossentropy(from_logits=True)` for one-hot "
            "targets."
        )
    sums = outputs.astype("float32").sum(-1)
    probabilities = (outputs >= 0).all() and np.allclose(sums, 1, atol=1e-2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=not probabilities)
    return {"loss": loss, "metrics": ["accuracy"]}
