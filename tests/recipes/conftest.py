"""Puts the recipes, which are scripts, on the import path."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))


@pytest.fixture
def images(tmp_path):
    """Writes images into class folders: images("cat", 4) or images("train/cat", 4)."""
    root = tmp_path / "images"

    def write(name, count, size=(20, 24)):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(count):
            pixels = np.random.default_rng([i, len(name)]).integers(
                256, size=(*size, 3), dtype="uint8"
            )
            Image.fromarray(pixels).save(folder / f"{i}.jpg")
        return root

    return write
