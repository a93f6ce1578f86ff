"""Bytes that stand for weights, and their entries in the manifest."""

import hashlib

import numpy as np

from kerasvit.hub.manifest import Entry

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILES = {"model.safetensors": CONTENT, "config.json": b'{"architecture": "x"}'}


def entry(source, **pins):
    return Entry("ViTTi16", "sam", source, "timm", 10, 3, "mit", {"size": 32}, **pins)


def pinned(source, **changes):
    return entry(source, **{"size": len(CONTENT), "sha256": SHA256, **changes})


# As sources.toml is to have what weights.publish has put on the Hub.
OURS = Entry(
    model="MixerS16",
    tag="gsam",
    source="me/mixer",
    format="kerasvit",
    classes=1000,
    megabytes=74,
    license="apache-2.0",
    preprocessing={"size": 224},
    revision="a" * 40,
    size=74_000_000,
    sha256="e" * 64,
    made_from={
        "source": "https://storage.googleapis.com/mixer_models/gsam/Mixer-S_16.npz",
        "format": "vision_transformer",
        "classes": 1000,
        "sha256": "f" * 64,
    },
)
