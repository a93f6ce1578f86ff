"""What residual branches do to features: figures 8 and 9 of arXiv 2202.06709."""

import numpy as np

from kerasvit import inspection, layers

from . import measures, trainings
from .experiment import Claim, Column, Experiment

IMAGES = 200
MODELS = {"ViT": "ablation", "AlterNet": "AlterNet", "ResNet": "twin"}
KINDS = {"attention": "attention", "other": "MLP or convolution"}


def subjects(settings) -> dict:
    """Returns the trainings of one seed."""
    return {label: trainings.of(settings, model) for label, model in MODELS.items()}


def measure(subject) -> dict:
    """Returns quantities after each branch, and their mean change by kind of branch.

    Of a ViT a branch is an attention or an MLP. Of the others it is a whole unit; units
    that change the size of the map are left out.
    """
    model, (x, _) = subject.model, subject.images("test", IMAGES)
    is_vit = subject.label == "ViT"
    points = inspection.Activations(model, "_norm$", at="inputs") if is_vit else model
    spectra = inspection.relative_log_amplitudes(points, x)
    variance = inspection.feature_variance(points, x)
    values = {
        "amplitude": [float(each[-1]) for each in spectra.amplitudes],
        "variance": list(variance.values()),
    }
    kinds = [
        _kind(model, before, after)
        for before, after in zip(spectra.names[:-1], spectra.names[1:], strict=True)
    ]
    scaled = {**values, "variance": np.log(values["variance"]).tolist()}
    changes = {
        f"{name}_change": {
            kind: _mean(np.diff(of_all)[[each == kind for each in kinds]])
            for kind in KINDS
        }
        for name, of_all in scaled.items()
    }
    return {**values, **changes, "kinds": kinds} | {
        "accuracy": subject.result["accuracy"]
    }


def _kind(model, before, after):
    """Returns the kind of the branch between two points; "" for one that is left out.

    A ViT's points are the inputs of normalisations, those of the others outputs of
    units.
    """
    if "encoder" in before:
        return "attention" if before.endswith("attention_norm") else "other"
    if before.split("_unit_")[0] != after.split("_unit_")[0]:
        return ""
    unit = model.get_layer(after)
    return "attention" if isinstance(unit, layers.AttentionUnit) else "other"


def _mean(values):
    return float(np.mean(values)) if len(values) else None


def experiment(quantity: str, label: str, text: str, paper: str) -> Experiment:
    """Returns the experiment about a quantity that attention lowers, in the paper.

    Args:
        quantity: "amplitude" or "variance".
        label: Its name on the axis.
        text: Its change, in the claims.
        paper: The paper's claim.
    """

    def change(model, kind):
        return lambda seed: seed[model][f"{quantity}_change"][kind]

    attention, other = (change("AlterNet", kind) for kind in KINDS)
    return Experiment(
        paper=paper,
        subjects=subjects,
        measure=measure,
        claims=(
            Claim(
                f"{text} by an attention of the ViT",
                -1,
                "it falls",
                change("ViT", "attention"),
            ),
            Claim(
                f"{text} by an MLP of the ViT", 1, "it rises", change("ViT", "other")
            ),
            Claim(
                f"{text} by an attention of the AlterNet, less that by a convolution",
                -1,
                "section 4: AlterNet alternates both",
                lambda seed: attention(seed) - other(seed),
            ),
        ),
        columns=[
            *(
                Column(
                    f"change by {of}", lambda m, k=kind: m[f"{quantity}_change"][k], 3
                )
                for kind, of in KINDS.items()
            ),
            measures.ACCURACY,
        ],
        draw=lambda figure, results: _draw(figure, results, quantity, label),
        size=(10, 4),
    )


def _draw(figure, results, quantity, label):
    """Plots a quantity over the depth, attention shaded."""
    axes = figure.subplots(1, len(results))
    for place, (axis, (name, rows)) in enumerate(
        zip(axes, results.items(), strict=True)
    ):
        values = np.array([row[quantity] for row in rows])
        measures.draw_line(axis, np.arange(values.shape[1]), values, name, place)
        for i, kind in enumerate(rows[0]["kinds"]):
            if kind == "attention":
                axis.axvspan(i, i + 1, color="gray", alpha=0.2, linewidth=0)
        axis.set(title=name, xlabel="branch")
    axes[0].set_ylabel(label)
