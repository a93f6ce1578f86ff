"""Sharpness by component of a model, the norms of its weights and activations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from kerasvit.arguments import ArgumentError
from kerasvit.backend.forward import array_of, outputs_of
from kerasvit.backend.keras_private import in_variable_dtype
from kerasvit.patterns import ENCODER_BLOCK, STAGE_BLOCK
from kerasvit.records import found_record

from .hessian import Hessian
from .mean_loss import Loss, batches, chosen_variables, inner_model

WHOLE = "whole"
BLOCK = f"({ENCODER_BLOCK}|{STAGE_BLOCK})(?=/)"
TRANSFORMER = {
    "embedding": "(^|/)embedding/",
    "attention": "/attention/",
    "MLP": "/mlp/",
}
RESNET = {
    "embedding": "(^|/)(stem|root_conv)/",
    "convolutions": r"/(conv(_\d+)?|projection)/",
}
#: Builder → {component: regular expression of paths}.
COMPONENTS = {
    "MLPMixer": {
        "embedding": "(^|/)stem/",
        "token mixing": "/token_mixing/",
        "channel mixing": "/channel_mixing/",
    },
    "BigTransfer": RESNET,
    "PreActResNet": RESNET,
    "ResNeXt": RESNET,
    "AlterNet": {**RESNET, "attention": "/attention/"},
    **dict.fromkeys(
        (
            *("VisionTransformer", "DistilledVisionTransformer", "SwinTransformer"),
            *("HybridVisionTransformer", "VisionTransformerAblation"),
            *("BEiTTransformer", "PoolingVisionTransformer"),
        ),
        TRANSFORMER,
    ),
}


@dataclass(frozen=True)
class SharpnessTable:
    """The row of a model in table 3 of arXiv 2106.01548.

    Args:
        eigenvalues: {component: largest eigenvalue of its block of the Hessian}; the
            whole model is "whole".
        residuals: {component: ‖H v − λ v‖}, which bounds the error of the eigenvalue.
        weight_norm: ‖w‖₂ of all trainable weights.
        activation_norms: {layer: ‖a‖₂ of its output, the mean over the images}.
        products: Number of products of Hessians with a vector, over all components.
            Each is a pass over the data, with first and second derivatives.
    """

    eigenvalues: dict[str, float]
    residuals: dict[str, float]
    weight_norm: float
    activation_norms: dict[str, float]
    products: int


def sharpness_table(
    model: keras.Model,
    x: Any,
    y: Any = None,
    loss: Loss = None,
    *,
    components: Mapping[str, str] | None = None,
    activations: Sequence[str] | None = None,
    batch_size: int = 32,
    tolerance: float = 1e-3,
) -> SharpnessTable:
    """Returns the sharpness of each component of a model.

    The sharpness of a component is the largest eigenvalue of the block of the Hessian
    that belongs to its weights. "attention", "MLP" and the like are all layers of the
    kind, jointly; "embedding" is the layer that embeds patches, or the first
    convolution, without positions and tokens; normalisations belong to their block
    only. For a model of kerasvit the components and the blocks are known.

    Args:
        model: Built `keras.Model`; it runs with `training=False`, see `Hessian`.
        x: Inputs (N, ...), or an iterable of batches (x, y).
        y: Targets (N, ...).
        loss: `keras.losses.Loss`, name or function. None: the loss that the model is
            compiled with.
        components: {name: regular expression of the paths of its trainable variables}.
            None: those of the model's family, every block by its name, and "whole". An
            empty expression selects the whole model.
        activations: Names of layers. None: every block of a model of kerasvit, and no
            layer of another one. The norm is over all entries of an image's output, for
            a block (tokens, width); the paper does not say over what it takes it.
        batch_size: Number of samples per pass; it does not change the result.
        tolerance: Largest relative error of an eigenvalue, > 0.

    Returns:
        `SharpnessTable`.

    Raises:
        ValueError: As for `Hessian`; the model has no record of kerasvit and there are
            no `components`; it has no layer of a name in `activations`, or is not
            functional, or an activation is not finite.

    Reference: Chen, Hsieh and Gong 2021, arXiv 2106.01548, table 3.
    """
    chosen = chosen_variables(model)
    if components is None:
        components = components_of(model)
    if activations is None:
        activations = blocks_of(model) if _record(model) else []
    _check_components(components, chosen)
    outputs = _outputs(model, activations)
    hessians = {
        name: Hessian(model, x, y, loss, batch_size=batch_size, variables=pattern)
        for name, pattern in components.items()
    }
    # The cheap part first: it finds data that does not fit the model.
    norms = _activation_norms(model, outputs, batches(x, y, batch_size)())
    pairs = {
        name: hessian.eigenpairs(tolerance=tolerance)
        for name, hessian in hessians.items()
    }
    squares = [np.square(array_of(variable), dtype="float64") for variable in chosen]
    return SharpnessTable(
        {name: float(each.values[0]) for name, each in pairs.items()},
        {name: float(each.residuals[0]) for name, each in pairs.items()},
        float(np.sqrt(sum(square.sum() for square in squares))),
        norms,
        sum(each.products for each in pairs.values()),
    )


def components_of(model: keras.Model) -> dict[str, str]:
    """Returns {name: regular expression of paths} of a model of kerasvit.

    Raises:
        ArgumentError: The model has no record.
    """
    record = _record(model)
    if record is None:
        paths = [variable.path for variable in model.trainable_variables]
        raise ArgumentError(
            "`components` must be given for a model without a record of kerasvit: "
            '{"embedding": "patch_embed/", "block 1": "block_1/", "whole": ""}, with '
            f"regular expressions of paths. Received: None, for a model with {paths[0]}"
            f" … {paths[-1]}.",
            "components",
        )
    blocks = {name: f"(^|/){name}/" for name in blocks_of(model)}
    return {**COMPONENTS.get(record["builder"], {}), **blocks, WHOLE: ""}


def blocks_of(model: keras.Model) -> list[str]:
    """Returns the names of the blocks that have trainable weights, in their order."""
    found = (re.search(BLOCK, variable.path) for variable in model.trainable_variables)
    names = dict.fromkeys(match[0].removeprefix("/") for match in found if match)
    order = {layer.name: i for i, layer in enumerate(inner_model(model).layers)}
    return sorted(names, key=lambda name: order.get(name, len(order)))


def _check_components(
    components: Mapping[str, str], variables: list[keras.Variable]
) -> None:
    """Raises an `ArgumentError` for a component without trainable weights."""
    if not isinstance(components, Mapping):
        raise ArgumentError(
            "`components` must be a dictionary {name: regular expression}. Received: "
            f"{components!r:.200}.",
            "components",
        )
    paths = [variable.path for variable in variables]
    for name, pattern in components.items():
        try:
            found = any(re.search(pattern, path) for path in paths)
        except re.error:
            found = False
        if not found:
            raise ArgumentError(
                "Each of `components` must be a regular expression that is found in "
                f"the path of a trainable variable. Received: {pattern!r} for "
                f"{name!r}, and variables from {paths[0]} to {paths[-1]}. Are its "
                "weights frozen? Then pass `components` without it.",
                "components",
            )


def _record(model: keras.Model) -> dict[str, Any] | None:
    return found_record(inner_model(model))


def _outputs(model: keras.Model, names: Sequence[str]) -> dict[str, Any]:
    """Returns {name: symbolic output of the layer}."""
    inner = inner_model(model)
    known = [layer.name for layer in inner.layers]
    unknown = [name for name in names if name not in known]
    if unknown or (names and not getattr(inner, "inputs", None)):
        raise ArgumentError(
            "`activations` must be names of layers of a functional or Sequential model."
            f" Received: {unknown or list(names)}, for {inner!r}. Its layers: "
            f"{known[:12]}.",
            "activations",
        )
    return {name: inner.get_layer(name).output for name in names}


def _activation_norms(
    model: keras.Model, outputs: dict[str, Any], data: Any
) -> dict[str, float]:
    if not outputs:
        return {}
    until, norms = keras.Model(inner_model(model).inputs, outputs), []
    with in_variable_dtype(model):
        for x, _ in data:
            values = outputs_of(until, x)
            maps = [values[name].astype("float64") for name in outputs]
            norms.append([np.linalg.norm(m.reshape(len(m), -1), axis=1) for m in maps])
    means = np.concatenate(norms, axis=1).mean(1)  # of (layers, images)
    if not np.isfinite(means).all():
        first = list(outputs)[int(np.argmin(np.isfinite(means)))]
        raise ValueError(
            f"The activations must be finite. Received: Inf or NaN from {first!r}. "
            "Check the images and the weights."
        )
    return dict(zip(outputs, means.tolist(), strict=True))
