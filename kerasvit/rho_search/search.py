"""Searches for the radius rho of SAM on a model and its data."""

import keras
import numpy as np

from kerasvit.arguments import integer, number
from kerasvit.backend.restore import restored
from kerasvit.training.sam import SAM

from .compile_options import compile_options
from .data import divide
from .report import Advice, Trial, compare, mean_of
from .trainer import Probe

RHOS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)  # the grid of SAM's paper, arXiv 2010.01412
RUNS = "for one run says nothing of chance"


def suggest_rho(
    model: keras.Model,
    data,
    *,
    validation=0.2,
    rhos=RHOS,
    steps: int = 300,
    runs: int = 3,
    optimizer=None,
    loss=None,
    batch_size: int = 32,
    seed: int = 0,
) -> Advice:
    """Trains briefly at several radii and reports whether SAM helps on the data.

        print(kerasvit.suggest_rho(model, (x, y)))

    Every radius starts from the model's weights as they are and sees the same batches
    in the same orders, with the same dropout masks, so that what differs is the radius.
    Then it is measured on batches that were held out: the loss and the metrics, as
    `evaluate` does; the length of the gradient ‖∇L(w)‖₂, and the sharpness, which is
    what SAM lowers, L(w + r · g / ‖g‖₂) − L(w), as training sees them (batch by batch,
    with dropout). r is the same for all radii: the middle one of those above 0.

    A radius counts as a benefit if its loss is below that of plain training by more
    than three standard errors of that difference, from run to run and from batch to
    batch. This is a rule of thumb: with three runs, chance alone passes it now and
    then, and a few hundred steps are not a whole training.

    The cost is `runs` × `steps` × two passes a radius, 10 800 with the defaults (a
    training step is one), and the measuring. The model, its optimizer and all random
    seeds are left exactly as they were.

    Args:
        model: As for `SAM`, or a `SAM`, with whose `micro_batches` it is tried;
            compiled or not.
        data: `(x, y)` or `(x, y, sample_weight)`, arrays in a tuple; or an iterable of
            such batches (tf.data, a torch DataLoader, a PyDataset), shuffled and
            without repetition, of which as many are kept in memory as there are steps,
            taken again in other orders.
        validation: The share of the data to hold out, in (0, 1), or data of its own. At
            most 32 batches are measured on.
        rhos: Radii, ≥ 0; 0 is added where it is missing.
        steps: Steps of a run, ≥ 1.
        runs: Runs a radius, ≥ 2, in different orders of the batches.
        optimizer: What to train with; the model's own, begun anew, if None, or AdamW
            with the learning rate 1e-4 if the model is not compiled. Give one
            without the warm-up of a long schedule, in which nothing would be learnt. It
            is copied by its configuration, which does not say what
            `exclude_from_weight_decay` did.
        loss: What to train on; the model's own if None. If the model is not compiled:
            the cross-entropy, where the targets are integer labels, (N,) or (N, 1), and
            the outputs are logits or probabilities, (N, classes).
        batch_size: Samples in a batch of arrays, ≥ 1.
        seed: Of the orders, and of which samples of arrays are held out (of an iterable
            the first batches are); masks go by the model's own seeds.

    Returns:
        `Advice`: prints as a table, with the optimizer and the loss where they are
            defaults; `rho` is 0 where no benefit is seen.

    Raises:
        ValueError: As for `SAM`; there are no targets, or no loss is given and none
            follows from them; there are too few samples; a number is out of its range.
    """
    rhos = _radii(rhos)
    steps = integer("steps", steps, 1, meaning="the steps of a run")
    batch_size = integer("batch_size", batch_size, 1, meaning="the samples in a batch")
    runs = integer("runs", runs, 2, meaning=RUNS)
    learner, observer = _probes(model)
    train, held = divide(data, validation, steps, batch_size, seed)
    options, assumed = compile_options(model, held[0], optimizer, loss)
    _compile(learner, observer, options)
    radius = rhos[len(rhos) // 2]
    with restored(learner):
        _, before = observer.measure(held, radius)
    losses, seen = [], []
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


def _radii(rhos):
    """Returns the radii in ascending order, 0 included."""
    rhos = [number("rhos", rho, 0, meaning="radii to try") for rho in np.ravel(rhos)]
    rhos = sorted({0.0, *rhos})
    if len(rhos) < 2:
        raise ValueError(
            "`rhos` must have a radius above 0, for 0 is training without SAM. "
            f"Received: rhos={rhos}."
        )
    return rhos


def _in_order(batches, steps, seed):
    """Yields one batch per step; every batch once before any is repeated."""
    generator = np.random.default_rng(seed)
    rounds = -(-steps // len(batches))
    order = np.concatenate([generator.permutation(len(batches)) for _ in range(rounds)])
    for i in order[:steps]:
        x, y, sample_weight = batches[i]
        yield (x, y) if sample_weight is None else (x, y, sample_weight)


def _probes(model):
    """Returns two trainers of one model: one learns, the other measures."""
    plain, own = model, {}
    if isinstance(model, SAM):
        if type(model) is not SAM:
            raise ValueError(
                "`model` must be a plain model or a SAM, whose radii are tried: those "
                "of its successors have other sizes. Pass `trainer.model`. Received: "
                f"a {type(model).__name__}."
            )
        plain = model.model
        own = {
            "perturbation": model.perturbation,
            "micro_batches": model.micro_batches,
        }
    return Probe(plain, **own), Probe(plain, **own)


def _compile(learner, observer, options):
    """Compiles the learner, and the observer with an optimizer that changes nothing."""
    optimizer = keras.optimizers.get(options["optimizer"])
    copy = type(optimizer).from_config(optimizer.get_config())
    learner.compile(**{**options, "optimizer": copy})
    # Its gradients are looked at and not used, so there is no loss to scale for them.
    still = {"optimizer": keras.optimizers.SGD(0.0), "auto_scale_loss": False}
    observer.compile(**{**options, **still})
    learner.optimizer.build(learner.trainable_variables)
    observer.optimizer.build(observer.trainable_variables)
