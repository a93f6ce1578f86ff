"""JPEG files of the average size of ImageNet's photographs, 500 × 375 pixels.

They are cut from the photographs that scikit-learn and scikit-image install.
"""

from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 500, 375
QUALITY = 90


def write(folder: str | Path, count: int) -> list[Path]:
    """Writes `count` JPEG files and returns their paths; the same ones each time."""
    photographs = [Image.fromarray(pixels) for pixels in installed()]
    random = np.random.default_rng(0)
    paths = [Path(folder, f"{i}.jpg") for i in range(count)]
    for i, path in enumerate(paths):
        photograph = photographs[i % len(photographs)]
        largest = min(photograph.width / WIDTH, photograph.height / HEIGHT)
        scale = largest * random.uniform(0.6, 1)
        width, height = scale * WIDTH, scale * HEIGHT
        x = random.uniform(0, photograph.width - width)
        y = random.uniform(0, photograph.height - height)
        cut = photograph.resize(
            (WIDTH, HEIGHT), Image.Resampling.BICUBIC, (x, y, x + width, y + height)
        )
        cut.save(path, quality=QUALITY)
    return paths


def installed() -> list[np.ndarray]:
    """Returns the colour photographs of both packages, uint8 (height, width, 3)."""
    import skimage.data
    import sklearn.datasets

    return [
        *sklearn.datasets.load_sample_images().images,
        skimage.data.astronaut(),
        skimage.data.chelsea(),
        skimage.data.coffee(),
        skimage.data.rocket(),
    ]
