"""The card of the files that a model was loaded from, which its copies keep.

The attribute `card` of a model is None or a JSON object: `text`, the content of the
README.md, and `state`, the hash of what its results were measured with, or None if the
model computed something else from the beginning.
"""

import hashlib
import json
import logging
import zlib
from pathlib import Path
from typing import Any

import keras
import numpy as np

from .adapters import merged_weights
from .hub.card import Card, licence_of
from .hub.writing import values_of

log = logging.getLogger("kerasvit")

LIMIT = 1_000_000  # bytes of a README.md that a model remembers
# Arguments of builders that do not change what a model computes in inference.
WITHOUT_EFFECT = ("name", "dtype", "dropout", "stochastic_depth")


def remember(model: keras.Model, path: Path, *, same_head: bool, same: bool) -> None:
    """Sets the card of a model that was just loaded.

    Args:
        model: The model.
        path: README.md, which need not exist.
        same_head: Whether the model has the head of the files. Otherwise it will be
            another classifier, and only the licence of the weights concerns it.
        same: Whether it computes what the model of the files computes.
    """
    try:
        size = path.stat().st_size if path.is_file() else 0
        content = path.read_bytes() if 0 < size <= LIMIT else b""
    except OSError as error:
        log.warning("%s is not kept in copies of the model: %s.", path, error)
        return
    if size > LIMIT:
        log.warning(
            "%s has %s bytes, and is not kept in copies of the model; at most %s are.",
            path,
            f"{size:,}",
            f"{LIMIT:,}",
        )
    text = content.decode("utf-8", "surrogateescape")
    # As editors of Windows write it.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not same_head:
        text = licence_of(text)
    if text.strip():
        model.card = {"text": text, "state": _state(model) if same else None}


def card_of(model: Any) -> Card | None:
    """Returns the card that a model was loaded with, or None."""
    card = getattr(model, "card", None)
    if not isinstance(card, dict) or not isinstance(card.get("text"), str):
        return None
    return Card(card["text"], card.get("state") == _state(model))


def _state(model: keras.Model) -> str:
    """Returns a hash of a model's weights, arguments and preprocessing.

    Adapters count as merged: merging them changes nothing.
    """
    kwargs = {
        k: v for k, v in model.record["kwargs"].items() if k not in WITHOUT_EFFECT
    }
    stated = json.dumps([kwargs, model.record["preprocessing"]], sort_keys=True)
    found = hashlib.sha256(stated.encode())
    for variable in merged_weights(model):
        # A checksum for each variable: a third of the time of SHA-256 of all.
        values = np.ascontiguousarray(values_of(variable)).reshape(-1).view("uint8")
        found.update(f"{variable.path} {zlib.crc32(values.data)};".encode())
    return found.hexdigest()
