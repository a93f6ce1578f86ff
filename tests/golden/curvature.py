"""Hessian, tangent kernel and loss landscape, against float64 and formed matrices."""

import itertools

import keras
import numpy as np

from kerasvit.inspection import (
    Hessian,
    landscape,
    largest_eigenvalue,
    normalized_direction,
    ntk,
)

from .result import Result, error
from .trajectories import network

TOLERANCE = {"float32": 1e-5, "float64": 1e-6}
KINDS = {"filter": "filter", "layer": "layer", "hdvw": "how-do-vits-work"}
EXACT = {"tolerance": 1e-9}  # of the eigenvalues; in float32 up to rounding


def check(root, name, case):
    """Yields the `Result` of the Hessian, or why there is none."""
    with np.load(root / case["problem"]) as problem:
        for kind, file in case["files"].items():
            with np.load(root / file) as golden:
                errors = CHECKS[kind](problem, golden)
            yield f"{name}/{kind}", Result(errors, TOLERANCE[keras.config.floatx()])


def _ntk(problem, golden):
    """The kernel in all forms, and its condition number."""
    model, _ = network(problem)
    errors = {}
    for form in ("full", "summed", "traced"):
        found = ntk(model, golden["x"], form=form, memory=10_000)
        errors[form] = error(found.matrix, golden[f"K_{form}"])
        condition = error(found.condition_number, golden[f"cond_{form}"])
        # Rounding of the smallest eigenvalue is rounding of the largest, times κ.
        errors[f"{form}: condition"] = condition / golden[f"cond_{form}"]
    by_logit = ntk(model, golden["x"], form="logit").matrix
    for a, matrix in enumerate(by_logit):
        errors[f"logit {a}"] = error(matrix, golden[f"K_logit{a}"])
    return errors


def _landscape(problem, golden):
    """The scaled directions and the loss around the weights, in three ways."""
    model, weights = network(problem)
    paths = {name: variable.path for name, variable in weights.items()}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    errors = {}
    for kind, normalization in KINDS.items():
        scaled = [
            normalized_direction(
                model,
                {paths[name]: golden[f"dir{i}_raw/{name}"] for name in paths},
                normalization,
            )
            for i in (0, 1)
        ]
        found = landscape(
            model, problem["x"], problem["y"], loss, directions=scaled,
            grid=[golden["alphas"]] * 2,
        )  # fmt: skip
        errors[f"{kind}: loss"] = error(found.loss, golden[f"loss_{kind}"])
        for i, (name, path) in itertools.product((0, 1), paths.items()):
            expected = golden[f"dir{i}_{kind}/{name}"]
            errors[f"{kind}: {i} {name}"] = error(scaled[i][path], expected)
    return errors


def _hessian(problem, golden):
    model, _ = network(problem)
    data = problem["x"], problem["y"]
    # The last batch is smaller on purpose.
    options = {
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "batch_size": 5,
    }
    if problem["y"].ndim == 2:
        options["loss"] = keras.losses.CategoricalCrossentropy(from_logits=True)
    hessian = Hessian(model, *data, **options)
    loss, gradient = hessian.loss_and_gradient()
    matrix = np.stack([hessian @ unit for unit in np.eye(hessian.shape[0])])
    largest = hessian.eigenpairs(**EXACT)
    vector = largest.vectors[0]
    vector *= np.sign(vector @ golden["top_eigenvector"])
    found = {
        "loss": loss,
        "grad": gradient,
        "grad_norm": np.linalg.norm(gradient),
        "Hv": hessian @ golden["v"],
        "hessian": matrix,
        "trace": np.trace(matrix),
        "top_eigenvector": vector,
        "top_eig_first4_samples": [
            largest_eigenvalue(
                model, *(array[i : i + 1] for array in data), **options, **EXACT
            )
            for i in range(4)
        ],
        **_blocks(model, data, options, golden["keys"]),
    }
    ends = golden["eigenvalues"][[-1, 0]]
    smallest = hessian.eigenpairs(which="smallest", **EXACT)
    return {
        **{
            quantity: error(value, golden[quantity])
            for quantity, value in found.items()
        },
        "largest eigenvalue": error(largest.values[0], ends[0]),
        "smallest eigenvalue": error(smallest.values[0], ends[1]),
    }


def _blocks(model, data, options, names):
    """The Hessian within one variable, for each."""
    found = {}
    for name in names:
        block = Hessian(model, *data, **options, variables=f"{name}$")
        size = block.shape[0]
        every = block.eigenpairs(size, vectors=2 * size + 1, which="smallest", **EXACT)
        found[f"block_eigs/{name}"] = every.values
        for wish, which in (("eig", "largest"), ("abs_eig", "magnitude")):
            first = block.eigenpairs(which=which, **EXACT).values[0]
            found[f"block_dominant_{wish}/{name}"] = first
    return found


CHECKS = {"hessian": _hessian, "ntk": _ntk, "landscape": _landscape}
