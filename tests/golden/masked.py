"""A masked autoencoder, loss and predictions, against transformers' own code."""

import re

import numpy as np
from keras import ops
from safetensors.numpy import load_file

import kerasvit

from .family import recorded_values
from .result import Result, errors

TOLERANCE = 1e-5
LAYERS = {  # of transformers' decoder → of ours
    "decoder_embed": "decoder_embedding",
    "decoder_norm": "norm",
    "decoder_pred": "decoder_prediction",
    "attention.attention.query": "attention/query",
    "attention.attention.key": "attention/key",
    "attention.attention.value": "attention/value",
    "attention.output.dense": "attention/output",
    "layernorm_before": "attention_norm",
    "layernorm_after": "mlp_norm",
    "intermediate.dense": "mlp/dense_0",
    "output.dense": "mlp/dense_1",
}


def check(root, name, case):
    """Yields the case's name and its `Result`: loss, mask and predictions."""
    files = {key: root / path for key, path in case["files"].items()}
    images, noise = np.load(files["input"]), np.load(files["noise"])
    model = kerasvit.from_pretrained(files["checkpoint"].parent)
    trainer = kerasvit.MaskedPatches(model, "mae", decoder=case["config"]["decoder"])
    set_decoder(trainer.network, files["checkpoint"])
    found = trainer(images, noise=noise)
    found["loss"] = trainer.compute_loss(images, None, found)
    found = {key: ops.convert_to_numpy(value) for key, value in found.items()}
    yield name, Result(errors(found, recorded_values(files["expected"])), TOLERANCE)


def set_decoder(network, path):
    """Gives a decoder the weights of a file of transformers' `ViTMAEForPreTraining`."""
    variables = {v.path.removeprefix("network/"): v for v in network.variables}
    for key, array in load_file(path).items():
        if not key.startswith("decoder.") or key.endswith("decoder_pos_embed"):
            continue
        name = re.sub(
            r"decoder_encoder\.layer\.(\d+)\.",
            r"decoder_block_\1/",
            key.removeprefix("decoder."),
        )
        if name != "mask_token":
            block, layer, kind = re.fullmatch(r"(.*/)?(.*)\.(\w+)", name).groups()
            scale = "gamma" if "norm" in layer else "kernel"
            kind = {"weight": scale, "bias": "beta" if "norm" in layer else "bias"}[
                kind
            ]
            name = f"{block or ''}{LAYERS[layer]}/{kind}"
        variables[name].assign(array.T if array.ndim == 2 else array.reshape(-1))
