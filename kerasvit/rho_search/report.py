"""The result of a search for rho, as numbers and as a table."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

ERRORS = 3  # number of standard errors that a benefit must exceed


@dataclasses.dataclass(frozen=True)
class Seen:
    """Measurements of a model on held-out batches; means over the batches.

    Attributes:
        loss: Loss without dropout, as `evaluate` computes it.
        metrics: Values of the metrics that the model was compiled with.
        gradient_norm: ‖∇L(w)‖₂ in training mode.
        sharpness: Increase of the training loss over one step along the gradient.
    """

    loss: float
    metrics: dict[str, float]
    gradient_norm: float
    sharpness: float


@dataclasses.dataclass(frozen=True)
class Trial:
    """The result of training at one radius; means over runs.

    Attributes:
        rho: The radius.
        gain: Loss of plain training minus the loss at this radius.
        noise: Threshold that `gain` must exceed to count as a benefit.
        seen: Measurements of the trained model.
    """

    rho: float
    gain: float
    noise: float
    seen: Seen

    @property
    def helps(self) -> bool:
        """Whether the gain exceeds the noise; False for a loss that is not finite."""
        return self.gain > self.noise


@dataclasses.dataclass(frozen=True, repr=False)
class Advice:
    """The result of `suggest_rho`: a table of trials and a conclusion.

    Attributes:
        before: Measurements of the model before the trials.
        trials: One per radius, in ascending order, beginning with 0.
        radius: Length of the step of `sharpness`, the same for all trials.
        runs: Number of runs per radius.
        steps: Number of steps per run.
        assumed: Sentence that names the defaults that the trials used; may be empty.
    """

    before: Seen
    trials: tuple[Trial, ...]
    radius: float
    runs: int
    steps: int
    assumed: str = ""

    @property
    def rho(self) -> float:
        """The radius with the largest gain, or 0 if no gain exceeds the noise."""
        helpful = [trial for trial in self.trials if trial.helps]
        return max(helpful, key=lambda trial: trial.gain).rho if helpful else 0.0

    def __repr__(self) -> str:
        names = ["rho", "loss", "gain", "noise", *self.before.metrics]
        head = [*names, "gradient norm", f"sharpness within {self.radius:g}"]
        lines = [["before", *_cells(self.before)]]
        for trial in self.trials:
            gain = [trial.gain, trial.noise] if trial.rho else []
            lines.append([f"{trial.rho:g}", *_cells(trial.seen, gain)])
        widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
        rows = [
            "  ".join(
                cell.rjust(width) for cell, width in zip(line, widths, strict=True)
            )
            for line in (head, *lines)
        ]
        title = f"SAM on held-out data, means of {self.runs} runs of {self.steps} steps"
        assumed = [self.assumed] if self.assumed else []
        return "\n".join([title, *assumed, "", *rows, "", self._sentence()])

    def _sentence(self) -> str:
        plain, *others = self.trials
        if not math.isfinite(plain.seen.loss):
            return "Plain training diverged: lower the learning rate, then ask again."
        if self.rho:
            best = next(trial for trial in others if trial.rho == self.rho)
            return (
                f"rho={best.rho:g} lowers the loss by {best.gain:.3g}, and chance "
                f"alone would explain {best.noise:.3g}: try SAM(model, {best.rho:g})."
            )
        return (
            "No benefit seen: no radius lowers the loss by more than chance would "
            f"explain, after {self.steps} steps. Train without SAM, or ask again with "
            "more steps or more held-out data."
        )


def compare(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the gains over plain training, and their noise.

    Args:
        losses: Array of shape (radii, runs ≥ 2, batches ≥ 2), plain training first.

    Returns:
        Two arrays of shape (radii,). The noise is three standard errors of the mean
        difference, over runs or over batches, whichever is larger.
    """
    gains = losses[:1] - losses
    errors = [
        np.std(gains.mean(mean), axis=1, ddof=1) / math.sqrt(gains.shape[over])
        for mean, over in ((2, 1), (1, 2))
    ]
    return gains.mean((1, 2)), ERRORS * np.maximum(*errors)


def mean_of(seen: Sequence[Seen]) -> Seen:
    """Returns the mean of several `Seen`."""

    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    return Seen(
        mean(each.loss for each in seen),
        {name: mean(each.metrics[name] for each in seen) for name in seen[0].metrics},
        mean(each.gradient_norm for each in seen),
        mean(each.sharpness for each in seen),
    )


def _cells(seen: Seen, gain: Sequence[float] = ()) -> list[str]:
    gains = [f"{value:.4f}" for value in gain] or ["", ""]
    numbers = [*seen.metrics.values(), seen.gradient_norm, seen.sharpness]
    return [f"{seen.loss:.4f}", *gains, *(f"{value:.4f}" for value in numbers)]
