"""Measures of the curvature of the loss, and of the tangent kernel."""

import math
import re
from itertools import zip_longest

import numpy as np

from kerasvit import inspection
from kerasvit.inspection import COMPONENTS, components_of

from .figures import by_depth, in_columns, lines
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
TRACE_VECTORS, STARTS, STEPS = 50, 3, 40
TERMS = {"squared": "λ/2 Σ‖w‖²", "norms": "λ Σ‖w‖"}
# Numbers of a paper about models trained on ImageNet: ratios can be compared, values
# hardly.
#
# Chen, Hsieh and Gong 2021, arXiv 2106.01548, table 3: the largest eigenvalue of the
# embedding, of all attention or token mixing, of all MLPs or channel mixing, of blocks
# 1, 6 and 12 and of the whole; ‖w‖; ‖a‖ of blocks 1, 6 and 12.
CITED_COMPONENTS = {
    "ViT-B/16": (300.4, 179.8, 281.4, 44.4, 32.4, 26.9, 738.8)
    + (269.3, 104.9, 104.3, 138.1),
    "ViT-B/16-SAM": (3.8, 8.5, 9.6, 1.7, 1.7, 1.5, 20.9) + (353.8, 117.0, 120.3, 97.2),
    "Mixer-B/16": (1042.3, 95.8, 417.9, 239.3, 41.2, 5.1, 1644.4)
    + (197.6, 96.7, 135.1, 74.9),
    "Mixer-B/16-SAM": (18.2, 1.4, 9.5, 4.0, 1.1, 0.3, 22.5)
    + (389.9, 110.9, 176.0, 216.1),
}
# The same, table 1: the largest eigenvalue of the Hessian.
CITED_LARGEST = {
    "R-50": 122.9,
    "R-152": 179.8,
    "ViT-B/16": 738.8,
    "ViT-B/16-SAM": 20.9,
    "Mixer-B/16": 1644.4,
    "Mixer-B/16-SAM": 22.5,
}
# The same, table 1: κ at initialisation.
CITED_CONDITION = {
    "R-50": 2801.6,
    "R-152": 2801.6,
    "ViT-B/16": 4205.3,
    "Mixer-B/16": 14468.0,
}
FAMILIES = {  # {name of a builder: beginning of the names in the paper}
    "VisionTransformer": "ViT",
    "DistilledVisionTransformer": "ViT",
    "VisionTransformerAblation": "ViT",
    "MLPMixer": "Mixer",
    "BigTransfer": "R-",
}


def of_families(numbers: dict, results: dict) -> dict:
    """Returns the numbers of the paper about the families of the models.

    Args:
        numbers: {name in the paper: numbers}.
        results: {name: what was measured, with the name of the "builder"}.
    """
    builders = dict.fromkeys(each["builder"] for each in results.values())
    families = tuple(FAMILIES[name] for name in builders if name in FAMILIES)
    return {n: each for n, each in numbers.items() if n.startswith(families)}


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
    cited = of_families(CITED_COMPONENTS, results)
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
    cited = of_families(CITED_CONDITION, results)
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
    cited = of_families(CITED_LARGEST, results)
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
    series = {name: in_columns(r["values"]) for name, r in results.items()}
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
