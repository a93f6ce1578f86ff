"""What residual branches do to features: figures 8 and 9 of arXiv 2202.06709."""

import numpy as np

from kerasvit import inspection, layers

from . import measures, trainings
from .experiment import Column

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


def columns(quantity: str) -> list[Column]:
    """Returns the columns of the table: changes by kind, and the accuracy."""
    found = [
        Column(f"change by {text}", lambda m, k=kind: m[f"{quantity}_change"][k], 3)
        for kind, text in KINDS.items()
    ]
    return [*found, Column("accuracy, %", lambda m: 100 * m["accuracy"], 1)]


def draw(quantity: str, label: str):
    """Returns a function that plots a quantity over the depth, attention shaded."""

    def drawn(figure, results) -> None:
        axes = figure.subplots(1, len(results))
        for place, (axis, (name, rows)) in enumerate(
            zip(axes, results.items(), strict=True)
        ):
            values = np.array([row[quantity] for row in rows])
            x = np.arange(values.shape[1])
            measures.draw_line(axis, x, values, name, place)
            for i, kind in enumerate(rows[0]["kinds"]):
                if kind == "attention":
                    axis.axvspan(i, i + 1, color="gray", alpha=0.2, linewidth=0)
            axis.set(title=name, xlabel="branch")
        axes[0].set_ylabel(label)

    return drawn
