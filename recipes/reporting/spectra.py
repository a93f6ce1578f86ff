"""Measures of the spectrum of the Hessian."""

import math

import numpy as np

from kerasvit import inspection

from . import papers
from .figures import lines
from .measure import EIGENPAIR, Measure, Passes
from .tables import Table

TRACE_VECTORS, STARTS, STEPS = 50, 3, 40
SPECTRUM_BATCH = 16  # images


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
    model, x, y, loss = subject.data
    starts = range(0, len(x) - SPECTRUM_BATCH + 1, SPECTRUM_BATCH) or (0,)
    data = [(x[i : i + SPECTRUM_BATCH], y[i : i + SPECTRUM_BATCH]) for i in starts]
    found = inspection.batch_spectrum(model, data, loss)
    return {
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
                + [r["mean_negative"], len(r["values"])]
                for name, r in results.items()
            ],
        ),
        lines("Eigenvalues of each mini-batch", series, *labels, points=True),
    ]


MEASURES = {
    "eigenvalues": Measure(
        _eigenvalues, _show_eigenvalues, lambda subject: Passes(0, 4 * EIGENPAIR)
    ),
    "density": Measure(
        _density,
        _show_density,
        lambda subject: Passes(0, TRACE_VECTORS + STARTS * STEPS),
    ),
    "batch-spectrum": Measure(
        _batch_spectrum, _show_batch_spectrum, lambda subject: Passes(0, 4 * EIGENPAIR)
    ),
}
