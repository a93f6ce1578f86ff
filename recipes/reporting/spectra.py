"""Measures of the spectrum of the Hessian."""

import math

import numpy as np

from kerasvit import inspection

from . import papers
from .figures import lines
from .measure import EIGENPAIR, Measure, Passes, either, without_derivatives
from .tables import Table

TRACE_VECTORS, STARTS, STEPS = 50, 3, 40
TERMS = {"squared": "λ/2 Σ‖w‖²", "norms": "λ Σ‖w‖"}


def _hessian(subject):
    return inspection.Hessian(*subject.data, batch_size=subject.batch_size)


def _eigenvalues(subject):
    matrix = _hessian(subject)
    top = matrix.eigenpairs(5, seed=subject.seed, verbose=0)
    low = matrix.eigenpairs(which="smallest", seed=subject.seed, verbose=0)
    return {
        "builder": subject.builder,
        "largest": top.values.tolist(),
        "smallest": low.values.tolist(),
        "residuals": [*top.residuals.tolist(), *low.residuals.tolist()],
        "converged": bool(top.converged and low.converged),
        "products": top.products + low.products,
    }


def _show_eigenvalues(results):
    cited = papers.rows(papers.LARGEST, results)
    return [
        Table(
            "Eigenvalues of the Hessian (loss / weight²)",
            ["", *(f"λ{i + 1}" for i in range(5)), "λmin", "λ1/λ5", "products"],
            [
                [name, *r["largest"], *r["smallest"]]
                + [r["largest"][0] / r["largest"][4], r["products"]]
                for name, r in results.items()
            ],
            [[name, value, *[None] * 7] for name, value in cited.items()],
        )
    ]


def _density(subject):
    matrix = _hessian(subject)
    trace = inspection.trace(matrix, vectors=TRACE_VECTORS, seed=subject.seed)
    found = inspection.spectral_density(
        matrix, starts=STARTS, steps=STEPS, seed=subject.seed
    )
    return {
        "trace": trace.value,
        "standard_error": trace.standard_error,
        "nodes": found.nodes.tolist(),
        "weights": found.weights.tolist(),
        "weights_of_the_model": matrix.shape[0],
        "products": found.products + TRACE_VECTORS,
    }


def _show_density(results):
    nodes = np.concatenate([np.ravel(r["nodes"]) for r in results.values()])
    margin = 0.05 * np.ptp(nodes)
    grid = np.linspace(nodes.min() - margin, nodes.max() + margin, 500)
    sigma = 0.01 * (grid[-1] - grid[0])
    series = {}
    for name, r in results.items():
        distance = (grid[:, None] - np.ravel(r["nodes"])) / sigma
        heights = np.exp(-(distance**2) / 2) @ np.ravel(r["weights"]) / STARTS
        smallest = 0.1 / r["weights_of_the_model"] / sigma
        heights = np.maximum(heights / (sigma * math.sqrt(2 * math.pi)), smallest)
        series[name] = [(grid, heights)]
    labels = ("eigenvalue (loss / weight²)", "density")
    return [
        Table(
            "Trace of the Hessian",
            ["", "trace", "± standard error", "weights", "mean eigenvalue"],
            [
                [name, r["trace"], r["standard_error"], r["weights_of_the_model"]]
                + [r["trace"] / r["weights_of_the_model"]]
                for name, r in results.items()
            ],
        ),
        lines("Density of the eigenvalues", series, *labels, log=True),
    ]


def _batch_spectrum(subject):
    objective = subject.objective
    found = inspection.batch_spectrum(
        subject.model,
        objective.batches(),
        objective.loss,
        weight_decay=objective.weight_decay,
        unsquared=objective.unsquared,
    )
    return {
        "objective": objective.facts,
        "values": found.values.tolist(),
        "residuals": found.residuals.tolist(),
        "negative_share": found.negative_share,
        "mean_positive": found.mean_positive,
        "mean_negative": found.mean_negative,
    }


def _show_batch_spectrum(results):
    series = {
        name: [
            ([number] * len(values), values)
            for number, values in enumerate(r["values"], 1)
        ]
        for name, r in results.items()
    }
    labels = ("mini-batch", "eigenvalue (loss / weight²)")
    return [
        _objective_table(results),
        Table(
            "Eigenvalues of mini-batches",
            [
                "",
                "share below 0 (%)",
                "mean of positive",
                "mean of negative",
                "batches",
            ],
            [
                [name, 100 * r["negative_share"], r["mean_positive"]]
                + [r["mean_negative"] or None, len(r["values"])]
                for name, r in results.items()
            ],
        ),
        lines("Eigenvalues of each mini-batch", series, *labels, points=True),
    ]


def _objective_table(results):
    found = {name: r["objective"] for name, r in results.items()}
    head = ["", "images", "Mixup α", "CutMix α", "label smoothing", "loss", "L2 term"]
    return Table(
        "Images, labels and loss of the mini-batches",
        [*head, "λ", "told by"],
        [
            [name, _images(r), r["mixup"], r["cutmix"], r["label_smoothing"], r["loss"]]
            + [TERMS[r["l2"]] if r["weight_decay"] else None, r["weight_decay"]]
            + [r["from"] + (", without the teacher" if r["teacher"] else "")]
            for name, r in found.items()
        ],
    )


def _images(facts):
    """Returns how images are changed, in words."""
    parts = ["as they are" if facts["augment"] == "none" else facts["augment"]]
    if facts["rand_augment"] is not None:
        parts.append(f"RandAugment {facts['rand_augment']:g}")
    if facts["erasing"]:
        parts.append(f"erasing {facts['erasing']:g}")
    return ", ".join(parts)


def _without_norms(subject):
    """Tells whether a weight is zero, where its norm has no derivative."""
    objective = subject.objective
    if not (objective.unsquared and objective.weight_decay):
        return ""
    variables = subject.model.trainable_variables
    zero = [v.path for v in variables if not np.any(v.numpy())]
    if not zero:
        return ""
    return (
        f"{subject.name} has weights of zeros, such as {zero[0]}, whose norm has no "
        "derivative. Give --l2 squared."
    )


MEASURES = {
    "eigenvalues": Measure(
        _eigenvalues,
        _show_eigenvalues,
        lambda subject: Passes(0, 4 * EIGENPAIR),
        without_derivatives,
    ),
    "density": Measure(
        _density,
        _show_density,
        lambda subject: Passes(0, TRACE_VECTORS + STARTS * STEPS),
        without_derivatives,
    ),
    "batch-spectrum": Measure(
        _batch_spectrum,
        _show_batch_spectrum,
        lambda subject: Passes(0, 4 * EIGENPAIR),
        either(without_derivatives, _without_norms),
        lambda subject: subject.objective.facts,
    ),
}
