"""Bytes in place of weights, and their entries in the manifest."""

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
