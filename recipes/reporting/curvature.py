"""Measures of sharpness, and of the tangent kernel."""

import math
import re
from itertools import zip_longest

import numpy as np

from kerasvit import inspection
from kerasvit.inspection import COMPONENTS, components_of

from . import papers
from .figures import by_depth, lines
from .measure import (
    EIGENPAIR,
    Measure,
    Passes,
    either,
    without_blocks,
    without_derivatives,
    without_logits,
)
from .tables import Table

RHOS = (0.01, 0.02, 0.05, 0.1, 0.2)
GROUP = 8  # images, of m-sharpness
EPSILON = 1e-3
KERNEL_IMAGES, KERNEL_BYTES = 32, 2**30


def _components(subject):
    found = inspection.sharpness_table(*subject.data, batch_size=subject.batch_size)
    kinds = list(COMPONENTS.get(subject.builder, {}))
    return {
        "builder": subject.builder,
        "lambda_max": {name: found.eigenvalues[name] for name in [*kinds, "whole"]},
        "lambda_max_of_blocks": {
            name: value
            for name, value in found.eigenvalues.items()
            if name not in (*kinds, "whole")
        },
        "residuals": found.residuals,
        "weight_norm": found.weight_norm,
        "activation_norms": found.activation_norms,
        "products": found.products,
    }


def _show_components(results):
    found = results.values()
    values = {n: list(r["lambda_max_of_blocks"].values()) for n, r in results.items()}
    norms = {n: list(r["activation_norms"].values()) for n, r in results.items()}
    columns = map(dict.fromkeys, zip_longest(*map(_kinds, found)))
    kinds = [" / ".join(filter(None, each)) for each in columns]
    places = ("first", "middle", "last")
    cited = papers.rows(papers.COMPONENTS, results)
    table = Table(
        "λmax of components and blocks, ‖w‖ and ‖a‖ of blocks"
        + ("; in the paper blocks 1, 6 and 12 of 12" if cited else ""),
        ["", *(f"λ {each}" for each in kinds), *(f"λ {each} block" for each in places)]
        + ["λ whole", "‖w‖₂", *(f"‖a‖ {each} block" for each in places)],
        [
            [name, *_filled(r, len(kinds)), *_three(values[name])]
            + [r["lambda_max"]["whole"], r["weight_norm"], *_three(norms[name])]
            for name, r in results.items()
        ],
        [[name, *numbers] for name, numbers in cited.items()],
    )
    return [
        table,
        by_depth("λmax of each block", values, "λmax (loss / weight²)", log=True),
        by_depth("Norm of each block’s output", norms, "‖a‖₂", zero=True),
    ]


def _kinds(result):
    """Returns the names of the components of all blocks, at most three."""
    return [name for name in result["lambda_max"] if name != "whole"][:3]


def _filled(result, count):
    """Returns the values of `_kinds`, with None up to a count."""
    values = [result["lambda_max"][name] for name in _kinds(result)]
    return values + [None] * (count - len(values))


def _three(values):
    """Returns the values of the first, the middle and the last layer."""
    return [values[i] for i in (0, (len(values) - 1) // 2, -1)]


def _without_components(subject):
    """Tells whether components of a model are not known, or not trainable."""
    if not subject.builder:
        return f"{subject.name} has no record of kerasvit, which tells its components."
    paths = [variable.path for variable in subject.model.trainable_variables]
    for component, pattern in components_of(subject.model).items():
        if not any(re.search(pattern, path) for path in paths):
            return f"{subject.name} has no trainable weights of its {component}."
    return without_blocks(subject)


def _component_passes(subject):
    count = len(components_of(subject.model))
    return Passes(1, EIGENPAIR * count, count)


def _sharpness(subject):
    options = {"batch_size": subject.batch_size}
    rises = {
        rho: inspection.sharpness(*subject.data, rho=rho, **options) for rho in RHOS
    }
    return {
        "rho": list(rises),
        "rise": list(rises.values()),
        "m": GROUP,
        "m_sharpness": inspection.sharpness(*subject.data, rho=0.05, m=GROUP),
        "epsilon": EPSILON,
        "box_per_cent": inspection.box_sharpness(
            *subject.data, epsilon=EPSILON, **options
        ),
    }


def _show_sharpness(results):
    series = {name: [(r["rho"], r["rise"])] for name, r in results.items()}
    heads = [f"ρ = {rho}" for rho in RHOS]
    return [
        Table(
            "Rise of the loss",
            ["", *heads, f"m = {GROUP}, ρ = 0.05", f"box, ε = {EPSILON} (%)"],
            [
                [name, *r["rise"], r["m_sharpness"], r["box_per_cent"]]
                for name, r in results.items()
            ],
        ),
        lines(
            "Rise of the loss over SAM’s step",
            series,
            "ρ (length of the step, in weights)",
            "L(w + ρ g/‖g‖) − L(w)",
            zero=True,
        ),
    ]


def _kernel(subject):
    x = subject.x[:KERNEL_IMAGES]
    options = {"form": "summed", "memory": KERNEL_BYTES, "seed": subject.seed}
    found = inspection.ntk(subject.model, x, **options)
    new = inspection.ntk(subject.new_model(), x, head="random", **options)
    return {
        "builder": subject.builder,
        "images": len(x),
        "condition_number": finite(found.condition_number),
        "condition_number_at_start": finite(new.condition_number),
        "eigenvalues": found.eigenvalues.tolist(),
        "eigenvalues_at_start": new.eigenvalues.tolist(),
    }


def finite(value):
    """Returns a number, or "inf", for JSON."""
    return float(value) if math.isfinite(value) else "inf"


def _show_kernel(results):
    cited = papers.rows(papers.CONDITION, results)
    series = {
        name: [(np.arange(1, r["images"] + 1), r["eigenvalues"][::-1])]
        for name, r in results.items()
    }
    return [
        Table(
            "Condition number κ of the tangent kernel",
            ["", "κ, given weights", "κ, new weights", "images"],
            [
                [name, float(r["condition_number"])]
                + [float(r["condition_number_at_start"]), r["images"]]
                for name, r in results.items()
            ],
            [[name, None, value, None] for name, value in cited.items()],
        ),
        lines(
            "Eigenvalues of the kernel, given weights",
            series,
            "number of the eigenvalue",
            "eigenvalue",
            log=True,
        ),
    ]


def _kernel_passes(subject):
    blocks = math.ceil(8 * KERNEL_IMAGES * subject.model.count_params() / KERNEL_BYTES)
    share = min(KERNEL_IMAGES, len(subject.x)) / len(subject.x)
    return Passes(2 * 2 * blocks * share, 0, 2)


def _steps_passes(subject):
    return Passes(3 * (len(RHOS) + 1) + 4 * 10, 0, 3)


MEASURES = {
    "components": Measure(
        _components,
        _show_components,
        _component_passes,
        either(without_derivatives, _without_components),
    ),
    "sharpness": Measure(
        _sharpness, _show_sharpness, _steps_passes, without_derivatives
    ),
    "ntk": Measure(
        _kernel,
        _show_kernel,
        _kernel_passes,
        either(without_derivatives, without_logits),
    ),
}
