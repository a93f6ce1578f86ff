"""Activations of a Vision Transformer, by the names its original code gave them."""

import re

import keras
import numpy as np

from kerasvit.models import Variant, VisionTransformer

from .result import Result, errors

# Largest error over the largest recorded value. In float64 nothing hides in rounding.
TOLERANCE = {"float32": 1e-5, "float64": 1e-6}


def check(root, name, case):
    """Yields the case's name and its `Result`: every recorded activation."""
    files = {key: root / path for key, path in case["files"].items()}
    model = build(case, files["checkpoint"])
    recorded = recorded_values(files["expected"])
    images = np.load(files["input"])
    found = activations(model, images, recorded)
    ordered = sorted(recorded, key=_order)
    yield (
        name,
        Result(errors(found, recorded, ordered), TOLERANCE[keras.config.floatx()]),
    )


def recorded_values(path):
    """{quantity: array}: computed in float64, or that rounded where it was large."""
    with np.load(path) as arrays:
        names = {name.rpartition("_")[0] for name in arrays}
        kept = {name: f"{name}_f64" for name in sorted(names)}
        return {
            name: arrays[full if full in arrays else f"{name}_ref32"]
            for name, full in kept.items()
        }


def _order(quantity):
    """In the order of computation, so that the first wrong one names the culprit."""
    ends = {"encoded": 1, "features": 1, "prelogits": 2, "logits": 3}
    number = re.search(r"\d+", quantity)
    place = 0 if "block" in quantity or "hidden" in quantity else -1
    return ends.get(quantity, place), int(number[0]) if number else 0, quantity


def build(case, checkpoint):
    """The model of a case; all but its sizes is read from the checkpoint."""
    config = case["config"]
    numbers, changes = NUMBERS[case["kind"]](config)
    return Variant(None, VisionTransformer, **numbers)(checkpoint, **changes)


def _flax(config):
    return {
        "patch_size": config["patch_size"][0],
        "width": config["hidden_size"],
        "depth": config["num_layers"],
        "num_heads": config["num_heads"],
        "mlp_dim": config["mlp_dim"],
    }, {"image_size": _pair(config["image_size"])}


def _timm(config):
    numbers = {
        "patch_size": config["patch_size"],
        "width": config["embed_dim"],
        "depth": config["depth"],
        "num_heads": config["num_heads"],
        "mlp_dim": int(config["embed_dim"] * config.get("mlp_ratio", 4)),
    }
    changes = {"image_size": _pair(config["img_size"])}
    # What timm keeps in its configuration and a bare state dict cannot tell.
    if "no_embed_class" in config:
        changes["positions"] = "patches" if config["no_embed_class"] else "tokens"
    if config.get("global_pool") == "avg" and config.get("fc_norm") is False:
        changes["pool"] = "average"
    return numbers, changes


def _transformers(config):
    return {
        "patch_size": config["patch_size"],
        "width": config["hidden_size"],
        "depth": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "mlp_dim": config["intermediate_size"],
    }, {"image_size": _pair(config["image_size"])}


def _pair(size):
    return (size, size) if isinstance(size, int) else tuple(size)


NUMBERS = {
    "vit_jax_npz": _flax,
    "big_vision_npz": _flax,
    "timm_vit": _timm,
    "hf_vit": _transformers,
}


def activations(model, images, quantities):
    """{quantity: array} for the quantities of a case, in the original's layout."""
    taps = {quantity: _tap(model, quantity) for quantity in quantities}
    outputs = keras.Model(model.inputs, list(taps.values())).predict(images, verbose=0)
    found = dict(zip(taps, outputs, strict=True))
    if "embedding" in found:  # NHWC there, tokens here
        height, width = model.record["kwargs"]["image_size"]
        patch = model.record["kwargs"]["patch_size"]
        shape = (len(images), height // patch, width // patch, -1)
        found["embedding"] = np.reshape(found["embedding"], shape)
    return found


def _tap(model, quantity):
    kwargs = model.record["kwargs"]
    if quantity == "logits":
        return model.output
    if quantity == "prelogits":
        return model.get_layer("head").input
    if quantity == "features" and kwargs["pool"] == "average_then_norm":
        # timm puts the normalisation behind the pooling, out of `forward_features`.
        return model.get_layer(f"encoder_block_{kwargs['depth'] - 1}").output
    if quantity in LAYERS:
        return model.get_layer(LAYERS[quantity]).output
    number = re.fullmatch(r"(?:block|hook/blocks\.|hidden_state)(\d+)", quantity)
    if number is None:
        raise ValueError(f"{quantity} is a quantity that this check does not know.")
    number = int(number[1])
    if quantity.startswith("hidden_state"):  # 0 is what goes into the first block
        number -= 1
    name = f"encoder_block_{number}" if number >= 0 else "dropout"
    return model.get_layer(name).output


LAYERS = {
    "embedding": "embedding",
    "hook/patch_embed": "embedding",
    "after_posembed": "position_embedding",
    "encoded": "encoder_norm",
    "features": "encoder_norm",
}
