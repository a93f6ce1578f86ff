"""Position tables at another resolution, against Google's and timm's own code."""

import numpy as np

from kerasvit.layers import PositionEmbedding

from .result import Result, error

KERNELS = {
    "vit_jax": "corner_linear",
    "timm_bicubic_aa": "bicubic_antialias",
    "timm_bicubic_noaa": "bicubic",
    "timm_bilinear_aa": "bilinear_antialias",
    "timm_bilinear_noaa": "bilinear",
}
TOLERANCE = 1e-5


def check(root, name, case):
    """Yields a sub-case's name and its `Result`: every recorded kernel."""
    for label, part in case["cases"].items():
        with np.load(root / part["file"]) as arrays:
            table, source = arrays["posemb"], arrays["old_size"]
            target = arrays["new_size"]
            prefix = table.shape[1] - int(np.prod(source))
            layer = PositionEmbedding(tuple(map(int, target)), prefix=prefix)
            found = {}
            for recorded in arrays:
                kernel = KERNELS.get(recorded.rpartition("_")[0])
                if kernel is not None:
                    resampled = layer.resample(
                        table, source_grid=tuple(map(int, source)), kernel=kernel
                    )
                    found[recorded] = error(resampled, arrays[recorded])
        yield f"{name}/{label}", Result(found, TOLERANCE)
